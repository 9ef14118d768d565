"""The files for Kubernetes, held against schemas and against the names, ports and programs that they speak of.

tests/spark/test_image_roles.py runs the pods of these manifests as processes.
"""

import importlib
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource

from tests.unit.test_compose import COMPOSE, SERVICES, settings_of_airflow
from ticdc_replay import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "docker/kubernetes"
SCHEMAS = {path.name: json.loads(path.read_text()) for path in (CHECKOUT / "tests/data/kubernetes").glob("*.json")}
REGISTRY: Any = Registry().with_resources((name, Resource.from_contents(each)) for name, each in SCHEMAS.items())
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (CHECKOUT / "docs/deployments/kubernetes.md").read_text(encoding="utf-8")
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "airflow-values.yaml").read_text(encoding="utf-8"))
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "spark-connect.yaml").read_text(encoding="utf-8")))
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in MANIFESTS}
SERVER = BY_NAME["StatefulSet", "spark-connect"]
POD = SERVER["spec"]["template"]
CONFIGURATION = BY_NAME["ConfigMap", "spark-connect"]["data"]
EXECUTOR = yaml.safe_load(CONFIGURATION["executor.yaml"])
PROXY = BY_NAME["ConfigMap", "spark-connect-proxy"]["data"]["haproxy.cfg"]
PROPERTIES = dict(
    line.split(None, 1) for line in CONFIGURATION["spark-defaults.conf"].splitlines() if line and line[0] != "#"
)
GROUPS = {
    "Pod": "core",
    "ConfigMap": "core",
    "Service": "core",
    "ServiceAccount": "core",
    "StatefulSet": "apps",
    "NetworkPolicy": "networking",
    "Role": "rbac",
    "RoleBinding": "rbac",
}


def errors_of(manifest: dict[str, Any]) -> list[str]:
    kind = manifest["kind"]
    schema = {"$ref": f"kubernetes-1.34.schema.json#/$defs/io.k8s.api.{GROUPS[kind]}.v1.{kind}"}
    found = jsonschema.Draft202012Validator(schema, registry=REGISTRY).iter_errors(manifest)
    return [f"{kind} {error.json_path}: {error.message}" for error in found]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in MANIFESTS if each["kind"] == kind]


def ports_of(pod: dict[str, Any]) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"] for container in pod["spec"]["containers"] for port in container["ports"]
    }


def secrets_that_must_exist() -> set[str]:
    volumes = [*POD["spec"]["volumes"], *VALUES["volumes"]]
    mounted = {each["secret"]["secretName"] for each in volumes if "secret" in each}
    of_the_chart = {VALUES[key] for key in ("fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName")}
    return mounted | of_the_chart | {VALUES["data"]["metadataSecretName"]}


@pytest.mark.parametrize("manifest", [*MANIFESTS, EXECUTOR], ids=lambda each: each["kind"])
def test_a_manifest_is_valid_by_the_schema_of_kubernetes(manifest):
    assert errors_of(manifest) == []


def test_the_schema_refuses_what_kubernetes_does_not_know():
    changed = {**SERVER, "spec": {**SERVER["spec"], "replica": 1}}
    assert errors_of(changed) != []


def test_values_of_airflow_are_those_of_the_chart():
    validator = jsonschema.Draft202012Validator(SCHEMAS["airflow-chart.schema.json"], registry=REGISTRY)
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(VALUES)] == []
    assert not validator.is_valid({**VALUES, "volumeMount": []})


def test_every_manifest_is_applied():
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["resources"] == ["spark-connect.yaml"]
    assert len(BY_NAME) == len(MANIFESTS), "no name twice"


def test_everything_runs_the_image_of_this_release():
    image = f"ticdc-replay:{__version__}"
    assert SERVICES["airflow-scheduler"]["image"] == image
    assert {container["image"] for container in POD["spec"]["containers"]} == {image}
    assert PROPERTIES["spark.kubernetes.container.image"] == image
    assert f"{VALUES['defaultAirflowRepository']}:{VALUES['defaultAirflowTag']}" == image
    locked = re.search(r"^apache-airflow==(\S+)", (CHECKOUT / "requirements/runtime.txt").read_text(), re.MULTILINE)
    assert locked is not None
    assert VALUES["airflowVersion"] == locked[1]


def test_names_lead_to_what_there_is():
    accounts = {each["metadata"]["name"] for each in of_kind("ServiceAccount")}
    (binding,) = of_kind("RoleBinding")
    assert ("Role", binding["roleRef"]["name"]) in BY_NAME
    assert {subject["name"] for subject in binding["subjects"]} == {POD["spec"]["serviceAccountName"]} <= accounts
    assert PROPERTIES["spark.kubernetes.authenticate.executor.serviceAccountName"] in accounts
    maps = {each["configMap"]["name"] for each in POD["spec"]["volumes"] if "configMap" in each}
    assert maps == {each["metadata"]["name"] for each in of_kind("ConfigMap")}
    headless = BY_NAME["Service", SERVER["spec"]["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None"
    pod = f"{SERVER['metadata']['name']}-0"
    assert PROPERTIES["spark.kubernetes.driver.pod.name"] == pod
    assert PROPERTIES["spark.driver.host"] == f"{pod}.{headless['metadata']['name']}"
    assert SERVER["spec"]["replicas"] == 1


def test_every_volume_is_mounted_and_every_mount_is_a_volume():
    for spec in (POD["spec"], EXECUTOR["spec"]):
        mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in VALUES["volumeMounts"]} == {volume["name"] for volume in VALUES["volumes"]}


def test_selectors_find_the_pods_that_they_mean():
    server, executor = POD["metadata"]["labels"], EXECUTOR["metadata"]["labels"]
    assert SERVER["spec"]["selector"]["matchLabels"] == server
    for service in of_kind("Service"):
        assert service["spec"]["selector"].items() <= server.items()
        assert not service["spec"]["selector"].items() <= executor.items()
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    assert policies["spark-connect-server"]["podSelector"]["matchLabels"] == server
    assert policies["spark-connect-executors"]["podSelector"]["matchLabels"] == executor
    clients, executors = policies["spark-connect-server"]["ingress"]
    assert clients["from"][0]["podSelector"]["matchLabels"].items() <= VALUES["labels"].items()
    assert executors["from"][0]["podSelector"]["matchLabels"] == executor
    inner = policies["spark-connect-executors"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert inner.items() <= server.items() & executor.items()


def test_ports_agree():
    ports = ports_of(POD)
    for service in of_kind("Service"):
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    assert ports["driver"] == int(PROPERTIES["spark.driver.port"])
    assert ports["blocks"] == int(PROPERTIES["spark.driver.blockManager.port"])
    assert re.search(r"^global\n(?:    .*\n)*    maxconn \d+\n    fd-hard-limit \d+\n", PROXY), (
        "memory does not grow with the node"
    )
    bound = {int(port) for port in re.findall(r"^ +bind :(\d+)", PROXY, re.MULTILINE)}
    assert bound == {ports["grpc"], ports["health"]}
    address, port = (PROPERTIES[f"spark.connect.grpc.binding.{part}"] for part in ("address", "port"))
    assert (address, f"server local {address}:{port} " in PROXY) == ("127.0.0.1", True)
    assert int(port) not in ports.values(), "plain text stays in the pod"
    for probe in ("startupProbe", "livenessProbe"):
        assert f"/{address}/{port}" in POD["spec"]["containers"][0][probe]["exec"]["command"][-1]
    clients, executors = (
        {port["port"] for port in rule["ports"]}
        for rule in BY_NAME["NetworkPolicy", "spark-connect-server"]["spec"]["ingress"]
    )
    assert (clients, executors) == ({ports["grpc"]}, {ports["driver"], ports["blocks"]})
    (inner,) = BY_NAME["NetworkPolicy", "spark-connect-executors"]["spec"]["ingress"]
    assert [port["port"] for port in inner["ports"]] == [int(PROPERTIES["spark.blockManager.port"])]
    assert SERVICES["spark-connect"]["command"][-3].endswith(f"={ports['grpc']}"), "one port for clients everywhere"


def test_secrets_are_mounted_and_never_written_down():
    written = "".join(
        (FOLDER / name).read_text(encoding="utf-8") for name in ("spark-connect.yaml", "airflow-values.yaml")
    )
    assert of_kind("Secret") == []
    assert re.findall(r"secretKeyRef|authenticate\.secret |authenticate\.token", written) == []
    folder = PROPERTIES["spark.kubernetes.executor.secrets.spark-rpc"]
    assert PROPERTIES["spark.authenticate.secret.file"].startswith(f"{folder}/")
    mounts = {
        mount["mountPath"]: mount for container in POD["spec"]["containers"] for mount in container["volumeMounts"]
    }
    assert folder in mounts, "driver and executors read one file"
    assert mounts["/run/secrets/spark_connect_token"]["subPath"] == "token"
    assert re.search(r"ssl crt (\S+)/tls.crt", PROXY)[1] in mounts  # type: ignore[index]


def test_the_page_makes_every_secret_and_config_map_that_is_used():
    made = dict(re.findall(r"kubectl create secret (?:generic|tls) ([\w-]+)(.*(?:\\\n.*)*)", PAGE))
    assert set(made) == secrets_that_must_exist()
    assert "--from-file=token=" in made["spark-connect-token"]
    assert "--from-file=connection=/dev/stdin" in made["airflow-metadata"], "a file would keep the end of its line"
    assert f"--from-file={PROPERTIES['spark.authenticate.secret.file'].rpartition('/')[2]}=" in made["spark-rpc"]
    maps = set(re.findall(r"kubectl create configmap ([\w-]+)", PAGE))
    assert maps == {volume["configMap"]["name"] for volume in VALUES["volumes"] if "configMap" in volume}
    for entry in VALUES["env"]:
        for path in re.findall(r"/run/secrets/([\w-]+)/([\w.-]+)", entry["value"]):
            assert f"--from-file={path[1]}" in made[path[0]], entry["name"]


def test_no_container_may_do_more_than_it_must():
    assert VALUES["securityContexts"]["containers"] == POD["spec"]["containers"][0]["securityContext"]
    for spec in (POD["spec"], EXECUTOR["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert f"useradd --uid {spec['securityContext']['runAsUser']} " in DOCKERFILE
        assert {entry["securityContext"]["allowPrivilegeEscalation"] for entry in spec["containers"]} == {False}
        assert [entry["securityContext"]["capabilities"] for entry in spec["containers"]] == [{"drop": ["ALL"]}] * len(
            spec["containers"]
        )
    assert (VALUES["uid"], VALUES["gid"]) == (50000, 50000)


def test_programs_and_paths_are_those_of_the_image():
    roles = runpy.run_path(str(CHECKOUT / "docker/entrypoint.py"))["ROLES"]
    for container in POD["spec"]["containers"]:
        program = container["args"][0]
        assert program in roles or re.search(rf"apt-get install .*\b{program}\b", DOCKERFILE), program
    assert {"driver", "executor"} <= set(roles), "what Spark starts"
    entry = re.search(r"^ENTRYPOINT .*\"([^\"]+)\"\]$", DOCKERFILE, re.MULTILINE)
    assert entry is not None
    assert f"ln -s {entry[1]} /entrypoint" in DOCKERFILE, "probes of the chart call /entrypoint"
    file = CHECKOUT / "docker/entrypoint.py"
    assert file.stat().st_mode & 0o111
    assert file.read_text().startswith("#!/usr/bin/env python\n")
    home = re.search(r"SPARK_HOME=(\S+)", DOCKERFILE)
    assert home is not None
    assert f"ARG SPARK_JARS={home[1]}/jars\n" in DOCKERFILE
    dags = next(entry["value"] for entry in VALUES["env"] if entry["name"] == "AIRFLOW__CORE__DAGS_FOLDER")
    assert f"AIRFLOW__CORE__DAGS_FOLDER={dags} " in DOCKERFILE
    mounted = {mount["mountPath"] for mount in VALUES["volumeMounts"]}
    composed = {
        volume.split(":")[1] for volume in SERVICES["airflow-scheduler"]["volumes"] if volume.startswith("./include")
    }
    assert composed <= mounted


def test_every_setting_of_airflow_exists():
    known = settings_of_airflow()
    found = [re.fullmatch(r"AIRFLOW__([A-Z0-9_]+?)__([A-Z0-9_]+)", entry["name"]) for entry in VALUES["env"]]
    assert [each.groups() for each in found if each is not None and each.groups() not in known] == []
    assert sum(each is not None for each in found) > 5


ENTRY_POINT = """
import runpy, sys
from pathlib import Path

main = runpy.run_path(sys.argv[1])["main"]
main.__globals__.update(SECRETS=Path("secrets"), PRIVATE=Path("private"))
del sys.argv[1]
main()
"""


def start(folder: Path, secrets: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the entry point with *secrets* and nothing to become, in *folder*."""
    for name in ("secrets", "private"):
        (folder / name).mkdir()
    for name, text in secrets.items():
        (folder / "secrets" / name).write_text(text)
    command = [sys.executable, "-c", ENTRY_POINT, str(CHECKOUT / "docker/entrypoint.py"), "true"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_airflow_may_write_to_its_passwords(tmp_path, monkeypatch):
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    settings = {entry["name"]: entry["value"] for entry in VALUES["env"]}
    file = Path(settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    mounts = {mount["mountPath"]: mount for mount in VALUES["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in VALUES["volumes"]}
    assert "emptyDir" in volumes[mounts[str(file.parent)]["name"]]
    assert "readOnly" not in mounts[str(file.parent)]
    secret = mounts["/run/secrets/airflow_admin_password"]
    assert f"--from-file={secret['subPath']}=" in PAGE

    assert start(tmp_path, {"airflow_admin_password": "planted\n"}).returncode == 0
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(tmp_path / "private" / file.name))
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"])
    SimpleAuthManager().init()
    assert SimpleAuthManager.get_passwords() == {"admin": "planted"}


def test_nothing_starts_with_an_empty_secret(tmp_path):
    done = start(tmp_path, {"spark_connect_token": "\n"})
    assert done.returncode != 0
    assert "spark_connect_token is empty" in done.stderr


def test_airflow_reads_the_connections_of_the_page(tmp_path):
    settings = {entry["name"]: entry["value"] for entry in VALUES["env"]}
    module, _, name = settings["AIRFLOW__SECRETS__BACKEND"].rpartition(".")
    (file,) = json.loads(settings["AIRFLOW__SECRETS__BACKEND_KWARGS"]).values()
    (content,) = [
        block for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "sc://" in block
    ]
    path = tmp_path / Path(file).name
    path.write_text(content, encoding="utf-8")
    connection = getattr(importlib.import_module(module), name)(connections_file_path=str(path)).get_connection(
        "spark_default"
    )
    service = BY_NAME["Service", "spark-connect"]
    assert (connection.conn_type, connection.host) == ("spark_connect", f"sc://{service['metadata']['name']}")
    assert connection.port == service["spec"]["ports"][0]["port"]
    assert connection.password
    assert connection.extra_dejson == {"use_ssl": True}


def test_compose_has_the_same_server():
    command = SERVICES["spark-connect"]["command"]
    assert command[0] == POD["spec"]["containers"][0]["args"][0]
    assert COMPOSE["services"]["spark-connect"]["secrets"] == ["spark_secret"]
