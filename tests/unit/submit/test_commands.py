"""The commands of drivers that run without spark-submit, and what is too much for a driver without Spark."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import (
    PROCESSES_VARIABLE,
    SPARK_CONF_VARIABLE,
    SPARK_CONNECTION_VARIABLE,
    DecodeJob,
    Limits,
)
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.submit.commands import connect_environment, local_command, local_environment, refused_locally
from ticdc_replay.submit.submitter import Submission


def declared(folder: Path, **more: Any) -> Pipeline:
    document = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": folder.as_uri(),
        "schedule": {"start": "2026-03-02T00:00:00Z"},
        "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        **more,
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(document))
    return load_pipeline(folder / "shop.yaml").pipeline


def test_a_pipeline_says_how_many_processes(tmp_path: Path) -> None:
    assert local_environment({"A": "b"}, declared(tmp_path, local={"processes": 3})) == {
        "A": "b",
        PROCESSES_VARIABLE: "3",
    }
    assert local_environment({"A": "b"}, declared(tmp_path)) == {"A": "b"}


@pytest.mark.parametrize(
    ("runner", "messages", "refused"), [("local", 10, False), ("local", 11, True), ("spark", 11, False)]
)
def test_more_messages_than_declared_need_spark(tmp_path: Path, runner: str, messages: int, refused: bool) -> None:
    pipeline = declared(tmp_path, runner=runner, local={"max_messages": 10})
    found = list(refused_locally(pipeline, messages))
    assert bool(found) is refused
    if refused:
        assert "11 messages" in found[0]
        assert "local.max_messages" in found[0]


def test_a_window_of_too_many_messages_starts_no_driver(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, runner="local", local={"max_messages": 10})
    pinned = PartitionPin(range=OffsetRange("shop", 0, 5, 16), live=True, resolved_ts=100, start_margin_ms=None)
    topic = TopicPin(topic="shop", topic_id="t", partitions=(pinned,))
    manifest = Manifest(
        pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(topic,), pinned_at_ms=1
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "m.json").write_bytes(canonical.encode(manifest))
    job = DecodeJob(
        library_version="1",
        pipeline="shop",
        artifacts=(tmp_path / "shop").as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="m.json",
        input_hash=manifest.input_hash,
        changefeed=load_pipeline(tmp_path / "shop.yaml").changefeed,
        tables=("*.*",),
        limits=Limits(**pipeline.limits.model_dump()),
    )
    (tmp_path / "job.json").write_bytes(canonical.encode(job))
    connections = Connections({"kafka": Connection("kafka", "kafka")})
    submission = Submission((tmp_path / "job.json").as_uri(), connections, pipeline)
    with pytest.raises(ConfigError, match="decode: 11 messages are too many for runner: local"):
        local_command(submission, pipeline)
    wider = declared(tmp_path, runner="local", local={"max_messages": 11})
    assert local_command(submission, wider)[1:3] == ["-m", "ticdc_replay.drivers"]


def test_a_driver_of_spark_connect_learns_its_server_and_the_pipeline_s_properties(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, spark={"conf": {"spark.executor.memory": "4g"}})
    server = Connection("spark", "spark_connect", "sc://spark.example", password="token")
    found = connect_environment({"A": "b"}, server, pipeline)
    assert found == {
        "A": "b",
        SPARK_CONNECTION_VARIABLE: "spark",
        SPARK_CONF_VARIABLE: '{"spark.executor.memory":"4g"}',
    }
