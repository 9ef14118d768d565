#!/usr/bin/env python
"""Entry point of the image: puts mounted secrets into the private files that programs read, then becomes the command.

Secrets come as files below /run/secrets, and only to the services that need them. What is written here goes to a tmpfs that only
this user can enter: never to a command line or a layer of the image. The environment of one process has two: of a Spark Connect
server its token, and of an executor the secret that it shares with its driver, because Spark reads them nowhere else.

A command is a program with its arguments, or one of ROLES. ``driver`` and ``executor`` are what Spark on Kubernetes starts, with
the variables that its pods have (Spark's ``resource-managers/kubernetes``: ``entrypoint.sh``, ``BasicExecutorFeatureStep``,
``BasicDriverFeatureStep``).
"""

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

SECRETS = Path("/run/secrets")
PRIVATE = Path("/run/ticdc-replay")
WORK = Path("/opt/spark-work")
"""Where Spark's roles run: they write to their working folder."""
SPARK_DEFAULTS = Path(__file__).resolve().with_name("spark-defaults.conf")
AIRFLOW_DATABASE = "postgresql+psycopg2://airflow:{password}@metadata-db:5432/airflow"


def main() -> None:
    os.umask(0o077)
    if secret := read("spark_secret"):
        folder = PRIVATE / "spark"
        folder.mkdir(exist_ok=True)
        text = f"{SPARK_DEFAULTS.read_text()}spark.authenticate.secret {secret}\n"
        (folder / "spark-defaults.conf").write_text(text)
    if password := read("airflow_db_password"):
        address = AIRFLOW_DATABASE.format(password=quote(password, safe=""))
        (PRIVATE / "airflow-database").write_text(address)
    if password := read("airflow_admin_password"):
        (PRIVATE / "airflow-passwords.json").write_text(json.dumps({"admin": password}))
    command = sys.argv[1:]
    if token := read("spark_connect_token"):
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    if role := ROLES.get(command[0]):
        os.chdir(WORK)
        command = role(os.environ, command[1:])
    os.execvp(command[0], command)


def driver(environ: Mapping[str, str], arguments: list[str]) -> list[str]:
    """The driver of an application in cluster mode: spark-submit, with the *arguments* of its pod."""
    bind = f"spark.driver.bindAddress={environ['SPARK_DRIVER_BIND_ADDRESS']}"
    return ["spark-submit", "--conf", bind, "--deploy-mode", "client", *arguments]


def executor(environ: Mapping[str, str], arguments: list[str]) -> list[str]:
    """An executor, as the variables of its pod say."""
    options = sorted(
        (name for name in environ if name.startswith("SPARK_JAVA_OPT_")), key=lambda name: int(name.rpartition("_")[2])
    )
    if file := secret_file([environ[name] for name in options]):
        # Spark 4.1.3 reads the file only where it knows its master, and an executor does not know it yet.
        os.environ["_SPARK_AUTH_SECRET"] = base64.b64encode(Path(file).read_bytes()).decode()
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    places = [environ.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_CLASSPATH")]
    return [
        f"{environ['JAVA_HOME']}/bin/java" if environ.get("JAVA_HOME") else "java",
        *(environ[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", ":".join([*filter(None, places), f"{environ['SPARK_HOME']}/jars/*"])),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environ["SPARK_DRIVER_URL"]),
        *("--executor-id", environ["SPARK_EXECUTOR_ID"]),
        *("--cores", environ["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environ["SPARK_APPLICATION_ID"]),
        *("--hostname", environ["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environ["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environ["SPARK_EXECUTOR_POD_NAME"]),
        *arguments,
    ]


def secret_file(options: list[str]) -> str | None:
    """The mounted file of the secret that driver and executors share, as the *options* of an executor's JVM name it."""
    named = dict(option.removeprefix("-D").split("=", 1) for option in options if option.startswith("-Dspark."))
    return named.get("spark.authenticate.secret.executor.file") or named.get("spark.authenticate.secret.file")


def spark_connect(environ: Mapping[str, str], arguments: list[str]) -> list[str]:
    """A Spark Connect server; *arguments* are options of spark-submit, such as ``--master``."""
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    return ["spark-submit", "--class", server, *arguments, "spark-internal"]


ROLES: dict[str, Callable[[Mapping[str, str], list[str]], list[str]]] = {
    "driver": driver,
    "executor": executor,
    "spark-connect": spark_connect,
}


def read(name: str) -> str | None:
    """The secret *name*, None where this service does not get it. Ends the process where it is empty."""
    path = SECRETS / name
    if not path.exists():
        return None
    if not (text := path.read_text().strip()):
        sys.exit(f"entry point: the secret {path} is empty; nothing is started without it")
    return text


if __name__ == "__main__":
    main()
