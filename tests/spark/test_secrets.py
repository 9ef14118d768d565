"""What Spark writes to its local folder while connections are on their way to executors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.waiting import PATIENCE_S
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.submit.properties import spark_properties

pytestmark = pytest.mark.spark

SECRET = "planted-Xk4w9"
SCRIPT = """
import json, os, sys
from pathlib import Path

from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.tasks import run_tasks

local, answer, secret = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3][::-1]
os.unlink = lambda name: None  # files that PySpark removes at once stay to be looked at
spark = open_session("secrets")
in_function = [secret, os.urandom(2 << 20)]  # more than PySpark keeps in the task itself


def work(task):
    return task == in_function[0]


outcomes = run_tasks(spark, work, [secret] * 4, "secrets")
files = {str(file): file.read_bytes() for file in local.rglob("*") if file.is_file()}
found = [name for name, content in files.items() if secret.encode() in content]
answer.write_text(json.dumps({"outcomes": outcomes, "bytes": sum(map(len, files.values())), "found": found}))
"""


def test_no_secret_is_in_a_file_while_tasks_travel(java_home: Path, tmp_path: Path) -> None:
    pipeline = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (tmp_path / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
    }
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
