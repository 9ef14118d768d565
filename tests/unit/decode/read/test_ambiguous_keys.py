"""Rows whose handle key several rows of the upstream may have, because the protocol can't carry it, are set aside."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import canal_json, open_protocol
from tests.support import debezium_messages as debezium
from tests.support import simple_protocol as simple
from tests.support.debezium_messages import TS, field
from tests.support.decoded_splits import LIMITS, decode, quarantine
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.identity import ambiguous_key, row_key
from ticdc_replay.changelog.files.writer import Located
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.decode.read.source_record import SourceRecord
from ticdc_replay.decode.read.source_rows import SourceRows
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.events import DdlEvent, LargeMessage, RowEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.large_messages.source import RowUnreadable, SourceReader
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.storage import open_store

AROUND = Window(TS - 1000, TS + 1000)
DATE, ZONED, TIME = "io.debezium.time.Date", "io.debezium.time.ZonedTimestamp", "io.debezium.time.MicroTime"
MILLIS = "io.debezium.time.Timestamp"
OF_BOTH = 12345678901234567000
"""What the wire has of the decimals 12345678901234567890 and …891."""
V = field("v", "string", tidb_type="varchar")


def in_order(messages: list[RawMessage]) -> list[RawMessage]:
    return [message._replace(offset=at) for at, message in enumerate(messages)]


def table_of(key: str) -> SchemaHistory:
    sql = f"CREATE TABLE `t` (`id` {key} NOT NULL PRIMARY KEY, `v` VARCHAR(20))"
    return SchemaHistory().with_ddls([DdlEvent(0, TS - (1 << 18), "s", "t", sql, "")])


def decoded(
    folder: Path, messages: list[RawMessage], key: str, **changefeed: Any
) -> tuple[dict[str, int], list[Any], list[Any]]:
    """The reasons of what is set aside, the keys and values of what is written, and the entries of the quarantine."""
    index, rows = decode(folder, [in_order(messages)], window=AROUND, history=table_of(key), **changefeed)
    written = [
        (row["_op"], (row["after"] or row["before"])["id"], (row["after"] or row["before"])["v"]) for row in rows
    ]
    return index.report.quarantine_reasons, written, quarantine(folder, index)


@pytest.mark.parametrize("step", [0, 1], ids=["in one transaction", "in several"])
def test_rows_that_share_a_decimal_on_the_wire_are_set_aside_each(tmp_path: Path, step: int) -> None:
    fields = [field("id", "double", optional=False, tidb_type="decimal"), V]
    messages = [
        debezium.row("c", after={"id": id_, "v": v}, fields=fields, ts=TS + at * step)
        for at, (id_, v) in enumerate(((7, "other"), (OF_BOTH, "…890"), (OF_BOTH, "…891")))
    ]
    messages.append(debezium.row("d", before={"id": OF_BOTH, "v": "…891"}, fields=fields, ts=TS + 3))
    reasons, written, entries = decoded(
        tmp_path, messages, "DECIMAL(20,0)", protocol="debezium", enable_tidb_extension=True
    )
    assert reasons == {"key_lossy": 3}
    assert [(op, int(id_), v) for op, id_, v in written] == [("insert", 7, "other")]
    assert [entry["offset"] for entry in entries] == [1, 2, 3]
    assert "after.id" in entries[0]["detail"]
    assert "before.id" in entries[2]["detail"]


def test_of_an_update_from_an_ambiguous_key_the_other_half_is_written(tmp_path: Path) -> None:
    fields = [field("id", "double", optional=False, tidb_type="decimal"), V]
    update = debezium.row(
        "u", before={"id": OF_BOTH, "v": "a"}, after={"id": 7, "v": "a"}, fields=fields, key={"id": 7}
    )
    reasons, written, _ = decoded(tmp_path, [update], "DECIMAL(20,0)", protocol="debezium", enable_tidb_extension=True)
    assert reasons == {"key_lossy": 1}
    assert [(op, int(id_)) for op, id_, _ in written] == [("insert", 7)]


def canal(key: str, at: int) -> RawMessage:
    value = canal_json.row(data={"id": key, "v": "x"}, types={"id": "varchar"}, ts=TS + at)
    return canal_json.message(value.replace("?\ufffd".encode(), b"?\\ufffd"))


def classic_open(key: str, at: int) -> RawMessage:
    columns = {"id": {"t": 15, "h": True, "f": 10, "v": key}, "v": {"t": 15, "f": 64, "v": "x"}}
    event_key, value = open_protocol.row(TS + at, new=columns)
    return open_protocol.message([(event_key, value.replace("?\ufffd".encode(), b"?\\ufffd"))], 0)


@pytest.mark.parametrize(
    ("build", "changefeed"),
    [
        (canal, {"protocol": "canal-json", "enable_tidb_extension": True}),
        (classic_open, {"protocol": "open-protocol"}),
    ],
    ids=["canal-json", "open-protocol"],
)
def test_text_keys_that_lost_bytes_are_set_aside_also_where_ordinary_ones_are_read_natively(
    tmp_path: Path, build: Any, changefeed: dict[str, Any]
) -> None:
    keys = [f"k{at}" for at in range(20)] + ["k?\ufffd", "k?\ufffd", "k\ufffd", "z"]
    messages = [build(key, at) for at, key in enumerate(keys)]
    reasons, written, entries = decoded(tmp_path, messages, "VARCHAR(20)", **changefeed)
    assert reasons == {"key_lossy": 2}
    assert [entry["offset"] for entry in entries] == [20, 21]
    assert {id_ for _, id_, _ in written} == {*keys} - {"k?\ufffd"}


def test_text_keys_of_simple_that_lost_bytes_are_set_aside(tmp_path: Path) -> None:
    schema = simple.table_schema(
        simple.column("id", "varchar", null=False, length=20), simple.column("v", "varchar", length=20)
    )
    rows = [simple.row("json", data={"id": id_, "v": "x"}) for id_ in ("a", "k?\ufffd", "k\ufffd")]
    values = [simple.bootstrap("json", schema), *(row.replace("?\ufffd".encode(), b"?\\ufffd") for row in rows)]
    messages = in_order([simple.message(value) for value in values])
    changefeed = {"protocol": "simple", "encoding_format": "json"}
    plain = codec_for(Changefeed(topic="topic", timezone="UTC", **changefeed), 1 << 20)
    index, written = decode(
        tmp_path,
        [messages],
        window=Window(simple.COMMIT_TS, simple.COMMIT_TS + 1),
        history=SchemaHistory().with_versions(schemas_in([messages], plain).definitions),
        options={"tables": ("shop.*",)},
        **changefeed,
    )
    assert index.report.quarantine_reasons == {"key_lossy": 1}
    assert {row["after"]["id"] for row in written} == {"a", "k\ufffd"}


def key_of(wire: Any, told: tuple[Any, ...] | None, defined: str | None) -> RowEvent:
    """A row of Debezium whose key is *wire*; *told* are the arguments of its field in the schema block."""
    known = SchemaHistory() if defined is None else table_of(defined)
    codec = codec_for(Changefeed(protocol="debezium", topic="topic", timezone="UTC"), 1 << 20, SchemaLookup(known))
    fields = None if told is None else [field("id", *told[:2], optional=False, **dict(told[2:])), field("v", "string")]
    for _ in range(3):  # the third time with compiled code
        (event,) = codec.decode(debezium.row(after={"id": wire, "v": "x"}, fields=fields))
        assert isinstance(event, RowEvent), event
    assert "after.id" in event.lossy
    return event


DECIMAL = ("double", "", ("tidb_type", "decimal"))


@pytest.mark.parametrize(
    ("wire", "told", "defined"),
    [
        (17532, ("int32", DATE), "DATE"),
        (0, ("int32", DATE), "DATE"),
        (1_500_000_000_000, ("int64", MILLIS), "DATETIME"),
        (1_500_000_000_123, ("int64", MILLIS), None),
        (1_500_000, ("int64", TIME), None),
        ("1970-01-01T00:00:00Z", ("string", ZONED), "TIMESTAMP"),
        (-5, ("int64", ""), None),
        ("abc", ("string", ""), None),
        ("1234567.12345678901", ("string", ""), None),
        (12.5, DECIMAL, None),
        (0.1, DECIMAL, None),
        (123456789012345, DECIMAL, None),
        (9007199254740991, DECIMAL, None),
        (0.30000000000000, ("double", ""), None),
        (1e15, ("double", ""), None),
        (-1_000_000, DECIMAL, None),
        (5, None, None),
        (-(1 << 63), None, None),
        ((1 << 64) - 1, None, None),
        ("abc", None, None),
        ("", None, None),
        ("20240131123456789012345", None, None),
        ("202401310000000000000000", None, None),
        ("999999999999999999999", None, None),
        ("1e+400", None, None),
        (1e300, None, None),
        (1e300, ("double", ""), None),
        (-1.5e-300, ("double", ""), None),
        (0.25, None, None),
        (True, None, None),
    ],
)
def test_an_ordinary_key_of_debezium_is_not_ambiguous(
    wire: Any, told: tuple[Any, ...] | None, defined: str | None
) -> None:
    row = key_of(wire, told, defined)
    assert ambiguous_key(row) is None
    assert row_key(row).hash is not None


@pytest.mark.parametrize(
    ("wire", "told", "defined"),
    [
        (OF_BOTH, DECIMAL, "DECIMAL(20,0)"),
        (9007199254740992, DECIMAL, "DECIMAL(16,0)"),
        (1234567890123456.8, DECIMAL, "DECIMAL(18,2)"),
        (OF_BOTH, DECIMAL, None),
        (9007199254740992, DECIMAL, None),
        (12345678901234500000, DECIMAL, None),
        (1234567890123456.8, DECIMAL, None),
        (OF_BOTH, ("double", ""), None),
        (0.12345678901234568, ("double", ""), None),
        (1e20, None, None),
        (123456789012345680000, None, None),
        (0.12345678901234568, None, None),
        (1.2345678901234568e-7, None, None),
    ],
)
def test_a_decimal_key_that_a_double_may_not_be_is_ambiguous(
    wire: Any, told: tuple[Any, ...] | None, defined: str | None
) -> None:
    row = key_of(wire, told, defined)
    assert "after.id" in (ambiguous_key(row) or "")
    assert row_key(row).hash is None


def test_a_row_with_an_ambiguous_key_is_not_read_again_from_the_source(tmp_path: Path) -> None:
    codec = codec_for(
        Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True), 1 << 20
    )
    message = canal("k?\ufffd", 0)
    (row,) = codec.decode(message)
    assert isinstance(row, RowEvent)
    reduced = row._replace(partial=True, large=LargeMessage.HANDLE_KEY_ONLY)
    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=tmp_path.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=codec.changefeed,
        tables=("s.*",),
        limits=LIMITS,
    )
    nowhere = SourceReader(Connection("source", "mysql", host="127.0.0.1", port=1), "UTC")
    source = SourceRows(job, nowhere, SourceRecord(open_store(job.artifacts), job.input_hash, ()))
    (answer,) = source.whole([Located(message, reduced)])
    assert isinstance(answer, RowUnreadable)
    assert answer.reason == "key_lossy"
