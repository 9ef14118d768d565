"""A Spark standalone cluster: a master and workers that share nothing but the loopback interface with who submits to it."""

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.error import URLError
from urllib.request import urlopen

from demo.embedded_stack import class_archive, java
from demo.embedded_stack.errors import MissingToolError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.secret_file import write_secret
from demo.embedded_stack.server import Server

DEFAULTS = """\
spark.authenticate            true
spark.authenticate.secret     {secret}
spark.network.crypto.enabled  true
spark.master.rest.enabled     false
"""


class _Daemon(Server):
    """One JVM of the cluster; Spark's configuration comes from *configuration*, and from the caller's environment nothing."""

    def __init__(self, folder: Path, configuration: Path) -> None:
        super().__init__(folder)
        self._configuration = configuration
        self._web_port = 0

    def _run(self, main_class: str, *arguments: str) -> ManagedProcess:
        home = spark_home()
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "JAVA_HOME": str(java.find_home()),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self._configuration),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self._made("local")),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        command = [str(home / "bin" / "spark-class"), main_class, "--host", HOST, *arguments]
        return ManagedProcess(command, log=self.log, env=environment, cwd=self._made("home"), grace=10.0)

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def state(self) -> Any:
        """What the daemon's page tells as JSON. Raises OSError where it does not answer."""
        with urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=3.0) as answer:
            return json.load(answer)


class SparkMaster(_Daemon):
    """The master; ``url`` is what applications are submitted to, once it is started."""

    name: ClassVar[str] = "spark-master"

    def __init__(self, folder: Path, configuration: Path) -> None:
        super().__init__(folder, configuration)
        self.url = ""

    def _launch(self) -> ManagedProcess:
        port, self._web_port = free_ports(2)
        self.url = f"spark://{HOST}:{port}"
        ports = ("--port", str(port), "--webui-port", str(self._web_port))
        return self._run("org.apache.spark.deploy.master.Master", *ports)

    def _is_ready(self) -> bool:
        with contextlib.suppress(URLError, OSError):
            return bool(self.state()["status"] == "ALIVE")
        return False


class SparkWorker(_Daemon):
    """A worker of *master*; executors get work folders of their own below ``work``."""

    name: ClassVar[str] = "spark-worker"

    def __init__(self, folder: Path, configuration: Path, master: SparkMaster, *, cores: int, memory: str) -> None:
        super().__init__(folder, configuration)
        self.work = self.folder / "work"
        self._master = master
        self._size = ("--cores", str(cores), "--memory", memory)

    def _launch(self) -> ManagedProcess:
        (self._web_port,) = free_ports(1)
        place = ("--webui-port", str(self._web_port), "--work-dir", str(self._made("work")))
        return self._run("org.apache.spark.deploy.worker.Worker", *self._size, *place, self._master.url)

    def _is_ready(self) -> bool:
        with contextlib.suppress(URLError, OSError):
            port = str(self._web_port)
            known = [worker["webuiaddress"] for worker in self._master.state()["workers"] if worker["state"] == "ALIVE"]
            return any(address.endswith(f":{port}") for address in known)
        return False


class SparkCluster:
    """A master and *workers* workers of *cores* each, below *folder*, with authentication and encryption on.

    Executors inherit nothing from who starts the cluster: their Python and its packages are what an application brings.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1500m") -> None:
        self.folder = folder.resolve()
        self.configuration = self.folder / "conf"
        """SPARK_CONF_DIR of everything that talks to the cluster: it holds the secret that the cluster asks for."""
        self.secret = secrets.token_urlsafe(24)
        self.master = SparkMaster(self.folder / "master", self.configuration)
        self.workers = tuple(
            SparkWorker(self.folder / f"worker{number}", self.configuration, self.master, cores=cores, memory=memory)
            for number in range(workers)
        )

    def start(self) -> Self:
        """Start the master, then all workers at the same time. What was started is stopped where one fails."""
        self.configuration.mkdir(parents=True, exist_ok=True)
        write_secret(self.configuration / "spark-defaults.conf", DEFAULTS.format(secret=self.secret))
        try:
            self.master.start()
            with ThreadPoolExecutor(len(self.workers)) as pool:
                for start in [pool.submit(worker.start) for worker in self.workers]:
                    start.result()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all; no executor is left when this returns."""
        for server in (*self.workers, self.master):
            server.stop()

    def environment(self) -> Mapping[str, str]:
        """What ``spark-submit`` needs beside the caller's environment to reach the cluster."""
        return {"SPARK_CONF_DIR": str(self.configuration), "SPARK_LOCAL_IP": HOST, "JAVA_HOME": str(java.find_home())}

    def executor_files(self) -> Iterator[Path]:
        """All files that executors were given or left, of all applications so far."""
        for worker in self.workers:
            yield from (path for path in worker.work.rglob("*") if path.is_file())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def spark_home() -> Path:
    """The folder of the pip package of Spark. Raises MissingToolError where it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingToolError("pyspark is not installed in this environment: pip install 'ticdc-replay[spark]'")
    return Path(spec.origin).parent


class SparkConnect(Server):
    """A Spark Connect server, whose executors are in its own JVM (*master*) or those of *cluster*.

    Python workers inherit nothing from who starts it but what is in *environment*. *properties* are of Spark, on top; they may be
    secret.
    """

    name: ClassVar[str] = "spark-connect"

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[2]",
        cluster: SparkCluster | None = None,
        environment: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.port = 0
        self._local_master = master
        self._cluster = cluster
        self._environment = dict(environment or {})
        self._properties = dict(properties or {})

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"sc://{HOST}:{self.port}"

    def _launch(self) -> ManagedProcess:
        (self.port,) = free_ports(1)
        home = spark_home()
        local, configuration = self.folder / "local", self.folder / "conf"
        local.mkdir(exist_ok=True)
        configuration.mkdir(exist_ok=True)
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "JAVA_HOME": str(java.find_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_CONF_DIR": str(configuration),
            "SPARK_SUBMIT_OPTS": " ".join((*java.SHORT_LIVED, *class_archive.options())),
            **self._environment,
        }
        properties = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": "false",
            "spark.io.encryption.enabled": "true",
            **self._properties,
        }
        master = self._local_master if self._cluster is None else self._cluster.master.url
        defaults = "" if self._cluster is None else DEFAULTS.format(secret=self._cluster.secret)
        defaults += "".join(f"{name} {value}\n" for name, value in properties.items())
        write_secret(configuration / "spark-defaults.conf", defaults)
        command = [str(home / "bin" / "spark-submit"), "--master", master]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        return ManagedProcess(command, log=self.log, env=environment, cwd=local, grace=10.0)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0):
            return True
        return False
