"""The roles of the image that Spark on Kubernetes starts, with the pods that Spark itself asks for."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from demo.embedded_stack.ports import HOST, free_ports, is_listening
from demo.embedded_stack.spark import spark_home
from tests.support.kubernetes import Node
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay import __version__
from ticdc_replay.domain.connections import Connections
from ticdc_replay.submit.environment import driver_environment

# Each time, tests/unit/test_kubernetes.py checks the manifests, and tests/unit/submit/test_kubernetes.py what a driver is given.
pytestmark = [pytest.mark.spark, pytest.mark.nightly]

CHECKOUT = Path(__file__).resolve().parents[2]
ENTRY_POINT = """
import runpy, sys
from pathlib import Path

del sys.argv[0]
entry = runpy.run_path(sys.argv[0])
places = entry["main"].__globals__
places.update(SECRETS=Path("run/secrets"), WORK=Path("opt/spark-work"))
places["WORK"].mkdir(parents=True, exist_ok=True)
entry["main"]()
"""
"""The entry point as a process, in whose folder the paths of the image begin."""

APPLICATION = """
import json, sys

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from ticdc_replay.spark.tasks import SparkRunner


def look(task):
    import os
    from pathlib import Path

    from ticdc_replay import __version__
    from ticdc_replay.decode.read import split

    return [__version__, task, os.environ["SPARK_EXECUTOR_ID"], Path(SparkFiles.getRootDirectory()).resolve().parts[-1]]


spark = SparkSession.builder.appName("roles").getOrCreate()
found = SparkRunner(spark).run(look, [1, 2], "look")
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
spark.stop()
"""


def image_environment(java_home: Path) -> dict[str, str]:
    """What the Dockerfile sets, with the places of this checkout."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}:/usr/sbin",
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT),
        "LANG": "C.UTF-8",
    }


def entry_point(arguments: list[str]) -> list[str]:
    return [sys.executable, "-c", ENTRY_POINT, str(CHECKOUT / "docker/entrypoint.py"), *arguments]


@pytest.fixture
def node(java_home: Path, tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "pods").mkdir()
    with Node(tmp_path / "pods", entry_point, image_environment(java_home)) as running:
        yield running


def test_a_driver_and_its_executors_run_as_pods(node: Node, java_home: Path, tmp_path: Path) -> None:
    application, result = tmp_path / "application.py", tmp_path / "result.json"
    application.write_text(APPLICATION, encoding="utf-8")
    driver_port, block_port = free_ports(2)
    properties = {
        "spark.kubernetes.container.image": "ticdc-replay:test",
        "spark.kubernetes.driver.master": node.url,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.executor.enableApiWatcher": "false",
        "spark.kubernetes.executor.apiPollingInterval": "1s",
        "spark.driver.port": str(driver_port),
        "spark.driver.blockManager.port": str(block_port),
        "spark.blockManager.port": "0",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.ui.enabled": "false",
    }
    command = [str(spark_home() / "bin/spark-submit"), "--master", f"k8s://{node.url}", "--deploy-mode", "cluster"]
    command += [f"--conf={name}={value}" for name, value in properties.items()]
    submitted = subprocess.run(
        [*command, f"local://{application}", str(result)],
        env={**image_environment(java_home), "SPARK_LOCAL_IP": HOST},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert submitted.returncode == 0, submitted.stderr[-3000:]
    (driver,) = list(node.pods)

    def ended() -> str | None:
        pod = node.named("pods", driver)
        phase = None if pod is None else pod["status"]["phase"]
        return phase if phase in ("Succeeded", "Failed") else None

    assert wait_for("the driver to end", ended) == "Succeeded", node.log(driver)[-3000:]
    found = json.loads(result.read_text(encoding="utf-8"))
    assert [entry[:2] for entry in found] == [[__version__, 1], [__version__, 2]]
    executors = [pod for pod in node.pods.values() if pod["metadata"]["labels"].get("spark-role") == "executor"]
    assert {entry[2] for entry in found} <= {pod["metadata"]["labels"]["spark-exec-id"] for pod in executors}
    assert {tuple(pod["spec"]["containers"][0]["args"]) for pod in executors} == {("executor",)}


def manifests(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CHECKOUT / "docker/kubernetes" / file).read_text(encoding="utf-8")))


MANIFESTS = {(each["kind"], each["metadata"]["name"]): each for each in manifests("spark-connect.yaml")}
TOKEN = "planted-token-of-clients"
HAPROXY = shutil.which("haproxy", path=f"{os.defpath}:/usr/sbin")

CLIENT = """
import json, sys

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.tasks import SparkRunner

port, use_ssl, token = sys.stdin.read().split()
server = Connection("spark", "spark_connect", "localhost", int(port), None, token, extra={"use_ssl": use_ssl == "True"})


def look(task):
    import os

    from ticdc_replay import __version__

    return [__version__, task, os.environ["SPARK_EXECUTOR_ID"]]


try:
    with open_session("client", server=server) as spark:
        print(json.dumps(SparkRunner(spark).run(look, [1, 2], "look")))
except TransientError as error:
    print(json.dumps(str(error)))
"""


class Deployed:
    """The server of docker/kubernetes, as a pod; with its proxy and TLS if haproxy is here."""

    def __init__(self, folder: Path, java_home: Path) -> None:
        self.secure = HAPROXY is not None
        self.authority = folder / "ca.crt"
        self.ports = dict(zip(("15001", "15002", "7078", "7079", "8404"), map(str, free_ports(5)), strict=True))
        key, certificate = self_signed("localhost", self.authority)
        (folder / "pods").mkdir()
        self.node = Node(
            folder / "pods",
            entry_point,
            image_environment(java_home),
            {
                "spark-connect-token": {"token": TOKEN},
                "spark-rpc": {"secret": "planted-secret-of-rpc"},
                "spark-connect-tls": {"tls.crt": certificate, "tls.key": key},
            },
            {
                **self.ports,
                # Executors share the address of the driver here.
                "spark.blockManager.port                                7079": "spark.blockManager.port 0",
                "spark-connect-0.spark-connect-driver": HOST,
            },
        )
        self.node.rewrite["https://kubernetes.default.svc"] = self.node.url

    def start(self) -> None:
        for (kind, _), manifest in MANIFESTS.items():
            if kind == "ConfigMap":
                self.node.create("configmaps", copy.deepcopy(manifest))
        pod = copy.deepcopy(MANIFESTS["StatefulSet", "spark-connect"]["spec"]["template"])
        pod["metadata"]["name"] = "spark-connect-0"
        server, _ = pod["spec"]["containers"]
        server["args"] += ["--conf", "spark.kubernetes.executor.enableApiWatcher=false"]
        server["args"] += ["--conf", "spark.kubernetes.executor.apiPollingInterval=1s"]
        if not self.secure:
            pod["spec"]["containers"] = [server]
        self.node.create("pods", pod)
        wait_for("the server", lambda: self._runs() and is_listening(int(self.ports["15001"])))
        if self.secure:
            wait_for("the proxy to find the server", self._is_ready)

    def _runs(self) -> bool:
        pod = self.node.named("pods", "spark-connect-0")
        assert pod is not None
        assert pod["status"]["phase"] in ("Pending", "Running"), self.node.log("spark-connect-0")[-3000:]
        return True

    def _is_ready(self) -> bool:
        try:
            return bool(urlopen(f"http://{HOST}:{self.ports['8404']}/ready", timeout=5).status == 200)
        except OSError:
            return False

    def ask(self, token: str = TOKEN) -> Any:
        """What tasks of a client return, or the text of its error."""
        # Without TLS, PySpark sends a token to localhost only.
        port = self.ports["15002" if self.secure else "15001"]
        environ = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.authority)}
        client = subprocess.run(
            [sys.executable, "-c", CLIENT],
            env=driver_environment(environ, Connections({})),
            input=f"{port} {self.secure} {token}",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert client.returncode == 0, client.stderr[-3000:] + self.node.log("spark-connect-0")[-3000:]
        return json.loads(client.stdout)


def self_signed(name: str, file: Path) -> tuple[str, str]:
    """The private key and the certificate of a server *name*; the certificate is in *file*, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM).decode()
    file.write_text(pem, encoding="ascii")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), pem


@pytest.fixture(scope="module")
def deployed(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    server = Deployed(tmp_path_factory.mktemp("kubernetes"), java_home)
    with server.node:
        server.start()
        yield server


@pytest.fixture(scope="module")
def found(deployed: Deployed) -> Any:
    """What tasks of a client returned."""
    return deployed.ask()


def test_tasks_of_clients_run_on_pods_of_the_image(deployed: Deployed, found: Any) -> None:
    assert [entry[:2] for entry in found] == [[__version__, 1], [__version__, 2]], found
    pods = [pod for name, pod in deployed.node.pods.items() if name != "spark-connect-0"]
    assert {entry[2] for entry in found} <= {pod["metadata"]["labels"]["spark-exec-id"] for pod in pods}
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"spark-executor"}


def test_executors_are_the_pods_that_the_manifests_speak_of(deployed: Deployed, found: Any) -> None:
    policy = MANIFESTS["NetworkPolicy", "spark-connect-executors"]["spec"]["podSelector"]["matchLabels"]
    account = MANIFESTS["StatefulSet", "spark-connect"]["spec"]["template"]["spec"]["containers"][0]
    pods = [pod for name, pod in deployed.node.pods.items() if name != "spark-connect-0"]
    for pod in pods:
        assert policy.items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["automountServiceAccountToken"] is False
        (container,) = pod["spec"]["containers"]
        assert container["image"] == account["image"]
        assert container["securityContext"] == account["securityContext"]
        assert [name for name in ("planted-secret-of-rpc", TOKEN) if name in json.dumps(pod)] == []


def test_the_role_allows_what_spark_asks_for(deployed: Deployed, found: Any) -> None:
    allowed = {
        (verb, resource)
        for rule in MANIFESTS["Role", "spark-connect"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("create", "pods"), ("create", "configmaps")} <= deployed.node.requests
    assert deployed.node.requests <= allowed


def test_a_client_with_another_token_is_refused(deployed: Deployed) -> None:
    assert "refused the token" in deployed.ask("another-token")
