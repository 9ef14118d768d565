"""Rows of Simple whose table version is defined only behind the pinned range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.decode.plan.look_ahead import LOOK_AHEAD_MS, recorded_by
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.integration]

BEGIN_MS = 1_770_000_000_000
VERSION = tso.from_ms(BEGIN_MS - 1000)


def row(number: int) -> dict[str, Any]:
    head = {"version": 1, "database": "shop", "table": "t", "tableID": 1, "type": "INSERT"}
    times = {"commitTs": tso.from_ms(BEGIN_MS + number), "buildTs": 1, "schemaVersion": VERSION}
    return {**head, **times, "data": {"id": str(number), "v": "7"}}


def column(name: str, nullable: bool) -> dict[str, Any]:
    type_ = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
    return {"name": name, "dataType": type_, "nullable": nullable, "default": None}


BOOTSTRAP = {
    "version": 1,
    "type": "BOOTSTRAP",
    "commitTs": 0,
    "buildTs": 1,
    "tableSchema": {
        "schema": "shop",
        "table": "t",
        "tableID": 1,
        "version": VERSION,
        "columns": [column("id", False), column("v", True)],
        "indexes": [{"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}],
    },
}


def decode(
    spark: SparkSession,
    kafka: Kafka,
    topic: str,
    messages: list[dict[str, Any]],
    folder: Path,
    end: int,
    last_ms: int | None = None,
) -> ChangelogIndex:
    """The changelog of the first *end* of *messages*.

    They are sent one minute of record time apart; *last_ms* is another time of the last record of the range.
    """
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for at, message in enumerate(messages):
        time_ms = BEGIN_MS + at * 60_000 if at != end - 1 or last_ms is None else last_ms
        producer.produce(topic, json.dumps(message).encode(), partition=0, timestamp=time_ms)
    assert producer.flush(PATIENCE_S) == 0
    connection = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
    with Offsets(KafkaSettings.from_connection(connection)) as offsets:
        topic_id = offsets.topics([topic])[topic].topic_id
    pin = PartitionPin(OffsetRange(topic, 0, 0, end), live=True, resolved_ts=None, start_margin_ms=None)
    manifest = Manifest(
        pipeline="p",
        changefeed_hash="",
        window=Window(1, tso.from_ms(BEGIN_MS + 60_000)),
        grade="proven",
        topics=(TopicPin(topic, topic_id, (pin,)),),
        pinned_at_ms=0,
    )
    artifacts = f"file://{folder}"
    name = f"manifests/{manifest.input_hash}.json"
    open_store(artifacts).put_once(name, canonical.encode(manifest))
    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=artifacts,
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest=name,
        input_hash=manifest.input_hash,
        changefeed=Changefeed(protocol="simple", topic=topic, timezone="UTC"),
        tables=("*.*",),
        limits=Limits(**LimitsSection().model_dump()),
    )
    return run_decode(SparkRunner(spark), job, Connections({"kafka": connection}))


def test_a_bootstrap_that_follows_the_range_defines_its_rows(
    spark: SparkSession, kafka: Kafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    messages = [row(1), row(2), row(3), BOOTSTRAP]
    index = decode(spark, kafka, make_topic(1, {"retention.ms": "-1"}), messages, tmp_path, end=2)
    assert (index.report.events.written, index.report.events.quarantined) == (2, 0)
    assert [(found.name.table, found.valid_from) for found in index.definitions] == [("t", VERSION)]
    assert index.tables[0].schema.handle_key == ("id",)
    kept = list(open_store(f"file://{tmp_path}").list(f"used_schemas/{index.input_hash}/"))
    assert len(kept) == 1, "a later run of this input gets the same definitions"


@pytest.mark.parametrize("last_ms", [-(1 << 62), -LOOK_AHEAD_MS - 1, -1, 1, 1 << 62])
def test_the_search_does_not_trust_the_time_of_the_last_record(
    spark: SparkSession, kafka: Kafka, make_topic: Callable[..., str], tmp_path: Path, last_ms: int
) -> None:
    topic = make_topic(1, {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)})
    unknown = {**row(2), "schemaVersion": VERSION + 1}
    messages = [row(1), unknown, row(3), BOOTSTRAP]
    index = decode(spark, kafka, topic, messages, tmp_path, end=2, last_ms=last_ms)
    assert (index.report.events.written, index.report.quarantine_reasons) == (1, {"schema_unknown": 1})


def test_the_search_ends_where_many_records_are_too_late_and_not_at_a_single_one() -> None:
    def sent(*times_ms: int) -> list[RawMessage]:
        return [RawMessage("t", 0, 0, time_ms, None, b"") for time_ms in times_ms]

    batches = [sent(5, 1 << 62), sent(11), sent(10, -(1 << 62)), sent(*range(11, 111)), sent(7)]
    searched = [[message.timestamp_ms for message in messages] for messages in recorded_by(10, iter(batches))]
    assert searched == [[5], [], [10, -(1 << 62)], []]


def test_a_bootstrap_too_far_behind_leaves_the_rows_in_quarantine_and_the_others_are_used(
    spark: SparkSession, kafka: Kafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    other = {**row(2), "schemaVersion": VERSION + 1}
    late = {**BOOTSTRAP, "tableSchema": {**BOOTSTRAP["tableSchema"], "version": VERSION + 1}}  # type: ignore[dict-item]
    messages = [BOOTSTRAP, row(1), other, *[row(number) for number in range(3, 40)], late]
    index = decode(spark, kafka, make_topic(1, {"retention.ms": "-1"}), messages, tmp_path, end=3)
    assert index.report.events.written == 1
    assert index.report.quarantine_reasons == {"schema_unknown": 1}
