"""Rows, deletes and test-mode messages of Avro."""

import json
from uuid import UUID
from zlib import crc32

import pytest

from tests.support.avro_messages import (
    CHECKSUM,
    EXTENSION,
    before,
    column,
    confluent,
    decimal,
    encoded,
    extension,
    glue,
    record,
)
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.codecs.avro.codec import AvroCodec
from ticdc_replay.codecs.checksum import RowChecksum
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.events import DdlEvent, Operation, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import FixedWriterSchemas, SchemaLookup

TS = 470_606_801_663_950_850
ID = column("id", "int", "INT")
COLUMNS = (ID, column("v", "string", "TEXT", null=0))
KEY, PLAIN, EXTENDED = 1, 2, 3
SCHEMAS = {KEY: record(ID), PLAIN: record(*COLUMNS), EXTENDED: record(*COLUMNS, *EXTENSION)}


def codec(schemas=SCHEMAS, max_bytes=1000, **options):
    changefeed = Changefeed(protocol="avro", topic="topic", timezone="Asia/Shanghai", **options)
    texts = {
        str(number): document if isinstance(document, str) else json.dumps(document)
        for number, document in schemas.items()
    }
    return AvroCodec(changefeed, max_bytes, SchemaLookup(writer_schemas=FixedWriterSchemas(texts)))


def only(codec, key, value):
    """The one event of a message."""
    (event,) = codec.decode(RawMessage("topic", 0, 0, 0, key, value))
    return event


def framed(number, values, schemas=SCHEMAS):
    return confluent(number, encoded(schemas[number], values))


def key(number=7):
    return framed(KEY, {"id": number})


def row(operation="c", ts=TS, number=7, v="text"):
    return framed(EXTENDED, {"id": number, "v": v, **extension(operation, ts)})


def cells(image):
    return {
        column.name: column.neutral((value,))[0]
        for column, value in zip(image.shape.columns, image.values, strict=True)
    }


@pytest.mark.parametrize(("letter", "operation"), [("c", Operation.INSERT), ("u", Operation.UPDATE)])
def test_the_extension_tells_operation_and_commit_ts(letter, operation):
    event = only(codec(), key(), row(letter))
    assert (event.operation, event.commit_ts, event.schema, event.table) == (operation, TS, "s", "t")
    assert cells(event.after) == {"id": 7, "v": "text"}
    assert event.after.shape.handle_key == ("id",)
    assert (event.before, event.partial, event.damage, event.lossy) == (None, False, "", ())


def test_without_extension_an_insert_can_not_be_told_from_an_update():
    event = only(codec(), key(), framed(PLAIN, {"id": 7, "v": None}))
    assert (event.operation, event.commit_ts) == (Operation.UPSERT, None)
    assert cells(event.after) == {"id": 7, "v": None}


@pytest.mark.parametrize("value", [None, b""])
def test_a_null_value_is_a_delete_by_key(value):
    event = only(codec(), key(), value)
    assert (event.operation, event.commit_ts, event.partial, event.after) == (Operation.DELETE, None, True, None)
    assert cells(event.before) == {"id": 7}
    assert event.before.key() == (7,)


def test_a_row_without_key_has_no_identity():
    event = only(codec(), None, row())
    assert event.after.shape.handle_key == ()
    assert cells(event.after) == {"id": 7, "v": "text"}


@pytest.mark.parametrize("absent", [None, b""])
def test_neither_key_nor_value_says_nothing(absent):
    event = only(codec(), absent, absent)
    assert (event.ordinal, event.reason) == (None, "empty_message")


def test_a_key_may_be_of_several_columns_in_any_place():
    fields = (column("v", "string", "TEXT"), ID, decimal("d", 5, 2))
    schemas = {1: record(decimal("d", 5, 2), ID), 2: record(*fields)}
    event = only(
        codec(schemas),
        framed(1, {"d": b"\x7b", "id": 3}, schemas),
        framed(2, {"v": "x", "id": 3, "d": b"\x7b"}, schemas),
    )
    assert event.after.shape.handle_key == ("d", "id")
    assert event.after.key() == ("1.23", 3)
    removed = only(codec(schemas), framed(1, {"d": b"\x7b", "id": 3}, schemas), None)
    assert removed.before.key() == event.after.key()


def test_glue_frames_are_read_by_their_first_byte():
    ids = {number: str(UUID(int=number)) for number in SCHEMAS}
    reader = codec({ids[number]: document for number, document in SCHEMAS.items()})
    value = glue(ids[EXTENDED], encoded(SCHEMAS[EXTENDED], {"id": 7, "v": "x", **extension("c", TS)}))
    event = only(reader, glue(ids[KEY], encoded(SCHEMAS[KEY], {"id": 7})), value)
    assert cells(event.after) == {"id": 7, "v": "x"}


def test_a_column_may_be_called_like_an_appended_field():
    schemas = {1: record(ID), 2: record(ID, column("_tidb_op", "string", "TEXT"))}
    event = only(codec(schemas), framed(1, {"id": 1}, schemas), framed(2, {"id": 1, "_tidb_op": "x"}, schemas))
    assert event.operation is Operation.UPSERT
    assert cells(event.after) == {"id": 1, "_tidb_op": "x"}


def test_copies_have_one_fingerprint_whatever_the_id_of_their_schema():
    reader = codec(SCHEMAS | {9: SCHEMAS[EXTENDED]})
    body = encoded(SCHEMAS[EXTENDED], {"id": 7, "v": "x", **extension("c", TS)})
    first, copy = (only(reader, key(), confluent(number, body)) for number in (EXTENDED, 9))
    assert (first.fingerprint, first.after.shape) == (copy.fingerprint, copy.after.shape)
    others = [only(reader, key(), row(v="y")), only(reader, key(), row(ts=TS + 1)), only(reader, key(), None)]
    assert len({event.fingerprint for event in (first, *others)}) == 4
    renamed = codec({**SCHEMAS, EXTENDED: {**SCHEMAS[EXTENDED], "name": "other"}})
    assert only(renamed, key(), confluent(EXTENDED, body)).fingerprint != first.fingerprint


BEFORE = {
    1: record(ID),
    2: record(*COLUMNS, before(*COLUMNS), *EXTENSION),
    3: record(*COLUMNS, before(*COLUMNS), EXTENSION[0]),
}


def with_before(operation, old, new=None, number=2):
    added = extension(operation, TS) if number == 2 else {"_tidb_op": operation}
    value = {**(new or {"id": 7, "v": "new"}), "_ticdc_before": old, **added}
    return only(codec(BEFORE), framed(1, {"id": 7}, BEFORE), framed(number, value, BEFORE))


def test_before_value_gives_updates_their_old_image():
    event = with_before("u", {"id": 7, "v": "old"})
    assert event.operation is Operation.UPDATE
    assert (cells(event.before), cells(event.after)) == ({"id": 7, "v": "old"}, {"id": 7, "v": "new"})
    assert event.before.shape is event.after.shape
    assert with_before("c", None).before is None


@pytest.mark.parametrize(("number", "ts"), [(2, TS), (3, None)])
def test_before_value_gives_deletes_their_row(number, ts):
    event = with_before("d", {"id": 7, "v": "new"}, number=number)
    assert (event.operation, event.commit_ts, event.partial, event.after) == (Operation.DELETE, ts, False, None)
    assert cells(event.before) == {"id": 7, "v": "new"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, "empty_message"), (b"", "empty_message"), (framed(PLAIN, {"id": 7, "v": "x"}), "bad_value")],
)
def test_where_all_rows_have_a_commit_ts_one_without_is_refused(value, reason):
    reader = codec(enable_tidb_extension=True, avro_include_before_value=True)
    event = only(reader, key(), value)
    assert (event.reason, event.ordinal, event.schema, event.table) == (reason, 0, "s", "t")
    assert "without commitTs" in event.detail
    assert only(reader, key(), row()).commit_ts == TS


def test_images_that_contradict_the_operation_are_refused():
    assert with_before("d", {"id": 7, "v": "old"}).reason == "bad_value"
    assert with_before("c", {"id": 7, "v": "old"}).reason == "bad_value"


TEST_MODE = {"enable_tidb_extension": True, "avro_enable_watermark": True}


def test_the_test_mode_carries_watermarks_and_ddl():
    reader = codec(**TEST_MODE)
    assert only(reader, None, b"\x02" + TS.to_bytes(8, "big")) == WatermarkEvent(0, TS)
    ddl = {"query": "CREATE TABLE t (a INT)", "type": 3, "schema": "s-1", "table": "t", "commitTs": TS}
    event = only(reader, None, b"\x01" + json.dumps(ddl).encode())
    assert event == DdlEvent(0, TS, "s-1", "t", "CREATE TABLE t (a INT)", 3)
    assert isinstance(only(reader, key(), row()), RowEvent)


def test_the_test_mode_gives_deletes_a_commit_ts():
    reader = codec(**TEST_MODE)
    event = only(reader, key(), b"\x03" + TS.to_bytes(8, "big"))
    assert (event.operation, event.commit_ts, event.partial) == (Operation.DELETE, TS, True)
    assert event.fingerprint != only(reader, key(), b"\x03" + (TS + 1).to_bytes(8, "big")).fingerprint
    assert only(codec(), key(), b"\x03" + TS.to_bytes(8, "big")).reason == "bad_framing"


def test_the_test_mode_and_glue_share_a_first_byte():
    ids = {number: str(UUID(int=number)) for number in SCHEMAS}
    reader = codec({ids[number]: document for number, document in SCHEMAS.items()}, **TEST_MODE)
    value = glue(ids[EXTENDED], encoded(SCHEMAS[EXTENDED], {"id": 7, "v": None, **extension("c", TS)}))
    assert only(reader, glue(ids[KEY], encoded(SCHEMAS[KEY], {"id": 7})), value).commit_ts == TS


def test_only_the_test_mode_has_schema_changes_and_watermarks():
    ddl, watermark = (RawMessage("t", 0, 0, 0, None, start + b"{}      ") for start in (b"\x01", b"\x02"))
    for reader, expected in ((codec(**TEST_MODE), True), (codec(enable_tidb_extension=True), False)):
        assert (reader.is_schema_change(ddl), reader.is_watermark(watermark)) == (expected, expected)
        for message in (RawMessage("t", 0, 0, 0, key(), row()), RawMessage("t", 0, 0, 0, key(), None)):
            assert not reader.is_schema_change(message)
            assert not reader.is_watermark(message)


@pytest.mark.parametrize(
    ("options", "carried"),
    [
        ({}, Carried("nothing", False, "nowhere")),
        ({"avro_enable_watermark": True}, Carried("nothing", False, "nowhere")),
        ({"enable_tidb_extension": True}, Carried("rows but deletes", False, "nowhere")),
        ({"avro_include_before_value": True}, Carried("nothing", False, "nowhere", True)),
        ({"enable_tidb_extension": True, "avro_include_before_value": True}, Carried("rows", False, "nowhere", True)),
        (TEST_MODE, Carried("rows but deletes", True, "every partition")),
    ],
)
def test_what_the_messages_carry(options, carried):
    assert carried_by(Changefeed(protocol="avro", topic="t", timezone="UTC", **options)) == carried


CHECKED = (
    ID,
    column("e", "string", "ENUM", allowed="a,b"),
    column("b", "bytes", "BIT", length="8"),
    column("u", "string", "BIGINT UNSIGNED"),
    column("t", "string", "TIMESTAMP"),
    column("n", "string", "TEXT", null=0),
)
CHECKED_SCHEMAS = {1: record(ID), 2: record(*CHECKED, *EXTENSION, *CHECKSUM)}
CHECKED_ROW = {"id": -7, "e": "b", "b": b"\x05", "u": "18446744073709551615", "t": "2024-01-02 03:04:05.6", "n": None}


def with_checksum(checksum, *, corrupted=False, **changed):
    added = {"_tidb_row_level_checksum": checksum, "_tidb_corrupted": corrupted, "_tidb_checksum_version": 0}
    value = {**CHECKED_ROW, **extension("c", TS), **added, **changed}
    return only(codec(CHECKED_SCHEMAS), framed(1, {"id": -7}, CHECKED_SCHEMAS), framed(2, value, CHECKED_SCHEMAS))


def right_checksum():
    types = [
        ColumnType("int"),
        ColumnType("enum", elements=("a", "b")),
        ColumnType("bit", length=8),
        ColumnType("bigint", unsigned=True),
        ColumnType("timestamp"),
        ColumnType("text"),
    ]
    parts = RowChecksum(types, "Asia/Shanghai").parts([-7, "b", 5, (1 << 64) - 1, "2024-01-02 03:04:05.6", None])
    return str(crc32(b"".join(part[0] for part in parts)))


def test_a_row_that_has_its_checksum_is_not_damaged():
    event = with_checksum(right_checksum())
    assert event.damage == ""
    assert event.after.shape.names == tuple(CHECKED_ROW)


@pytest.mark.parametrize(
    ("checksum", "changed", "told"),
    [
        ("1", {}, "is not that of the cells"),
        (None, {"e": "a"}, "is not that of the cells"),
        (None, {"e": "no such name"}, "can't be checked"),
        ("-1", {}, "not a 32-bit number"),
        ("4294967296", {}, "not a 32-bit number"),
        (None, {"corrupted": True}, "_tidb_corrupted"),
    ],
)
def test_a_row_that_can_not_be_what_the_upstream_has_is_marked(checksum, changed, told):
    event = with_checksum(checksum or right_checksum(), **changed)
    assert isinstance(event, RowEvent)
    assert told in event.damage


@pytest.mark.parametrize("none", ["", "0"])
def test_rows_written_without_checksum_are_not_checked(none):
    assert with_checksum(none).damage == ""


@pytest.mark.parametrize(
    ("message", "reason", "told"),
    [
        ((b"\x01junk", row()), "bad_framing", "key: "),
        ((key(), b"\x05junk"), "bad_framing", "value: "),
        ((key(), b"\x00\x00"), "bad_framing", "2 bytes"),
        ((key(), b"\x03\x05" + bytes(16) + b"junk"), "bad_compression", "zlib"),
        ((key(), row() + bytes(2000)), "too_large", "1000 allowed"),
        ((key(), confluent(99, b"")), "schema_unknown", "no schema 99"),
        ((confluent(99, b""), None), "schema_unknown", "no schema 99"),
        ((key(), row() + b"\x00"), "bad_value", "1 bytes follow the record"),
        ((key() + b"\x00", None), "bad_key", "1 bytes follow the record"),
        ((key() + b"\x00", row()), "bad_key", "1 bytes follow the record"),
        ((key(), row()[:-1]), "bad_value", "ends after"),
        ((key()[:-1], row()), "bad_key", "ends after"),
        ((key(8), row()), "key_mismatch", "other cells"),
        ((row(), framed(KEY, {"id": 7})), "bad_key", "schema 3 is one of values"),
        ((row(), None), "bad_key", "schema 3 is one of values"),
        ((framed(PLAIN, {"id": 7, "v": None}), key()), "key_mismatch", "columns that the value lacks: v"),
        ((key(), row("x")), "bad_value", "operation b'x'"),
        ((key(), row("")), "bad_value", "operation b''"),
        ((key(), row(ts=0)), "bad_value", "not a commitTs"),
        ((key(), row(ts=-1)), "bad_value", "not a commitTs"),
    ],
    ids=repr,
)
def test_what_can_not_be_understood_is_told_with_its_reason(message, reason, told):
    event = only(codec(), *message)
    assert isinstance(event, Undecodable)
    assert (event.reason, told in event.detail) == (reason, True), event.detail


def test_a_commit_ts_that_is_not_of_its_physical_time_is_refused():
    value = {"id": 7, "v": "x", **extension("c", TS), "_tidb_commit_ts": TS + (1 << 18)}
    assert only(codec(), key(), framed(EXTENDED, value)).reason == "bad_value"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("no schema", "not JSON"),
        (record(ID, namespace="default"), "does not name a database"),
        (record(), "without columns"),
        (record(ID, {"name": "x", "type": "string"}), "neither a column nor one that TiCDC appends"),
        (record(ID, {"name": "_tidb_op", "type": "int"}), "neither a column"),
        (record(column("g", "bytes", "GEOMETRY")), "tidb_type 'GEOMETRY'"),
        (record(ID, *(column(f"c{at}", "int", "INT") for at in range(4_096))), "4097 columns"),
        (record(ID, before(*(column(f"c{at}", "int", "INT") for at in range(4_097)))), "4097 columns"),
        (record(ID, before(column("c" * 81, "int", "INT"))), "81 characters"),
    ],
)
def test_a_schema_that_ticdc_does_not_write_is_told(document, told):
    event = only(codec({**SCHEMAS, EXTENDED: document}), key(), row())
    assert (event.reason, told in event.detail) == ("bad_schema", True), event.detail


def test_what_is_known_of_the_table_is_told_of_a_bad_row():
    event = only(codec(), key(), row("x"))
    assert (event.ordinal, event.schema, event.table) == (0, "s", "t")


@pytest.mark.parametrize("control", [b"\x01{}", b"\x01", b"\x02", b"\x02" + b"\xff" * 8, b"\x02" + bytes(9)])
def test_bad_messages_of_the_test_mode(control):
    event = only(codec(**TEST_MODE), None, control)
    assert event.reason in ("bad_ddl", "bad_watermark")


def test_a_registry_that_is_away_is_no_fault_of_the_message():
    class Away:
        def text(self, schema_id):
            raise TransientError("away")

    changefeed = Changefeed(protocol="avro", topic="topic", timezone="UTC")
    reader = AvroCodec(changefeed, 1000, SchemaLookup(writer_schemas=Away()))
    with pytest.raises(TransientError):
        only(reader, key(), row())


def test_claim_checks_are_not_of_this_protocol():
    event = codec().decode_claim_check(only(codec(), key(), row()), b"content")
    assert event.reason == "claim_check_mismatch"


def test_names_are_the_sanitised_ones_of_the_record():
    schemas = {
        1: record(ID, table="_1_t", namespace="ns.my_db"),
        2: record(*COLUMNS, table="_1_t", namespace="ns.my_db"),
    }
    event = only(codec(schemas), framed(1, {"id": 1}, schemas), framed(2, {"id": 1, "v": None}, schemas))
    assert (event.schema, event.table) == ("my_db", "_1_t")
