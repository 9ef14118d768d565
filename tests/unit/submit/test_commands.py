"""The commands of drivers that run without spark-submit, and what is too much for a driver without Spark."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.changelogs import Changelog
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import PROCESSES_VARIABLE, DecodeJob, Limits
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.submit.commands import connect_command, local_command, local_environment, refused_locally
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


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lake_tables_are_not_loaded_over_spark_connect(tmp_path: Path, kind: str) -> None:
    place = {"delta": {"path": "t"}, "iceberg": {"catalog": "lake", "settings": {"type": "hadoop", "warehouse": "t"}}}[
        kind
    ]
    places = {key: (tmp_path / "t").as_uri() if value == "t" else value for key, value in place.items()}
    target = {"name": "lake", "type": kind, "ledger": (tmp_path / "ledger").as_uri(), **places}
    if kind == "iceberg":
        target["settings"] = {"type": "hadoop", "warehouse": (tmp_path / "t").as_uri()}
    (tmp_path / "job.json").write_bytes(canonical.encode(Changelog(tmp_path / "changelog", 0, 100).job(target)))
    server = Connection("spark", "spark_connect", "sc://spark.example")
    submission = Submission((tmp_path / "job.json").as_uri(), Connections(), declared(tmp_path), spark=server)
    with pytest.raises(ConfigError, match=r"load: lake tables are not written over Spark Connect.*target lake"):
        connect_command(submission, declared(tmp_path))


def test_properties_that_are_not_sent_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = declared(tmp_path, spark={"conf": {"spark.executor.memory": "4g"}})
    target = {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}
    (tmp_path / "job.json").write_bytes(canonical.encode(Changelog(tmp_path / "changelog", 0, 100).job(target)))
    submission = Submission((tmp_path / "job.json").as_uri(), Connections(), pipeline)
    command = connect_command(submission, pipeline)
    assert command[1].endswith("spark/jobs/load.py")
    assert "spark.conf is not sent over Spark Connect" in caplog.text
