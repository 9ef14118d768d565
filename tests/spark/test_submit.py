"""A job that the command line submits, in a Spark of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.changelogs import Changelog, put, table
from tests.support.waiting import PATIENCE_S
from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.submit.properties import job_properties

pytestmark = pytest.mark.spark


def pipeline_with(folder: Path, **sections: object) -> dict[str, Any]:
    """A pipeline into Parquet files, which is also written as *folder*/shop.yaml."""
    pipeline = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (folder / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        **sections,
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    return pipeline


def properties_of(log: Path) -> dict[str, str]:
    """What Spark itself says that its properties are, in the event log of the only application."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (update,) = [event for event in events if event["Event"] == "SparkListenerEnvironmentUpdate"]
    found: dict[str, str] = update["Spark Properties"]
    return found


def test_the_pipelines_spark_conf_reaches_spark(
    java_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    events = tmp_path / "events"
    events.mkdir()
    wanted = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.executorEnv.GREETING": "words with = and spaces",
    }
    pipeline = pipeline_with(tmp_path, spark={"conf": wanted})
    changelog = Changelog(tmp_path / "changelog", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(changelog.job(dict(pipeline["targets"][0]))))

    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        submit(job.as_uri(), context, "local[1]")

    (log,) = events.iterdir()
    found = properties_of(log)
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["spark.ui.enabled"] == "false"
    assert list((tmp_path / "lake").glob("pipeline/fold/**/*.parquet"))


def test_a_driver_gets_no_secret_of_the_environment_it_is_submitted_in(
    java_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = pipeline_with(tmp_path)
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(Changelog(tmp_path / "changelog", 0, 100).job(dict(pipeline["targets"][0]))))
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    for name in ("AIRFLOW_CONN_WAREHOUSE", "AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY", "SOME_TOKEN"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("AWS_REGION", "planted-region")
    # Spark's own place for what else a driver needs, here also for the test's eyes.
    conf, seen = tmp_path / "conf", tmp_path / "seen"
    conf.mkdir()
    (conf / "spark-env.sh").write_text("export NEEDED=named\n", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "if 'TICDC_REPLAY_CONNECTIONS_FILE' in os.environ:\n"
        "    for pid in (os.getpid(), os.getppid()):\n"
        f"        Path({str(seen)!r} + str(pid)).write_bytes(Path(f'/proc/{{pid}}/environ').read_bytes())\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        submit(job.as_uri(), context, "local[1]")
    found = [
        dict(entry.split("=", 1) for entry in file.read_text().split("\0") if entry) for file in tmp_path.glob("seen*")
    ]
    # What finds Spark's home runs before spark-env.sh is read.
    assert sum("NEEDED" in environment for environment in found) >= 2, "the driver and its JVM were looked at"
    for environment in found:
        assert environment["AWS_REGION"] == "planted-region"
        assert "planted" not in environment.values()


def test_a_python_of_executors_in_spark_defaults_leaves_the_driver_with_the_one_that_submits(
    java_home: Path, tmp_path: Path
) -> None:
    pipeline_with(tmp_path)
    executors = tmp_path / "bare" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=PATIENCE_S)
    (tmp_path / "spark-defaults.conf").write_text(f"spark.pyspark.python {executors}\n", encoding="utf-8")
    (tmp_path / "job.py").write_text("import os, sys; print(sys.executable, os.environ['PYSPARK_PYTHON'])", "utf-8")
    properties = job_properties(load_pipeline(tmp_path / "shop.yaml").pipeline, "decode")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("spark-submit"), "--master", "local[1]"),
            *(f"--conf={name}={value}" for name, value in properties.items()),
            tmp_path / "job.py",
        ],
        env={
            **os.environ,
            "JAVA_HOME": str(java_home),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(tmp_path),
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == [sys.executable, str(executors)]
