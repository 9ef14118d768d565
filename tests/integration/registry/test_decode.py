"""A decode fetches the schemas that rows were written with, and tells which they were."""

import json
from hashlib import sha256

import pytest

from tests.avro_messages import EXTENSION, column, confluent, encoded, extension, record
from tests.decoded_captures import LIMITS
from tests.decoded_splits import quarantine as quarantined
from tests.schema_registry import Registry, serve
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.decode.assembly import assemble
from ticdc_replay.decode.split import SplitDecoder
from ticdc_replay.decode.tasks import Attempt, Split
from ticdc_replay.dispatch.rules import Dispatch, Rule
from ticdc_replay.dispatch.topic_expression import TopicExpression
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import AuthenticationError, PermanentError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest

pytestmark = pytest.mark.integration

ID = column("id", "int", "INT")
KEY = record(ID)
VALUE = record(ID, column("v", "string", "TEXT", null=0), *EXTENSION)
OTHER_KEY = record(ID, table="order_items")
OTHER = record(ID, column("v", "string", "TEXT", null=0), *EXTENSION, table="order_items")
TSO = 470_000_000_000_000_000
WINDOW = Window(TSO, TSO + 100)
NO_RULES = Dispatch()
BY_TABLE = Dispatch((Rule(topic=TopicExpression("{schema}_{table}")),))


@pytest.fixture
def registry():
    schemas = {1: KEY, 2: VALUE, 3: "not used", 11: OTHER_KEY, 12: OTHER}
    with serve(Registry({number: json.dumps(schema) for number, schema in schemas.items()})) as running:
        yield running


def decoder(folder, registry, dispatch=NO_RULES, **fields):
    connection = Connection("registry", "http", host="127.0.0.1", port=registry.port, **fields)
    return SplitDecoder(
        Split(0, (OffsetRange("topic", 0, 0, 3),)),
        Attempt("attempt"),
        job_of(folder, dispatch),
        WINDOW,
        SchemaHistory(),
        Connections({connection.conn_id: connection}),
    )


def job_of(folder, dispatch=NO_RULES):
    return DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=folder.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        schema_registry_connection="registry",
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(
            protocol="avro", topic="topic", timezone="UTC", enable_tidb_extension=True, dispatch=dispatch
        ),
        tables=("s.*",),
        limits=LIMITS,
    )


def messages(topic="topic", key_id=1):
    for number in range(3):
        body = encoded(VALUE, {"id": number, "v": "a", **extension("c", TSO + number)})
        key = confluent(key_id, encoded(KEY, {"id": number}))
        yield RawMessage(topic, 0, number, 0, key, confluent(key_id + 1, body))


def test_the_schemas_that_were_used_are_in_the_result(tmp_path, registry):
    decoding = decoder(tmp_path, registry)
    decoding.add(list(messages()))
    result = decoding.finish()
    assert result.events.written == 3
    hashes = {str(number): sha256(registry.schemas[number].encode()).hexdigest() for number in (1, 2)}
    assert result.writer_schemas == hashes
    assert sorted(registry.requests) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_registry_that_refuses_stops_the_decode_instead_of_filling_the_quarantine(tmp_path, registry):
    registry.basic("reader", "right")
    with pytest.raises(AuthenticationError):
        decoder(tmp_path, registry, login="reader", password="wrong").add(list(messages()))


def test_a_schema_that_is_not_there_puts_its_rows_into_quarantine(tmp_path, registry):
    del registry.schemas[2]
    decoding = decoder(tmp_path, registry)
    decoding.add(list(messages()))
    result = decoding.finish()
    assert result.quarantine_reasons == {"schema_unknown": 3}
    assert len(registry.requests) == 1


def test_an_id_that_the_registry_can_t_look_up_is_one_message_s_trouble(tmp_path, registry):
    good = list(messages())
    bad = [good[0]._replace(offset=9, value=confluent(number, good[0].value[5:])) for number in (7, 1 << 31, 5)]
    registry.schemas[5] = "x" * (9 << 20)
    registry.answers = [(404, "<html>Not Found</html>")]
    decoding = decoder(tmp_path, registry)
    decoding.add([bad[0], *good, *bad[1:]])
    result = decoding.finish()
    assert result.events.written == 3
    assert result.quarantine_reasons == {"schema_unknown": 3}


@pytest.mark.parametrize("order", [("s_t", "s_order_items"), ("s_order_items", "s_t")])
def test_a_message_with_the_schema_of_another_topic_s_table_is_the_only_one_that_is_set_aside(
    tmp_path, registry, order
):
    sent = {"s_t": list(messages("s_t")), "s_order_items": list(messages("s_order_items", 11))}
    foreign = next(messages("s_t", 11))._replace(offset=3)
    sent["s_t"].append(foreign)
    results = []
    for topic in order:
        decoding = decoder(tmp_path, registry, BY_TABLE)
        decoding.add(sent[topic])
        results.append(decoding.finish())
    manifest = Manifest(pipeline="p", changefeed_hash="", window=WINDOW, grade="unproven", topics=(), pinned_at_ms=0)
    index = assemble(job_of(tmp_path, BY_TABLE), manifest, SchemaHistory(), results, [])
    assert {str(table.schema.name): table.rows for table in index.tables} == {"s.t": 3, "s.order_items": 3}
    assert index.report.quarantine_reasons == {"wrong_topic": 1}
    (entry,) = quarantined(tmp_path, index)
    assert (entry["topic"], entry["offset"], entry["value"]) == ("s_t", 3, foreign.value)
    assert "send s.order_items to topic s_order_items and no table that Avro calls so to s_t" in entry["detail"]


def test_rows_of_one_name_in_two_topics_of_such_tables_are_refused(tmp_path, registry):
    """Whose they are nothing tells: ``order-items`` and ``order_items`` have one name in Avro."""
    results = []
    for topic in ("s_order_items", "s_order-items"):
        decoding = decoder(tmp_path, registry, BY_TABLE)
        decoding.add(list(messages(topic, 11)))
        results.append(decoding.finish())
        assert results[-1].quarantine_reasons == {}
    manifest = Manifest(pipeline="p", changefeed_hash="", window=WINDOW, grade="unproven", topics=(), pinned_at_ms=0)
    with pytest.raises(PermanentError, match=r"s\.order_items has rows in topics s_order-items, s_order_items"):
        assemble(job_of(tmp_path, BY_TABLE), manifest, SchemaHistory(), results, [])
