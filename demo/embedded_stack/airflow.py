"""Airflow standalone: scheduler, DAG processor, API server with the UI, and triggerer."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError
from urllib.request import urlopen

from demo.embedded_stack import class_archive, java
from demo.embedded_stack.errors import StackError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server

COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
COMMAND_SECONDS = 600


class Airflow(Server):
    """All of Airflow on loopback, everybody an administrator, with LocalExecutor and metadata in PostgreSQL.

    *database_dsn* (``postgresql://…``) names an empty database or one of an earlier start. *environment* is added to what the
    servers and tasks see: connections, settings. OpenLineage events are appended to ``lineage_file``.

    Airflow has no setting for the address of its log servers: they listen on all interfaces.
    """

    name: ClassVar[str] = "airflow"
    start_seconds: ClassVar[float] = 600.0

    def __init__(
        self,
        folder: Path,
        *,
        dags_folder: Path,
        plugins_folder: Path,
        database_dsn: str,
        environment: Mapping[str, str],
        parallelism: int = 6,
    ) -> None:
        super().__init__(folder)
        self.url = ""
        """``http://host:port`` of the UI and the REST API, once started."""
        self.lineage_file = self.folder / "openlineage.jsonl"
        self._dags_folder = dags_folder.resolve()
        self._plugins_folder = plugins_folder.resolve()
        self._database_dsn = database_dsn
        self._added = dict(environment)
        self._parallelism = parallelism
        self._ports = (0, 0, 0)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the servers, and of any ``airflow`` command that is meant for them."""
        api_port, worker_log_port, trigger_log_port = self._ports
        java_home = java.find_home()
        programs = f"{Path(sys.executable).parent}:{java_home / 'bin'}"
        lineage = {"type": "file", "log_file_path": str(self.lineage_file), "append": True}
        return {
            **os.environ,
            "AIRFLOW_HOME": str(self.folder),
            "PATH": f"{programs}:{os.environ.get('PATH', '/usr/bin:/bin')}",  # the Spark provider finds spark-submit by PATH
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SUBMIT_OPTS": os.environ.get(
                "SPARK_SUBMIT_OPTS", " ".join((*java.SHORT_LIVED, *class_archive.options()))
            ),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags_folder),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self._plugins_folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(self._parallelism),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._database_dsn.replace(
                "postgresql://", "postgresql+psycopg2://", 1
            ),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(api_port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(self.folder / "bundles"),
            # a trigger that fires within seconds of the deferral fails the run otherwise (apache/airflow 71580, 72716)
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(lineage),
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "ticdc-replay-demo",
            **self._added,
        }

    def run(self, *arguments: str) -> str:
        """Run ``airflow`` with *arguments* and return what it printed. Raises StackError when it fails."""
        done = subprocess.run(
            [Path(sys.executable).with_name("airflow"), *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if done.returncode != 0:
            raise StackError(f"`airflow {' '.join(arguments)}` failed:\n{done.stdout[-3000:]}")
        return done.stdout

    def _launch(self) -> ManagedProcess:
        api_port, worker_log_port, trigger_log_port = free_ports(3)
        self._ports = (api_port, worker_log_port, trigger_log_port)
        self.url = f"http://{HOST}:{api_port}"
        return ManagedProcess(
            [Path(sys.executable).with_name("airflow"), "standalone"],
            log=self.log,
            env=self.environment,
            cwd=self.folder,
            whole_group=True,
            grace=30.0,
        )

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/api/v2/monitor/health", timeout=5.0) as response:
                health = json.load(response)
        except (URLError, OSError):
            return False
        return all((health.get(component) or {}).get("status") == "healthy" for component in COMPONENTS)
