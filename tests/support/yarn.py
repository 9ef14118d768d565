"""A YARN of one node on loopback: Apache Hadoop's own ResourceManager and NodeManager, from Maven Central."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

from demo.embedded_stack import jars, java
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server
from demo.embedded_stack.spark import spark_home

VERSION = "3.4.2"
JARS = jars.JarSet(
    f"yarn-{VERSION}",
    tuple(
        ("org.apache.hadoop", f"hadoop-yarn-server-{part}", VERSION)
        for part in ("resourcemanager", "nodemanager", "timelineservice")
    ),
    Path(__file__).parents[1] / "data" / f"yarn-{VERSION}.sha256",
)
"""Some 85 MB. Hadoop's ``hadoop-client-minicluster`` is half of that, but its REST interface answers in another shape."""
_LOG = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
_SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}


class _Daemon(Server):
    main_class: ClassVar[str]

    def __init__(self, folder: Path, configuration: Path) -> None:
        super().__init__(folder)
        self._configuration = configuration

    def _launch(self) -> ManagedProcess:
        command = [
            str(java.find_home() / "bin" / "java"),
            *("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            *("-cp", f"{self._configuration}:{jars.fetch(JARS, _report)}/*", self.main_class),
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "JAVA_HOME": str(java.find_home())}
        return ManagedProcess(command, log=self.log, env=environment, cwd=self.folder, grace=10.0)


class ResourceManager(_Daemon):
    """The manager; ``address`` is that of its web interface."""

    name: ClassVar[str] = "resourcemanager"
    main_class = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"

    def __init__(self, folder: Path, configuration: Path, address: str) -> None:
        super().__init__(folder, configuration)
        self.address = address

    def ask(self, path: str) -> Any:
        """The answer of the REST interface. Raises OSError where it does not answer."""
        with urlopen(f"http://{self.address}/ws/v1/cluster/{path}", timeout=5.0) as answer:
            return json.load(answer)

    def _is_ready(self) -> bool:
        try:
            return bool(self.ask("info")["clusterInfo"]["haState"] == "ACTIVE")
        except (URLError, OSError):
            return False


class NodeManager(_Daemon):
    """The node of *manager*."""

    name: ClassVar[str] = "nodemanager"
    main_class = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"

    def __init__(self, folder: Path, configuration: Path, manager: ResourceManager) -> None:
        super().__init__(folder, configuration)
        self._manager = manager

    def _is_ready(self) -> bool:
        return bool(self._manager.ask("metrics")["clusterMetrics"]["activeNodes"] == 1)


class Yarn:
    """A running YARN."""

    def __init__(self, folder: Path, manager: ResourceManager) -> None:
        self.folder = folder
        self.manager = manager

    @property
    def configuration(self) -> Path:
        """For ``HADOOP_CONF_DIR`` of who submits."""
        return self.folder / "conf"

    @property
    def address(self) -> str:
        """Of the ResourceManager's web interface."""
        return self.manager.address

    @property
    def properties(self) -> dict[str, str]:
        """What Spark needs on one node of a few cores: its jars are there, and so is this Python, with what it imports."""
        path = os.pathsep.join(path for path in sys.path if path)
        return {
            "spark.yarn.appMasterEnv.PYTHONPATH": path,
            "spark.executorEnv.PYTHONPATH": path,
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.pyspark.python": sys.executable,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
        }

    def applications(self) -> list[dict[str, Any]]:
        """All that were ever submitted, as the REST interface has them."""
        return list((self.manager.ask("apps")["apps"] or {}).get("app", []))

    def written(self) -> Iterator[tuple[Path, str]]:
        """Every file of the cluster that is there now, as text: logs, staging, what the node keeps; no jars."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.suffix not in (".jar", ".zip"):
                yield path, path.read_bytes().decode(errors="replace")


@contextmanager
def running(folder: Path) -> Iterator[Yarn]:
    """YARN, its files and logs below *folder*."""
    configuration = folder / "conf"
    configuration.mkdir(parents=True)
    ports = [f"{HOST}:{port}" for port in free_ports(8)]
    manager_address, scheduler, tracker, admin, web, node, localizer, node_web = ports
    _write(
        configuration / "yarn-site.xml",
        {
            "yarn.resourcemanager.address": manager_address,
            "yarn.resourcemanager.scheduler.address": scheduler,
            "yarn.resourcemanager.resource-tracker.address": tracker,
            "yarn.resourcemanager.admin.address": admin,
            "yarn.resourcemanager.webapp.address": web,
            "yarn.nodemanager.address": node,
            "yarn.nodemanager.localizer.address": localizer,
            "yarn.nodemanager.webapp.address": node_web,
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # Else nothing starts on a disk that is used by more than 90 %.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH",
        },
    )
    _write(configuration / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
    _write(configuration / "capacity-scheduler.xml", _SCHEDULER)
    (configuration / "log4j.properties").write_text(_LOG, encoding="utf-8")
    with (
        ResourceManager(folder / "manager", configuration, web) as manager,
        NodeManager(folder / "node", configuration, manager),
    ):
        yield Yarn(folder, manager)


def _write(file: Path, settings: Mapping[str, str]) -> None:
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>{properties}</configuration>", encoding="utf-8")


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
