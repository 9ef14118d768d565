"""Where secrets stay: not in files while they are on their way to executors, nor in what a job says or leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from demo.embedded_stack import jars
from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.submit.properties import spark_properties

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
    lake, events = tmp_path / "lake", tmp_path / "events"
    (lake if is_there else tmp_path).mkdir(exist_ok=True)
    events.mkdir()
    target = {
        "name": "lake",
        "type": "iceberg",
        "catalog": "lakehouse",
        "connection": "catalog",
        "ledger": (tmp_path / "ledger").as_uri(),
    }
    conf = {
        "spark.jars": ",".join(map(str, jars.fetch(jars.LAKE).glob("*.jar"))),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline_of(tmp_path, target) | {"spark": {"conf": conf}}))
    changelog = Changelog(tmp_path / "changelog", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(changelog.job(target)))
    settings = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{lake}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": lake.as_uri(),
        **CATALOG_SECRETS,
    }
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT, tmp_path / "shop.yaml", job.as_uri()],
        env={**os.environ, "JAVA_HOME": str(java_home)},
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert (done.returncode == 0) is is_there, said
    left = {str(path): path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    event_log = "".join(text for path, text in left.items() if path.startswith(str(events)))
    if is_there:
        assert "spark.sql.catalog.lakehouse.token" in event_log, "the settings are there, with their values hidden"
    assert any(path.endswith("state.json") for path in left) is is_there
    for secret in CATALOG_SECRETS.values():
        assert secret not in said
        assert [path for path, text in left.items() if secret in text] == []
