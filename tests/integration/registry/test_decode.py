"""A decode fetches the schemas that rows were written with, and tells which they were."""

import json
from hashlib import sha256

import pytest

from tests.support.avro_messages import EXTENSION, column, confluent, encoded, extension, record
from tests.support.decoded_captures import LIMITS
from tests.support.decoded_splits import quarantine as quarantined
from tests.support.schema_registry import Registry, serve
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.plan.shared_names import refuse_shared_names
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import AuthenticationError, PermanentError
from ticdc_replay.domain.messages import EventPlace, OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.storage import open_store

pytestmark = pytest.mark.integration

ID = column("id", "int", "INT")
KEY = record(ID)
VALUE = record(ID, column("v", "string", "TEXT", null=0), *EXTENSION)
OTHER_KEY = record(ID, table="order_items")
OTHER = record(ID, column("v", "string", "TEXT", null=0), *EXTENSION, table="order_items")
TSO = 470_000_000_000_000_000
WINDOW = Window(TSO, TSO + 100)
NO_RULES = Dispatch()
BY_TABLE = Dispatch((DispatchRule(topic=TopicExpression("{schema}_{table}")),))


@pytest.fixture
def registry():
    schemas = {1: KEY, 2: VALUE, 3: "not used", 11: OTHER_KEY, 12: OTHER}
    with serve(Registry({number: json.dumps(schema) for number, schema in schemas.items()})) as running:
        yield running


def decoder(folder, registry, dispatch=NO_RULES, *, set_aside=(), window=WINDOW, **fields):
    connection = Connection("registry", "http", host="127.0.0.1", port=registry.port, **fields)
    context = SplitContext(
        Attempt("attempt"),
        job_of(folder, dispatch, set_aside),
        window,
        SchemaHistory(),
        Connections({connection.conn_id: connection}),
    )
    return SplitDecoder(Split(0, (OffsetRange("topic", 0, 0, 3),)), context)


def job_of(folder, dispatch=NO_RULES, set_aside=()):
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
        set_aside=tuple(map(EventPlace.parse, set_aside)),
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
    index = decoded(tmp_path, registry, [sent[topic] for topic in order], BY_TABLE)
    assert rows_of(index) == {"s.t": 3, "s.order_items": 3}
    assert index.report.quarantine_reasons == {"wrong_topic": 1}
    (entry,) = quarantined(tmp_path, index)
    assert (entry["topic"], entry["offset"], entry["value"]) == ("s_t", 3, foreign.value)
    assert "send s.order_items to topic s_order_items and no table that Avro calls so to s_t" in entry["detail"]


def decoded(folder, registry, sent, dispatch, set_aside=(), window=WINDOW):
    """What a driver makes of *sent*, the messages of each topic."""
    results = []
    for part in sent:
        decoding = decoder(folder, registry, dispatch, set_aside=set_aside, window=window)
        decoding.add(part)
        results.append(decoding.finish())
    job = job_of(folder, dispatch, set_aside)
    filesystem, base = open_store(job.artifacts).arrow_filesystem()
    refuse_shared_names(job.changefeed, results, filesystem, f"{base}/{job.changelog_root}")
    grade = "offset" if window is None else "unproven"
    manifest = Manifest(pipeline="p", changefeed_hash="", window=WINDOW, grade=grade, topics=(), pinned_at_ms=0)
    return assemble(job, manifest, SchemaHistory(), results, [])


def rows_of(index):
    return {str(table.schema.name): table.rows for table in index.tables}


def test_rows_of_one_name_in_two_topics_of_such_tables_are_refused_and_named_where_they_are_few(tmp_path, registry):
    """Whose they are nothing tells: ``order-items`` and ``order_items`` have one name in Avro."""
    few = [message._replace(offset=7 + at) for at, message in enumerate(messages("s_order-items", 11))][:2]
    sent = [list(messages("s_order_items", 11)), few]
    with pytest.raises(PermanentError, match=r"s\.order_items has rows in topics s_order-items, s_order_items") as told:
        decoded(tmp_path, registry, sent, BY_TABLE)
    assert "- 2 in s_order-items: s_order-items[0]@7, s_order-items[0]@8" in str(told.value)
    assert "- 3 in s_order_items: such as s_order_items[0]@0" in str(told.value)
    index = decoded(tmp_path, registry, sent, BY_TABLE, ("s_order-items[0]@7", "s_order-items[0]@8"))
    assert rows_of(index) == {"s.order_items": 3}
    assert index.report.quarantine_reasons == {"set_aside": 2}


def test_the_error_names_some_of_many_rows(tmp_path, registry):
    row = next(messages("s_order-items", 11))
    sent = [list(messages("s_order_items", 11)) * 40, [row._replace(offset=at) for at in range(30)]]
    sent[0] = [message._replace(offset=at) for at, message in enumerate(sent[0])]
    with pytest.raises(PermanentError, match="and 10 more") as told:
        decoded(tmp_path, registry, sent, BY_TABLE, window=None)
    assert str(told.value).count("s_order-items[0]@") == 20


def test_one_message_under_a_name_that_may_be_another_table_s_is_got_past(tmp_path, registry):
    """The default topic has tables that no rule means: the rule means ``order_items`` alone, and there may be ``order-items``."""
    rule = DispatchRule(matcher=TableFilter(("s.order_items",)), topic=TopicExpression("items"))
    foreign = next(messages("topic", 11))._replace(offset=3)
    sent = [list(messages("items", 11)), [*messages("topic"), foreign]]
    with pytest.raises(PermanentError, match=r"- 1 in topic: topic\[0\]@3\n"):
        decoded(tmp_path, registry, sent, Dispatch((rule,)))
    index = decoded(tmp_path, registry, sent, Dispatch((rule,)), ("topic[0]@3",))
    assert rows_of(index) == {"s.t": 3, "s.order_items": 3}


class TestScatteredTables:
    """Tables whose rows have no order in a window by offset, and messages that only name one."""

    TO_AUDIT = TopicExpression("audit")
    RULES = Dispatch(
        (
            DispatchRule(matcher=TableFilter(("s.order*",)), partition="ts", topic=TO_AUDIT),
            DispatchRule(matcher=TableFilter(("s.t",)), topic=TopicExpression("t")),
        )
    )

    def test_stop_a_window_and_name_a_message(self, tmp_path, registry):
        with pytest.raises(PermanentError, match=r"audit\[0\]@0: s\.order_items: .* scatter .*set_aside"):
            decoded(tmp_path, registry, [list(messages("audit", 11))], self.RULES, window=None)

    def test_are_set_aside_in_the_topic_of_another(self, tmp_path, registry):
        sent = [[next(messages("t", 11)), *(each._replace(offset=1 + each.offset) for each in messages("t"))]]
        index = decoded(tmp_path, registry, sent, self.RULES, window=None)
        assert (rows_of(index), index.report.quarantine_reasons) == ({"s.t": 3}, {"wrong_topic": 1})

    def test_are_set_aside_by_name(self, tmp_path, registry):
        rule = DispatchRule(matcher=TableFilter(("s.order*",)), partition="ts")
        sent = [[next(messages("topic", 11)), *(each._replace(offset=1 + each.offset) for each in messages())]]
        with pytest.raises(PermanentError, match="scatter"):
            decoded(tmp_path, registry, sent, Dispatch((rule,)), window=None)
        index = decoded(tmp_path, registry, sent, Dispatch((rule,)), ("topic[0]@0",), window=None)
        assert (rows_of(index), index.report.quarantine_reasons) == ({"s.t": 3}, {"set_aside": 1})


@pytest.mark.parametrize("status", [400, 403, 422])
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_schema_that_the_registry_refuses_stops_until_its_message_is_named(tmp_path, registry, status, part):
    registry.refused[99] = (status, '{"error_code": 40301, "message": "no permission"}')
    good = list(messages())
    bad = good[0]._replace(offset=7, **{part: confluent(99, getattr(good[0], part)[5:])})
    with pytest.raises(PermanentError, match=r"^topic\[0\]@7: .*schema 99: HTTP .*set_aside"):
        decoded(tmp_path, registry, [[*good, bad]], NO_RULES)
    index = decoded(tmp_path, registry, [[*good, bad]], NO_RULES, ("topic[0]@7",))
    assert (rows_of(index), index.report.quarantine_reasons) == ({"s.t": 3}, {"set_aside": 1})
    (entry,) = quarantined(tmp_path, index)
    assert (entry["offset"], entry["value"], entry["ordinal"]) == (7, bad.value, None)
    assert "schema 99: HTTP" in entry["detail"]
