"""Schema changes and watermarks that are Avro themselves (the test mode of Debezium-Avro) are read by the registry's schemas."""

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.support.avro_messages import confluent, encoded
from tests.support.debezium_messages import TS
from tests.support.schema_registry import Registry, serve
from tests.support.waiting import PATIENCE_S
from tests.unit.codecs.debezium.test_avro import DDL, SCHEMAS, WATERMARK, source
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.decode.plan.schema_pass import find_schemas
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.registry import open_registry
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import watermark_status

pytestmark = pytest.mark.integration

QUERY = "ALTER TABLE t ADD x INT"


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    return KafkaSettings.from_connection(Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}))


@pytest.fixture
def registry() -> Iterator[Connection]:
    with serve(Registry({number: json.dumps(schema) for number, schema in SCHEMAS.items()})) as running:
        yield Connection("registry", "http", host="127.0.0.1", port=running.port)


@pytest.fixture
def changefeed(kafka: Kafka, make_topic: Callable[..., str]) -> Changefeed:
    """A changefeed that sent a schema change and a watermark of the same TSO."""
    topic = make_topic(1, {"retention.ms": "-1"})
    ddl = {"source": source(), "ts_ms": 5, "databaseName": "s", "ddl": QUERY, "tableChanges": []}
    watermark = {"source": source(db="", table=""), "op": "m", "ts_ms": 5, "transaction": None}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for schema_id, value in ((DDL, ddl), (WATERMARK, watermark)):
        content = confluent(schema_id, encoded(SCHEMAS[schema_id], value))
        producer.produce(topic, content, b"k", timestamp=(TS >> 18) + 350)
    assert producer.flush(PATIENCE_S) == 0
    return Changefeed(
        protocol="debezium-avro",
        topic=topic,
        timezone="UTC",
        enable_tidb_extension=True,
        avro_enable_watermark=True,
    )


def test_the_schema_pass_finds_them(settings: KafkaSettings, registry: Connection, changefeed: Changefeed) -> None:
    found = find_schemas([OffsetRange(changefeed.topic, 0, 0, 2)], changefeed, settings, 1 << 20, registry)
    assert [event.query for event in found.ddl] == [QUERY]


def test_the_watermark_is_seen(settings: KafkaSettings, registry: Connection, changefeed: Changefeed) -> None:
    request = PinRequest(
        pipeline="p",
        changefeed=changefeed,
        window=Window(TS - (1000 << 18), TS),
        tables=("*.*",),
        start_ts=None,
        pre_roll_ms=0,
        clock_skew_ms=0,
        lag_ms=0,
        claim_check_margin_ms=0,
        list_store=False,
        unproven="stop",
        decompressed_max_bytes=1 << 20,
        schemas=SchemaHistory(),
        writer_schemas=open_registry(registry),
    )
    status = watermark_status(request, settings)
    assert (status.reached, status.resolved_ts) == (True, TS)
