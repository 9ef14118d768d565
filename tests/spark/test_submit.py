"""A job that the command line submits, in a Spark of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.changelogs import Changelog, put, table
from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.stages.context import ReplayContext

pytestmark = pytest.mark.spark


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
    pipeline = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (tmp_path / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "spark": {"conf": wanted},
        "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    changelog = Changelog(tmp_path / "changelog", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = tmp_path / "job.json"
    job.write_bytes(canonical.encode(changelog.job(dict(pipeline["targets"][0]))))

    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        submit("load", job.as_uri(), context, "local[1]")

    (log,) = events.iterdir()
    found = properties_of(log)
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["spark.ui.enabled"] == "false"
    assert list((tmp_path / "lake").glob("pipeline/fold/**/*.parquet"))
