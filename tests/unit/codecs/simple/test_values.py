"""Cells of Simple: what each encoding writes for a column's type, and what it means."""

import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.simple_protocol import ID, Json, codec, column, message, row, table_schema, timestamp, unsigned
from ticdc_replay.codecs.simple.values import cell_kind
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import RowEvent, Undecodable

U = {"unsigned": True}
CELLS: list[tuple[str, Json, Any, Any, Any]] = [
    ("tinyint", {"length": 4}, "-128", ("long", -128), -128),
    ("int", {"length": 10} | U, "4294967295", ("long", 4294967295), 4294967295),
    ("bigint", {"length": 20}, "-9223372036854775808", ("long", -(1 << 63)), -(1 << 63)),
    ("bigint", {"length": 20} | U, "18446744073709551615", unsigned((1 << 64) - 1), (1 << 64) - 1),
    ("bigint", {"length": 20} | U, "7", unsigned(7), 7),
    ("year", {"length": 4} | U, "2155", ("long", 2155), 2155),
    ("bit", {"length": 64} | U, "18446744073709551615", ("long", -1), (1 << 64) - 1),  # old TiCDC
    ("bit", {"length": 64} | U, "18446744073709551615", ("string", "18446744073709551615"), (1 << 64) - 1),  # new
    ("enum", {"length": 1, "elements": ["a", "b"]}, "2", ("long", 2), 2),
    ("set", {"elements": [f"e{at}" for at in range(64)]}, str(1 << 63), ("long", -(1 << 63)), 1 << 63),
    ("float", {"length": 12}, "0.1", ("float", 0.1), 0.1),
    ("float", {"length": 12}, "-0", ("float", -0.0), -0.0),
    ("double", {"length": 22}, "1" + "0" * 300, ("double", 1e300), 1e300),
    ("double", {"length": 22}, "0.0000001", ("double", 1e-7), 1e-7),
    ("decimal", {"length": 10, "decimal": 4}, "-0.0500", ("string", "-0.0500"), "-0.0500"),
    ("date", {"length": 10}, "2023-00-10", ("string", "2023-00-10"), "2023-00-10"),
    ("datetime", {"length": 23}, "0000-00-00 00:00:00.000", ("string", "0000-00-00 00:00:00.000"), None),
    ("time", {"length": 14}, "-838:59:59.000", ("string", "-838:59:59.000"), None),
    ("json", {}, '{"a": 1}', ("string", '{"a": 1}'), None),
    ("vector", {"length": 2}, "[1.5,-2]", ("string", "[1.5,-2]"), None),
    ("varchar", {"length": 9}, "<é>\ufffd\0\n", ("string", "<é>\ufffd\0\n"), None),
    ("char", {"length": 9}, "", ("string", ""), None),
    ("varbinary", {"length": 9}, "AP+A", ("bytes", b"\x00\xff\x80"), b"\x00\xff\x80"),
    ("varbinary", {"length": 9}, "null", ("bytes", b"\x9e\xe9\x65"), b"\x9e\xe9\x65"),
    ("blob", {"length": 65535}, "", ("bytes", b""), b""),
]


def read(encoding: str, mysql_type: str, data_type: Json, cell: Any) -> list[Any]:
    """The cell, as the general reader and as the one made for the form read it; the row as it is where it is refused."""
    reader = codec(encoding, table_schema(ID, column("c", mysql_type, **data_type)))  # type: ignore[arg-type]
    key = "1" if encoding == "json" else ("long", 1)
    found: list[Any] = []
    for _ in range(4):
        (event,) = reader.decode(message(row(encoding, data={"id": key, "c": cell})))  # type: ignore[arg-type]
        if isinstance(event, RowEvent):
            assert event.after is not None
            found.append(event.after.shape.columns[1].neutral((event.after.values[1],))[0])
        else:
            found.append(event)
    return found


@pytest.mark.parametrize(("mysql_type", "data_type", "in_json", "in_avro", "value"), CELLS)
def test_both_encodings_mean_the_same_value(
    mysql_type: str, data_type: Json, in_json: Any, in_avro: Any, value: Any
) -> None:
    expected = in_json if value is None else value
    for found in (*read("json", mysql_type, data_type, in_json), *read("avro", mysql_type, data_type, in_avro)):
        assert found == expected
        assert type(found) is type(expected)
        assert str(found) == str(expected)  # the sign of zero
    assert read("json", mysql_type, data_type, None) == read("avro", mysql_type, data_type, None) == [None] * 4


@pytest.mark.parametrize(
    ("mysql_type", "data_type", "expected"),
    [
        ("int", {"length": 11}, ColumnType("int")),
        ("decimal", {"length": 10}, ColumnType("decimal", length=10, scale=0)),
        ("decimal", {"length": 20, "decimal": 6} | U, ColumnType("decimal", unsigned=True, length=20, scale=6)),
        ("datetime", {"length": 23, "decimal": 3}, ColumnType("datetime", scale=3)),
        ("datetime", {"length": 23}, ColumnType("datetime", scale=3)),  # Avro, whose ``decimal`` is null
        ("time", {"length": 10}, ColumnType("time", scale=0)),
        ("time", {"length": 17}, ColumnType("time", scale=6)),
        ("timestamp", {"length": 19, "decimal": -1}, ColumnType("timestamp", scale=0)),
        ("bit", {"length": 17} | U, ColumnType("bit", length=17)),
        ("year", {"length": 4, "zerofill": True} | U, ColumnType("year")),
        ("enum", {"length": 1, "elements": ["a,b", "it's"]}, ColumnType("enum", elements=("a,b", "it's"))),
        ("varchar", {"length": 20}, ColumnType("varchar", length=20)),
        ("text", {"length": 65535}, ColumnType("text")),
        ("vector", {"length": -1}, ColumnType("vector")),
        ("var_string", {"length": 5}, ColumnType("varchar", length=5)),
    ],
)
@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_types_are_those_that_the_ddl_would_give(
    encoding: str, mysql_type: str, data_type: Json, expected: ColumnType
) -> None:
    schema = table_schema(ID, column("c", mysql_type, **data_type))
    (definition,) = codec(encoding, schema).schemas.history.versions  # type: ignore[arg-type]
    found = definition.columns[1].type
    assert found.declared
    assert str(found) == str(expected)
    assert (found.base, found.unsigned, found.length, found.scale) == (
        expected.base,
        expected.unsigned,
        expected.length,
        expected.scale,
    )


@pytest.mark.parametrize(
    ("mysql_type", "data_type", "in_json", "in_avro", "default", "computed"),
    [
        ("int", {}, "42", "42", "42", False),
        ("bit", {"length": 4}, 5, "\x05", "5", False),
        ("binary", {"length": 4}, "ab\0\0", "ab\0\0", "ab\0\0", False),
        ("varbinary", {"length": 8}, "\0\ufffd", "\0\ufffd", None, True),  # TiDB lost the bytes
        ("datetime", {"length": 19}, "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", None, True),
        ("timestamp", {"length": 19}, "2021-05-04 21:05:05", "2021-05-04 21:05:05", None, True),
        ("set", {"elements": ["p", "q"]}, "p,q", "p,q", "p,q", False),
        ("varchar", {"length": 9}, None, None, None, False),
    ],
)
def test_defaults_are_told_where_they_are_certain(
    mysql_type: str, data_type: Json, in_json: Any, in_avro: Any, default: str | None, computed: bool
) -> None:
    for encoding, written in (("json", in_json), ("avro", in_avro)):
        schema = table_schema(ID, column("c", mysql_type, default=written, **data_type))
        (definition,) = codec(encoding, schema).schemas.history.versions  # type: ignore[arg-type]
        assert (definition.columns[1].default, definition.columns[1].computed_default) == (default, computed)


@pytest.mark.parametrize(
    ("mysql_type", "data_type", "cell"),
    [
        ("tinyint", {}, "128"),
        ("tinyint", U, "-1"),
        ("bigint", U, "18446744073709551616"),
        ("int", {}, "1_0"),
        ("int", {}, "null"),
        ("int", {}, "1,2"),
        ("int", {}, "x"),
        ("bit", {"length": 3}, "8"),
        ("set", {"elements": ["a"]}, "2"),
        ("float", {}, "1" + "0" * 39),
        ("double", {}, "NaN"),
        ("date", {}, "2023-1-1"),
        ("decimal", {"length": 4}, "1e3"),
        ("varbinary", {"length": 4}, "%%%"),
        ("timestamp", {"length": 19}, "2024-01-01 00:00:00"),
        ("varchar", {"length": 4}, {"location": "Asia/Shanghai", "value": "2024-01-01 00:00:00"}),
    ],
)
def test_json_that_is_not_of_the_columns_type_is_refused(mysql_type: str, data_type: Json, cell: Any) -> None:
    try:
        found = read("json", mysql_type, data_type, cell)
    except ValueError:
        return
    assert all(isinstance(event, Undecodable) and event.reason == "bad_cell" for event in found)


@pytest.mark.parametrize(
    ("mysql_type", "data_type", "cell"),
    [
        ("tinyint", {}, ("long", 128)),
        ("bit", {"length": 3}, ("long", 8)),
        ("bit", {"length": 3}, ("string", "x")),
        ("int", {}, ("string", "1")),
        ("varchar", {"length": 4}, ("long", 1)),
        ("timestamp", {"length": 19}, ("string", "2024-01-01 00:00:00")),
        ("float", {}, ("float", float("inf"))),
        ("double", {}, ("float", 1.0)),
        ("date", {}, ("string", "2023-1-1")),
        ("json", {}, timestamp("avro", "2024-01-01 00:00:00")),
    ],
)
def test_avro_that_is_not_of_the_columns_type_is_refused(mysql_type: str, data_type: Json, cell: Any) -> None:
    try:
        found = read("avro", mysql_type, data_type, cell)
    except ValueError:
        return
    assert all(isinstance(event, Undecodable) and event.reason == "bad_cell" for event in found)


def test_text_that_was_not_utf8_is_told_in_json_and_kept_in_avro() -> None:
    schema = table_schema(ID, column("c", "varchar", length=9))
    reader = codec("json", schema)
    lost = row("json", data={"id": "1", "c": "a\ufffdb"}).replace("\ufffd".encode(), b"\\ufffd")
    kept = row("json", data={"id": "1", "c": "a\ufffdb \\ufffd"})  # the character, and a backslash: nothing was lost
    for value, lossy in ((lost, ("after.c",)), (kept, ())) * 3:
        (event,) = reader.decode(message(value))
        assert isinstance(event, RowEvent)
        assert event.lossy == lossy
    value = row("avro", data={"id": ("long", 1), "c": ("string", "a??b")}).replace(b"a??b", b"a\xff\xfeb")
    reader = codec("avro", schema)
    for _ in range(4):
        (event,) = reader.decode(message(value))
        assert isinstance(event, RowEvent)
        assert event.after is not None
        assert event.after.shape.columns[1].neutral((event.after.values[1], b"fine")) == [b"a\xff\xfeb", "fine"]


@given(st.lists(st.none() | st.integers(0, (1 << 64) - 1)))
def test_columns_of_integers_are_read_as_their_texts_say(values: list[int | None]) -> None:
    kind = cell_kind(ColumnType("bigint", unsigned=True, declared=True), None)
    assert kind.of_json([None if value is None else str(value) for value in values]) == values


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_columns_of_reals_are_read_as_their_texts_say(values: list[float | None]) -> None:
    kind = cell_kind(ColumnType("double", declared=True), None)
    texts = [None if value is None else json.dumps(value).removesuffix(".0") for value in values]
    assert str(kind.of_json(texts)) == str(values)
    assert kind.of_avro([None if value is None else struct.pack("<d", value) for value in values]) == values


@example([999999986991104.0])
@given(st.lists(st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_single_precision_has_its_own_shortest_text(values: list[float | None]) -> None:
    kind = cell_kind(ColumnType("float", declared=True), None)
    found = kind.of_avro([None if value is None else struct.pack("<f", value) for value in values])
    for value, number in zip(values, found, strict=True):
        if value is None:
            assert number is None
        else:
            assert struct.pack("<f", number) == struct.pack("<f", value)
            assert significant_digits(number) <= significant_digits(value)


def significant_digits(value: float) -> int:
    """How many digits its shortest text has, without zeros at its ends: 1 of 1e15, whose text as a float has 18 characters."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def test_a_start_ts_is_of_no_account() -> None:
    raw = row("json", data={"id": "1", "c": None}, startTs=5)
    reader = codec("json", table_schema(ID, column("c", "int")))
    events = [reader.decode(message(raw)) for _ in range(3)]
    assert isinstance(events[0][0], RowEvent)
    assert events[0] == events[1] == events[2]
    assert reader._rows is not None
    assert reader._rows.read(raw) == events[0][0]
