"""Windows of Avro from Kafka to the changelog, with messages of another program among them."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.support.avro_messages import EXTENSION, column, confluent, encoded, extension, record
from tests.support.replayed_windows import pipeline_for, replay
from tests.support.schema_registry import Registry, serve
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext

pytestmark = pytest.mark.integration

START_MS = 1_760_000_000_000
ID = column("id", "int", "INT")
TABLES = {1: "orders", 3: "lines"}
SCHEMAS = {
    number + part: record(ID, *more, table=table, namespace="default.my_shop")
    for number, table in TABLES.items()
    for part, more in enumerate(((), EXTENSION))
}


def at(second: int) -> int:
    return tso.from_ms(START_MS + second * 1000)


def test_a_message_that_names_another_topic_s_table_is_got_past(
    kafka: Kafka, producer: Producer, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The rule means ``my_shop`` alone; the default topic may have a table of ``my-shop``, which Avro calls so, too."""
    name = f"feed-{uuid.uuid4().hex[:8]}"
    main, own = (make_topic(1, {"retention.ms": "-1"}, each) for each in (name, f"{name}-orders"))

    def send(topic: str, second: int, schema_id: int, row_id: int | None = None) -> None:
        cells = {"id": second if row_id is None else row_id}
        key = confluent(schema_id, encoded(SCHEMAS[schema_id], cells))
        row = encoded(SCHEMAS[schema_id + 1], {**cells, **extension("c", at(second))})
        producer.produce(topic, confluent(schema_id + 1, row), key, partition=0, timestamp=START_MS + second * 1000)

    for second in range(10):
        send(own, second, 1)
        send(main, second, 3)
    send(main, 5, 1, row_id=77)
    send(main, 100, 3)
    send(own, 100, 1)
    assert producer.flush(PATIENCE_S) == 0
    dispatchers = f'[sink]\ndispatchers = [{{matcher = ["my_shop.orders"], topic = "{name}-orders"}}]'
    uri = f"kafka://b:9092/{name}?protocol=avro&enable-tidb-extension=true&avro-include-before-value=true"
    sections = {
        "changefeed": {"sink_uri": uri, "timezone": "UTC", "config": dispatchers},
        "connections": {"kafka": "kafka", "schema_registry": "registry"},
        "tables": ["my_shop.*"],
        "window": {"clock_skew_seconds": 1, "pre_roll_seconds": 0},
        "policies": {"quarantine": "continue", "unproven": "allow"},
    }
    with serve(Registry({number: json.dumps(schema) for number, schema in SCHEMAS.items()})) as peer:

        def pipeline(**more: object) -> ReplayContext:
            made = pipeline_for(tmp_path, kafka.bootstrap, name, **sections, **more)
            registry = Connection("registry", "http", host="127.0.0.1", port=peer.port)
            return ReplayContext(made.loaded, Connections({"kafka": made.connections["kafka"], "registry": registry}))

        window = Window(at(0), at(50))
        with (
            pipeline() as context,
            pytest.raises(PermanentError, match=f"my_shop.orders has rows in topics {name}, ") as told,
        ):
            replay(context, window)
        assert f"- 1 in {main}: {main}[0]@10\n" in str(told.value)
        with pipeline(set_aside=[f"{main}[0]@10"]) as context:
            index = replay(context, window)
    assert {str(table.schema.name): table.rows for table in index.tables} == {"my_shop.lines": 10, "my_shop.orders": 10}
    assert index.report.quarantine_reasons == {"set_aside": 1}
