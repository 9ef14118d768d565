"""Row checksums. The sums of ``ddl_t`` are TiCDC's own; others follow from the bytes that the protocol's document names."""

import struct
from zlib import crc32

import pytest

from ticdc_replay.codecs.checksum import RowChecksum
from ticdc_replay.domain.column_types import ColumnType

ZONE = "Europe/Berlin"


def _agrees(cells: list[tuple[ColumnType, object]], expected: int) -> bool:
    return RowChecksum([type_ for type_, _ in cells], ZONE).agrees([value for _, value in cells], expected)


def _with_length(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def test_the_sums_of_ticdc_are_those_of_the_row_in_the_order_of_its_columns() -> None:
    enum = ColumnType("enum", elements=("u", "v"))
    first = [(ColumnType("int"), 1), (ColumnType("int"), 1), (ColumnType("varchar"), "x"), (ColumnType("int"), 1)]
    later = [
        (ColumnType("bigint"), None),
        (ColumnType("int"), 6),
        (ColumnType("varchar"), None),
        (ColumnType("datetime"), "2020-02-02 02:02:02.222"),
        (ColumnType("varchar"), "zz"),
        (enum, 2),
    ]
    assert _agrees(first, 2915968842)
    assert _agrees(later, 462017782)
    assert _agrees([*later[:-1], (enum, "v")], 462017782)


def test_another_value_another_order_or_a_null_does_not_agree() -> None:
    int_, varchar = ColumnType("int"), ColumnType("varchar")
    assert not _agrees([(int_, 1), (int_, 1), (varchar, "y"), (int_, 1)], 2915968842)
    assert not _agrees([(varchar, "x"), (int_, 1), (int_, 1), (int_, 1)], 2915968842)
    assert not _agrees([(int_, 1), (int_, 1), (varchar, "x"), (int_, None)], 2915968842)


@pytest.mark.parametrize(
    ("base", "value", "content"),
    [
        ("tinyint", -1, b"\xff" * 8),
        ("bigint", 2**64 - 1, b"\xff" * 8),
        ("year", 2024, struct.pack("<Q", 2024)),
        ("bit", 5, struct.pack("<Q", 5)),
        ("set", 2**63, struct.pack("<Q", 2**63)),
        ("float", 0.1, struct.pack("<d", struct.unpack("<f", struct.pack("<f", 0.1))[0])),
        ("double", 0.1, struct.pack("<d", 0.1)),
        ("double", float("inf"), bytes(8)),
        ("decimal", "-0.0500", _with_length(b"-0.0500")),
        ("json", '{"a": 1}', _with_length(b'{"a": 1}')),
        ("varbinary", b"\x00\xff", _with_length(b"\x00\xff")),
        ("varchar", b"\xff", _with_length(b"\xff")),
        ("char", "é", _with_length("é".encode())),
        ("date", "2023-00-10", _with_length(b"2023-00-10")),
        ("vector", "[1.5,-2]", struct.pack("<Iff", 2, 1.5, -2)),
        ("vector", "[]", struct.pack("<I", 0)),
        ("timestamp", "2024-07-01 12:00:00.50", _with_length(b"2024-07-01 10:00:00.50")),
        ("timestamp", "2024-07-01 12:00:00Z", _with_length(b"2024-07-01 12:00:00")),
        ("timestamp", "0000-00-00 00:00:00", _with_length(b"0000-00-00 00:00:00")),
        ("timestamp", "0001-01-01 00:00:00", _with_length(b"0001-01-01 00:00:00")),
    ],
)
def test_each_type_counts_with_its_own_bytes(base: str, value: object, content: bytes) -> None:
    assert _agrees([(ColumnType(base), value)], crc32(content))  # type: ignore[arg-type]
    assert not _agrees([(ColumnType(base), value)], crc32(content + b"\x00"))  # type: ignore[arg-type]


def test_names_of_a_set_count_as_its_bits() -> None:
    assert _agrees([(ColumnType("set", elements=("x", "y", "z")), "x,z")], crc32(struct.pack("<Q", 5)))
    assert _agrees([(ColumnType("set", elements=("x", "y", "z")), "")], crc32(bytes(8)))


def test_a_local_time_that_clocks_showed_twice_agrees_with_either_moment() -> None:
    type_ = ColumnType("timestamp")
    twice = "2024-10-27 02:30:00"
    first, second, other = b"2024-10-27 00:30:00", b"2024-10-27 01:30:00", b"2024-10-27 02:30:00"
    assert _agrees([(type_, twice), (type_, twice)], crc32(_with_length(first) + _with_length(second)))
    assert not _agrees([(type_, twice), (type_, twice)], crc32(_with_length(first) + _with_length(other)))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (ColumnType("enum", elements=("a",)), "b"),
        (ColumnType("enum", elements=("a",)), b"\xff"),
        (ColumnType("set", elements=("a",)), b"a,\xff"),
        (ColumnType("float"), 1e300),
    ],
)
def test_a_value_that_is_not_of_its_type_is_told(type_: ColumnType, value: object) -> None:
    with pytest.raises(ValueError):
        _agrees([(type_, value)], 0)
