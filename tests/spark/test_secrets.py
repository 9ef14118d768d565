"""Where secrets stay: not in files while they are on their way to executors, nor in what a job says or leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import boto3
import pytest
import yaml

from demo.embedded_stack import jars
from demo.embedded_stack.s3 import MotoServer
from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.submit.envelope import put_envelope
from ticdc_replay.submit.environment import driver_environment
from ticdc_replay.submit.properties import spark_properties
from ticdc_replay.submit.submitter import Submission

pytestmark = pytest.mark.spark

SECRET = "planted-Xk4w9"
SCRIPT = """
import json, os, sys
from pathlib import Path

from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.tasks import SparkRunner

local, answer, secret = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3][::-1]
os.unlink = lambda name: None  # files that PySpark removes at once stay to be looked at
in_function = [secret, os.urandom(2 << 20)]  # more than PySpark keeps in the task itself


def work(task):
    return task == in_function[0]


with open_session("secrets") as spark:
    outcomes = SparkRunner(spark).run(work, [secret] * 4, "secrets")
files = {str(file): file.read_bytes() for file in local.rglob("*") if file.is_file()}
found = [name for name, content in files.items() if secret.encode() in content]
answer.write_text(json.dumps({"outcomes": outcomes, "bytes": sum(map(len, files.values())), "found": found}))
"""


def pipeline_of(folder: Path, target: dict[str, str]) -> dict[str, object]:
    return {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (folder / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": [target],
    }


def test_no_secret_is_in_a_file_while_tasks_travel(java_home: Path, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()})
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    script, local, answer = tmp_path / "job.py", tmp_path / "local", tmp_path / "answer.json"
    script.write_text(SCRIPT, encoding="utf-8")
    local.mkdir()
    properties = spark_properties(load_pipeline(tmp_path / "shop.yaml").pipeline) | {"spark.local.dir": str(local)}
    subprocess.run(
        [
            Path(sys.executable).with_name("spark-submit"),
            *("--master", "local[2]"),
            *(f"--conf={name}={value}" for name, value in properties.items()),
            *(script, local, answer, SECRET[::-1]),
        ],
        env={
            **os.environ,
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        timeout=PATIENCE_S,
        check=True,
    )
    seen = json.loads(answer.read_text(encoding="utf-8"))
    assert seen["outcomes"] == [True] * 4
    assert seen["bytes"] > 2 << 20, "the function was in a file, though unreadable"
    assert seen["found"] == []


CATALOG_SECRETS = {
    "jdbc.password": "planted-Jw3q8",
    "credential": "planted-client:Cm5v1",
    "token": "planted-Tz7n2",
    "s3.secret-access-key": "planted-Sk6b4",
}
SUBMIT = """
import json, sys
from pathlib import Path

from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.stages.context import ReplayContext

catalog = Connection("catalog", "generic", extra=json.load(sys.stdin))
with ReplayContext(load_pipeline(Path(sys.argv[1])), Connections({"catalog": catalog})) as context:
    submit(sys.argv[2], context, "local[1]")
"""


@pytest.mark.parametrize("is_there", [True, False], ids=["loaded", "catalog away"])
def test_no_secret_of_a_catalog_is_in_what_a_load_says_or_leaves(
    java_home: Path, tmp_path: Path, is_there: bool
) -> None:
    """Spark's event log has the settings of a session."""
    (tmp_path / "lake" if is_there else tmp_path).mkdir(exist_ok=True)
    job = load_into_a_lake(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT, tmp_path / "shop.yaml", job],
        env={**os.environ, "JAVA_HOME": str(java_home)},
        input=json.dumps(catalog_of(tmp_path / "lake")),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode == 0) is is_there, done.stdout + done.stderr
    assert (tmp_path / "ledger").exists() is is_there
    require_hidden(tmp_path, done.stdout + done.stderr, is_loaded=is_there)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("variables", marks=pytest.mark.nightly),
        pytest.param("secrets manager", marks=pytest.mark.nightly),
        pytest.param("folder", marks=pytest.mark.nightly),
        "envelope",
    ],
)
def test_a_driver_elsewhere_finds_its_connections_and_says_and_leaves_no_secret_of_them(
    java_home: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, way: str
) -> None:
    """As a driver in a pod or a container does: nothing of its submitter is there but what the way brings."""
    (tmp_path / "lake").mkdir()
    job, elsewhere = load_into_a_lake(tmp_path), tmp_path_factory.mktemp("elsewhere")
    connection = Connection("catalog", "generic", extra=catalog_of(tmp_path / "lake"))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({"catalog": connection})) as context:
        submission = Submission(job, context.connections, context.declared)
    with WAYS[way](elsewhere, submission) as variables:
        done = subprocess.run(
            [
                *(Path(sys.executable).with_name("spark-submit"), "--master", "local[1]"),
                *(f"--conf={name}={value}" for name, value in submission.properties.items()),
                *(submission.script, *submission.arguments),
            ],
            env={
                **driver_environment(os.environ, Connections()),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "JAVA_HOME": str(java_home),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert submission.file.outcome(submission.attempt).counts["upserted"] == 1
    require_hidden(tmp_path, done.stdout, is_loaded=True)


def as_text(submission: Submission) -> str:
    connection = submission.connections["catalog"]
    return json.dumps({"conn_type": connection.conn_type, "extra": connection.extra})


@contextmanager
def in_variables(_folder: Path, submission: Submission) -> Iterator[dict[str, str]]:
    yield {"TICDC_REPLAY_CONNECTIONS": "backends", "AIRFLOW_CONN_CATALOG": as_text(submission)}


@contextmanager
def in_secrets_manager(folder: Path, submission: Submission) -> Iterator[dict[str, str]]:
    """Airflow's own backend of AWS, without Airflow's database."""
    access = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "planted-Aw5k1", "AWS_DEFAULT_REGION": "us-east-1"}
    with MotoServer(folder) as server:
        boto3.client(
            "secretsmanager",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="planted-Aw5k1",
        ).create_secret(Name="airflow/connections/catalog", SecretString=as_text(submission))
        yield access | {
            "TICDC_REPLAY_CONNECTIONS": "backends",
            "AIRFLOW__SECRETS__BACKEND": "airflow.providers.amazon.aws.secrets.secrets_manager.SecretsManagerBackend",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"endpoint_url": server.endpoint}),
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://nobody:planted-Db2q0@127.0.0.1:9/none",
        }


@contextmanager
def in_a_folder(folder: Path, submission: Submission) -> Iterator[dict[str, str]]:
    (folder / "catalog").touch(0o600)
    (folder / "catalog").write_text(as_text(submission), encoding="utf-8")
    yield {"TICDC_REPLAY_CONNECTIONS": f"folder:{folder}"}


@contextmanager
def in_an_envelope(folder: Path, submission: Submission) -> Iterator[dict[str, str]]:
    """Its key is mounted, as Kubernetes does with a secret."""
    key = put_envelope(submission.file, submission.attempt, submission.connections)
    (folder / "key").write_bytes(key.encode())
    yield {"TICDC_REPLAY_CONNECTIONS": f"envelope:{folder / 'key'}"}


WAYS: dict[str, Callable[[Path, Submission], AbstractContextManager[dict[str, str]]]] = {
    "variables": in_variables,
    "secrets manager": in_secrets_manager,
    "folder": in_a_folder,
    "envelope": in_an_envelope,
}


def load_into_a_lake(folder: Path) -> str:
    """The URI of the spec of a load into *folder*/lake; Spark writes an event log."""
    (folder / "events").mkdir()
    target = {
        "name": "lake",
        "type": "iceberg",
        "catalog": "lakehouse",
        "connection": "catalog",
        "ledger": (folder / "ledger").as_uri(),
    }
    conf = {
        "spark.jars": ",".join(map(str, jars.fetch(jars.LAKE).glob("*.jar"))),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(pipeline_of(folder, target) | {"spark": {"conf": conf}}))
    changelog = Changelog(folder / "changelog", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = folder / "job.json"
    job.write_bytes(canonical.encode(changelog.job(target)))
    return job.as_uri()


def catalog_of(lake: Path) -> dict[str, str]:
    """The extra of the connection of the catalog in *lake*."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{lake}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": lake.as_uri(),
        **CATALOG_SECRETS,
    }


def require_hidden(folder: Path, said: str, *, is_loaded: bool) -> None:
    """No planted secret is in what a job *said*, nor in any file below *folder*."""
    left = {str(path): path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()}
    event_log = "".join(text for path, text in left.items() if path.startswith(str(folder / "events")))
    if is_loaded:
        assert "spark.sql.catalog.lakehouse.token" in event_log, "the settings are there, with their values hidden"
    for secret in ("planted-", *CATALOG_SECRETS.values()):
        assert secret not in said
        assert [path for path, text in left.items() if secret in text] == []
