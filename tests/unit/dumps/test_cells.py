"""Texts of a dump become the cells that the row's events have."""

import struct
from typing import Any

import pyarrow as pa
import pytest

from tests.support.every_type import CELLS
from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.domain.column_types import BINARY_TYPES, ColumnType
from ticdc_replay.dumps.cells import cells, from_base64, from_hex, from_literal, key_values, raw

ZONE = "Asia/Shanghai"


def text_of(column_type: ColumnType, neutral: Any) -> bytes | None:
    """What the server's text protocol has of a value that events have as *neutral*."""
    if neutral is None:
        return None
    if column_type.base == "bit":
        return struct.pack(">Q", neutral)
    if column_type.base in ("enum", "set"):
        names = column_type.elements
        assert names is not None
        if column_type.base == "enum":
            return names[neutral - 1].encode()
        return ",".join(name for bit, name in enumerate(names) if neutral >> bit & 1).encode()
    return neutral if isinstance(neutral, bytes) else str(neutral).encode()


MORE: dict[str, tuple[ColumnType, Any]] = {
    "negative": (ColumnType("tinyint"), -128),
    "mediumint": (ColumnType("mediumint"), -8_388_608),
    "beyond": (ColumnType("mediumint"), 8_388_608),
    "dec": (ColumnType("decimal", length=10, scale=2), "-0.50"),
    "dec beyond": (ColumnType("decimal", length=4, scale=2), "123.45"),
    "float exponent": (ColumnType("float"), 1e20),
    "bit 1": (ColumnType("bit", length=1), 1),
    "year zero": (ColumnType("year"), 0),
    "date": (ColumnType("date"), "2026-03-01"),
    "partial date": (ColumnType("date"), "2023-00-10"),
    "zero datetime": (ColumnType("datetime", scale=6), "0000-00-00 00:00:00.000000"),
    "zero timestamp": (ColumnType("timestamp"), "0000-00-00 00:00:00"),
    "ambiguous": (ColumnType("timestamp"), "1988-09-11 01:30:00"),
    "short time": (ColumnType("time"), "-00:00:01"),
    "not utf-8": (ColumnType("varchar", length=9), b"\xff"),
    "empty set": (ColumnType("set", elements=("a", "b")), 0),
    "null": (ColumnType("int"), None),
    "vector": (ColumnType("vector"), "[1,2.5]"),
}
TYPES = {name: case for name, case in (CELLS | MORE).items() if not name.startswith("raw ")}


@pytest.mark.parametrize("name", TYPES)
def test_a_text_becomes_the_cell_of_an_event(name: str) -> None:
    column_type, neutral = TYPES[name]
    expected = typed_array([neutral, None], column_type, ZONE)
    text = text_of(column_type, neutral)
    writings = {raw: text}
    if column_type.base in BINARY_TYPES or column_type.base == "bit":
        assert text is not None
        writings |= {from_hex: text.hex().encode(), from_literal: b"x'" + text.hex().encode() + b"'"}
        writings |= {from_base64: __import__("base64").b64encode(text)}
    for binary, written in writings.items():
        found = cells(pa.array([written, None], pa.binary()), column_type, ZONE, binary)
        assert found.bad == {}
        assert found.array.equals(expected.array)
        assert found.exact == expected.exact


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ("int", b"0x10"),
        ("int", b"1.5"),
        ("int", b""),
        ("bigint", b"12a"),
        ("double", b"nan"),
        ("double", b"1_0"),
        ("decimal", b"1,5"),
        ("date", b"yesterday"),
        ("time", b"12"),
        ("datetime", b"2026-03-01"),
        ("year", b"MMXX"),
    ],
)
def test_a_text_of_another_kind_is_bad(base: Any, text: bytes) -> None:
    column_type = ColumnType(base, length=10, scale=2) if base == "decimal" else ColumnType(base)
    found = cells(pa.array([b"", text], pa.binary()).slice(1), column_type, ZONE, raw)
    assert set(found.bad) == {0}


def test_bytes_that_are_not_as_declared_are_bad() -> None:
    for binary in (from_hex, from_base64, from_literal):
        assert set(cells(pa.array([b"!"], pa.binary()), ColumnType("blob"), ZONE, binary).bad) == {0}


def test_keys_are_those_of_events() -> None:
    assert key_values(pa.array([b"007", b"-1"]), ColumnType("int"), raw) == [7, -1]
    assert key_values(pa.array([b"1.50"]), ColumnType("decimal", length=5, scale=2), raw) == ["1.50"]
    assert key_values(pa.array(["é".encode(), b"\xff"]), ColumnType("varchar"), raw) == ["é", b"\xff"]
    assert key_values(pa.array([b"\x01\x00"]), ColumnType("bit", length=16), raw) == [256]
    assert key_values(pa.array([b"00ff"]), ColumnType("binary", length=2), from_hex) == [b"\x00\xff"]
