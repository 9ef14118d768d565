"""Whatever the bytes, Simple's codec returns; and what it has read before never changes what it reads."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.simple_protocol import (
    COMMIT_TS,
    ID,
    Encoding,
    Json,
    avro,
    bootstrap,
    codec,
    column,
    ddl,
    index,
    message,
    number,
    row,
    table_schema,
    text,
    timestamp,
    unsigned,
    watermark,
)
from ticdc_replay.codecs.simple.codec import SimpleCodec
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Event, Image, RowEvent, Undecodable, WatermarkEvent

SCHEMA = table_schema(
    ID,
    column("name", "varchar", charset="utf8mb4", length=200),
    column("n", "bigint", length=20, unsigned=True),
    column("b", "varbinary", length=9),
    column("ts", "timestamp", null=False, length=19),
    column("f", "float", length=12),
)


def cells(encoding: Encoding, key: int, name: str | None) -> Json:
    plain = {
        "id": number(encoding, key),
        "name": text(encoding, name),
        "ts": timestamp(encoding, "2024-07-01 12:00:00"),
    }
    if encoding == "json":
        return plain | {"n": "18446744073709551615", "b": "AP+A", "f": "0.5"}
    return plain | {"n": unsigned((1 << 64) - 1), "b": ("bytes", b"\0\xff\x80"), "f": ("float", 0.5)}


def messages(encoding: Encoding) -> list[bytes]:
    sums = {"version": 1, "corrupted": False, "current": 5, "previous": 0}
    long = "long text " * 12
    return [
        row(encoding, data=cells(encoding, 1, "a")),
        row(encoding, "UPDATE", data=cells(encoding, -300, long), old=cells(encoding, 1 << 40, None)),
        row(encoding, "DELETE", old=cells(encoding, 1, "a\\ufffd")),
        row(encoding, data=cells(encoding, 1, "a"), checksum=sums),
        row(encoding, data={"id": number(encoding, 1)}, claimCheckLocation="s3://b/x", handleKeyOnly=True),
        bootstrap(encoding, SCHEMA),
        ddl(encoding, "ALTER", "ALTER TABLE `t` ADD `c` INT", SCHEMA, SCHEMA),
        watermark(encoding),
    ]


def warm(encoding: Encoding) -> SimpleCodec:
    """A codec that has made its readers."""
    reader = codec(encoding, SCHEMA)
    for value in messages(encoding)[:4] * 3:
        reader.decode(message(value))
    return reader


def said(event: Event) -> Any:
    """What an event says, without the identity of its shapes."""
    if not isinstance(event, RowEvent):
        return event
    images = [image and (image.shape.columns, image.values) for image in (event.after, event.before)]
    return event._replace(after=None, before=None), images


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_messages_that_are_cut_off_are_refused(encoding: Encoding) -> None:
    reader = warm(encoding)
    for value in messages(encoding):
        for end in range(len(value)):
            (event,) = reader.decode(message(value[:end]))
            assert isinstance(event, Undecodable), value[:end]


@pytest.mark.parametrize("encoding", ["json", "avro"])
@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_whatever_was_read_before_a_message_says_the_same(encoding: Encoding, seed: int) -> None:
    fresh, used = _CODECS[encoding]
    value = mutated(random.Random(seed), messages(encoding))
    expected, found = fresh().decode(message(value)), used.decode(message(value))
    assert list(map(said, found)) == list(map(said, expected))
    (event,) = found
    assert used.is_schema_change(message(value)) or not isinstance(event, DdlEvent | BootstrapEvent)
    assert used.is_watermark(message(value)) or not isinstance(event, WatermarkEvent)
    if isinstance(event, RowEvent):
        for image in (event.after, event.before):
            if image is not None:
                read_cells(image)


def read_cells(image: Image) -> None:
    """A cell is read, or refused with a ValueError."""
    for column_, cell in zip(image.shape.columns, image.values, strict=True):
        try:
            column_.neutral((cell,))
        except ValueError:
            continue


def mutated(choose: random.Random, values: list[bytes]) -> bytes:
    """One of *values* with a few bytes changed, left out, put in or copied from elsewhere."""
    value = bytearray(choose.choice(values))
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(len(value))
        match choose.randrange(5):
            case 0:
                value[at] = choose.randrange(256)
            case 1:
                value[at] ^= 1 << choose.randrange(8)
            case 2:
                del value[at : at + choose.randint(1, 4)]
            case 3:
                value[at:at] = choose.randbytes(choose.randint(1, 4))
            case _:
                other = choose.choice(values)
                begin = choose.randrange(len(other))
                value[at : at + choose.randint(0, 12)] = other[begin : begin + choose.randint(1, 12)]
        if not value:
            return b""
    return bytes(value)


_CODECS: dict[Encoding, tuple[Callable[[], SimpleCodec], SimpleCodec]] = {
    "json": (lambda: codec("json", SCHEMA), warm("json")),
    "avro": (lambda: codec("avro", SCHEMA), warm("avro")),
}


@pytest.mark.parametrize(
    ("value", "reason", "commit_ts"),
    [
        (None, "empty_message", None),
        (b"", "empty_message", None),
        (b"[]", "bad_message", None),
        (b'{"version":1}', "bad_message", None),
        (b'{"version":2,"type":"WATERMARK","commitTs":5}', "unknown_version", 5),
        (b'{"version":1,"type":"NEW","commitTs":5}', "unknown_event_type", 5),
        (b'{"version":1,"type":"BOOTSTRAP","commitTs":0}', "bad_message", None),
        (b'{"version":1,"type":"WATERMARK","commitTs":-1}', "bad_message", None),
        (row("json"), "bad_message", COMMIT_TS),
        (row("json", "UPDATE", data={"id": "1"}), "bad_message", COMMIT_TS),
        (row("json", data={"id": "1"}, old={"id": "1"}), "bad_message", COMMIT_TS),
        (row("json", "UPDATE", data={"id": "1"}, old={"id": "1", "name": "a"}), "schema_mismatch", COMMIT_TS),
        (row("json", data={"id": 1}), "bad_message", None),
        (row("avro", data={"id": ("long", 1)}), "bad_message", None),
        (b"[" * 100_000, "bad_message", None),
    ],
)
def test_json_that_is_no_message_of_simple_is_refused_with_its_reason(
    value: bytes | None, reason: str, commit_ts: int | None
) -> None:
    (event,) = codec("json", SCHEMA).decode(message(value))
    assert isinstance(event, Undecodable)
    assert (event.reason, event.commit_ts, event.ordinal) == (reason, commit_ts, None if commit_ts is None else 0)


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    return bytes([*content, value])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (row("json", data={"id": "1"}), "bad_message"),
        (watermark("avro") + b"\0", "bad_message"),
        (b"\x14" + watermark("avro")[1:], "bad_message"),  # another record of the schema
        (b"\x16\x02\x00" + watermark("avro")[3:], "bad_message"),  # a bootstrap with the payload of a watermark
        (b"\x16\x00\x00" + _varint(1 << 70) + watermark("avro")[4:], "bad_message"),
        (avro("WATERMARK", {"version": 3, "commitTs": 5, "buildTs": 6}), "unknown_version"),
        (avro("WATERMARK", {"version": 1, "commitTs": -5, "buildTs": 6}), "bad_message"),
        (row("avro", data={"id": ("long", 1)}).replace(b"\x04id", b"\x04i\xff"), "bad_message"),
        (row("avro", "UPDATE", data={"id": ("long", 1)}), "bad_message"),
        (row("avro", data={"id": ("long", 1), "ts": ("long", 1)}), "bad_cell"),
    ],
)
def test_avro_that_is_no_message_of_simple_is_refused_with_its_reason(value: bytes, reason: str) -> None:
    (event,) = codec("avro", SCHEMA).decode(message(value))
    assert isinstance(event, Undecodable)
    assert event.reason == reason


def test_a_map_may_not_come_in_blocks_with_sizes_nor_repeat_a_name() -> None:
    """TiCDC's encoder writes one block without size."""
    reader = warm("avro")
    whole = row("avro", data={"id": ("long", 1), "name": ("string", "abc")})
    entry, other = b"\x04id\x02\x02", b"\x08name\x08\x06abc"
    assert b"\x04" + entry + other + b"\x00" in whole
    in_blocks = b"\x01" + _varint(2 * len(entry)) + entry + b"\x02" + other + b"\x00"
    blocks = whole.replace(b"\x04" + entry + other + b"\x00", in_blocks)
    repeated = whole.replace(b"\x04" + entry + other, b"\x04" + entry + entry)
    for value in (blocks, repeated):
        (refused,) = reader.decode(message(value))
        assert isinstance(refused, Undecodable)
        assert (refused.reason, "no encoder" in refused.detail) == ("bad_message", True)


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_message_that_is_compressed_otherwise_than_configured_is_refused(encoding: Encoding) -> None:
    for compression in ("snappy", "lz4"):
        reader = codec(encoding, SCHEMA, compression=compression)
        value = message(messages(encoding)[0])
        (event,) = reader.decode(value)
        assert isinstance(event, Undecodable)
        assert event.reason in ("bad_compression", "too_large")
        assert reader.is_schema_change(value)
        assert reader.is_watermark(value)


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize(
    ("type_", "described"),
    [
        ("decimal", {"length": 10, "decimal": 20}),
        ("decimal", {"length": 5000, "decimal": 30}),
        ("decimal", {"length": 66, "decimal": 0}),
        ("decimal", {"length": 60, "decimal": 31}),
        ("bit", {"length": 65}),
        ("bit", {"length": 1 << 40}),
        ("datetime", {"length": 26, "decimal": 7}),
        ("timestamp", {"length": 26, "decimal": 12}),
        ("time", {"length": 10 + 1 + 7}),
        ("binary", {"length": 256}),
        ("varchar", {"length": 1 << 32}),
        ("set", {"elements": [str(number) for number in range(65)]}),
    ],
    ids=str,
)
def test_a_table_schema_with_a_type_that_no_column_has_is_refused(
    encoding: Encoding, type_: str, described: Json
) -> None:
    schema = table_schema(ID, column("v", type_, default="1", **described))
    reader = codec(encoding)
    for value in (bootstrap(encoding, schema), ddl(encoding, "ALTER", "ALTER TABLE t ADD v INT", schema)):
        (event,) = reader.decode(message(value))
        assert isinstance(event, Undecodable)
        assert event.reason == "bad_type"
        assert "the column v" in event.detail


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize(
    ("type_", "described", "text"),
    [
        ("decimal", {"length": 65, "decimal": 30}, "decimal(65,30)"),
        ("decimal", {"length": 30, "decimal": 30}, "decimal(30,30)"),
        ("bit", {"length": 64}, "bit(64)"),
        ("time", {"length": 10 + 1 + 6}, "time(6)"),
        ("varchar", {"length": 65_535}, "varchar(65535)"),
        ("char", {"length": 0}, "char"),
    ],
    ids=str,
)
def test_the_largest_types_are_read(encoding: Encoding, type_: str, described: Json, text: str) -> None:
    (event,) = codec(encoding).decode(message(bootstrap(encoding, table_schema(ID, column("v", type_, **described)))))
    assert isinstance(event, BootstrapEvent)
    assert event.definition is not None
    assert str(event.definition.columns[1].type) == text


INT = column("c", "int", length=11)
PRIMARY = index("primary", "id", primary=True)
NO_TABLES = {
    "a column twice": (table_schema(ID, INT, INT), "bad_name"),
    "a column in two spellings": (table_schema(ID, INT, column("C", "int", length=11)), "bad_name"),
    "an index of 17 columns": (table_schema(ID, INT, indexes=(PRIMARY, index("u", *["c"] * 17))), "bad_key"),
    "an index with a column twice": (table_schema(ID, INT, indexes=(PRIMARY, index("u", "c", "c"))), "bad_key"),
    "514 indexes": (table_schema(ID, INT, indexes=(PRIMARY, *[index(f"u{i}", "c") for i in range(513)])), "bad_key"),
}


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize(("schema", "reason"), NO_TABLES.values(), ids=NO_TABLES)
def test_a_table_schema_that_no_table_has_is_refused(encoding: Encoding, schema: Json, reason: str) -> None:
    """The first definition of a version counts: rows would get this one, though a good one follows."""
    for value in (bootstrap(encoding, schema), ddl(encoding, "CREATE", "CREATE TABLE t (id BIGINT)", schema)):
        (event,) = codec(encoding).decode(message(value))
        assert isinstance(event, Undecodable)
        assert event.reason == reason


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_table_schema_with_as_many_indexes_as_a_table_can_have_is_read(encoding: Encoding) -> None:
    schema = table_schema(ID, INT, indexes=(PRIMARY, *[index(f"u{i}", "c") for i in range(512)]))
    (event,) = codec(encoding).decode(message(bootstrap(encoding, schema)))
    assert isinstance(event, BootstrapEvent)
    assert len(event.definition.indexes) == 513


@pytest.mark.parametrize("version", [b"\x04", b"\x82", b"\x00"])
def test_what_is_not_of_the_known_version_may_refer_to_an_object(version: bytes) -> None:
    """A damaged version may be of two bytes: then what follows it stands elsewhere."""
    plain = row("avro", data=cells("avro", 1, "a"))
    damaged = plain[:3] + version + plain[4:]
    reader = codec("avro", SCHEMA)
    assert [reader.may_refer(message(value)) for value in (plain, damaged)] == [False, True]
