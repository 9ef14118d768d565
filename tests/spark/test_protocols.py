"""A capture of each protocol, from Kafka through pinning and Spark into PostgreSQL, its claim-check objects among it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.capture_sets import CaptureSets, Committed
from tests.expected import expected_events
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import assert_same_rows, last_rows
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.load import run_load
from ticdc_replay.stages.check import check
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.pin import pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.integration]

CAPTURES = (
    Committed("open", "new", "open-claim-check-lz4"),
    Committed("canal-json", "classic", "canal-json-claim-check-raw-snappy"),
    Committed("simple-json", "new", "simple-json-claim-check"),
    Committed("simple-avro", "classic", "simple-avro-claim-check-raw"),
)

PIPELINE = """\
name: large
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
  config: |
    [sink.kafka-config.large-message-handle]
{large}
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
schedule: {{start: "2026-01-01T00:00:00Z"}}
window: {{list_claim_check_store: false}}
policies: {{unproven: allow}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
"""


def publish(kafka: Kafka, topic: str, capture: Capture) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for message in capture.messages():
        place = {"partition": message.partition, "timestamp": message.timestamp_ms}
        producer.produce(topic, message.value, message.key, on_delivery=delivered, **place)
    assert producer.flush(30) == 0


def delivered(error: KafkaError | None, _message: Message) -> None:
    assert error is None


def pipeline_of(capture: Capture, topic: str, folder: Path) -> str:
    """The pipeline of *capture*'s changefeed, on *topic*, with its claim-check objects in their folder."""
    meta = json.loads((capture.folder / "meta.json").read_bytes())
    sink_uri = f"kafka://broker:9092/{topic}?{urlsplit(meta['sink_uri']).query}"
    large = meta["replica_config"]["large-message-handle"] | {"claim-check-storage-uri": capture.objects}
    lines = "\n".join(f"    {name} = {json.dumps(value)}" for name, value in large.items())
    return PIPELINE.format(sink_uri=sink_uri, large=lines, folder=folder)


@pytest.mark.parametrize("which", CAPTURES, ids=str)
def test_a_capture_ends_in_the_mirror_as_the_upstream_had_it(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: Callable[..., str],
    make_database: Callable[[], str],
    captures: CaptureSets,
    tmp_path: Path,
    which: Committed,
) -> None:
    capture = Capture(captures.of(which))
    partitions = max(message.partition for message in capture.messages()) + 1
    topic = make_topic(partitions, {"retention.ms": "-1"})
    publish(kafka, topic, capture)
    mirror = Mirror(make_database())
    (tmp_path / "large.yaml").write_text(pipeline_of(capture, topic, tmp_path))
    connections = Connections(
        {
            "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
            "target": mirror.connections["target"],
        }
    )
    events = expected_events(capture.folder)
    times = [event["commit_ts"] for event in events]
    window = Window(min(times) - tso.from_ms(1000), max(times) + 1)
    with ReplayContext(load_pipeline(tmp_path / "large.yaml"), connections) as context:
        decode = spec(context, write_decode_job(context, pin(context, window)).uri)
        assert isinstance(decode, jobspec.DecodeJob)
        index = run_decode(spark, decode, context.connections)
        assert index.report.quarantine_reasons == {}
        assert index.report.events.claim_checks_resolved > 0
        check(context, index.run_hash)
        load = spec(context, write_load_job(context, index.run_hash, "mirror").uri)
        assert isinstance(load, jobspec.LoadJob)
        run_load(spark, load, context.connections)
    for table, rows in last_rows(events).items():
        assert_same_rows(mirror, table, list(rows.values()))


def spec(context: ReplayContext, uri: str) -> object:
    return jobspec.decode(context.artifacts.get(uri.removeprefix(context.artifacts_uri + "/")))
