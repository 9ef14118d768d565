"""Columns of Parquet files as the texts that the server would send, also of files that other programs write."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.dumps.parquet_rows import parquet_rows
from ticdc_replay.dumps.records import WrongRowError

NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 250_000)
UTC_NOON = NOON.replace(tzinfo=datetime.UTC)


def read(folder: Path, array: pa.Array, column_type: ColumnType, zone: str = "+00:00") -> list[bytes | None]:
    """The texts of the only column."""
    path = folder / "t.parquet"
    pq.write_table(pa.table({"c": array}), path)
    found = parquet_rows(pa.fs.LocalFileSystem(), str(path), "t.parquet", {"c": column_type}, zone)
    return [text for rows in found for text in rows.columns[0].to_pylist()]


def typed(base: Any, **details: Any) -> ColumnType:
    return ColumnType(base, declared=True, **details)


@pytest.mark.parametrize(
    ("array", "column_type", "text"),
    [
        (pa.array([7], pa.uint64()), typed("bigint"), b"7"),
        (pa.array([True]), typed("tinyint"), b"1"),
        (pa.array([Decimal("0.0000000001")], pa.decimal128(38, 10)), typed("decimal", length=38, scale=10), b"0.0000000001"),
        (pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), typed("bigint", unsigned=True), b"18446744073709551615"),
        (pa.array([0.1], pa.float32()), typed("float"), b"0.1"),
        (pa.array([-1e300]), typed("double"), b"-1e+300"),
        (pa.array([NOON], pa.timestamp("ms")), typed("datetime", scale=3), b"2026-03-01 12:00:00.250"),
        (pa.array([NOON], pa.timestamp("us")), typed("datetime", scale=2), b"2026-03-01 12:00:00.25"),
        (pa.array([NOON], pa.timestamp("us")), typed("datetime"), b"2026-03-01 12:00:00.250000"),
        (pa.array([NOON.replace(microsecond=0)], pa.timestamp("ns")), typed("datetime"), b"2026-03-01 12:00:00"),
        (pa.array([datetime.datetime(1, 1, 1)], pa.timestamp("us")), typed("datetime"), b"0001-01-01 00:00:00"),
        (pa.array([UTC_NOON], pa.timestamp("us", "UTC")), typed("timestamp", scale=2), b"2026-03-01 12:00:00.25"),
        (pa.array([datetime.date(2026, 3, 1)]), typed("date"), b"2026-03-01"),
        (pa.array([datetime.time(12, 0, 0, 250_000)]), typed("time", scale=2), b"12:00:00.25"),
        (pa.array(["a"]).dictionary_encode(), typed("enum", elements=("a",)), b"a"),
        (pa.array(["a"], pa.large_string()), typed("varchar", length=9), b"a"),
        (pa.array([b"\0\xff"], pa.binary(2)), typed("binary", length=2), b"\0\xff"),
        (pa.array([None], pa.int32()), typed("int"), None),
        (pa.nulls(1), typed("varchar", length=9), None),
    ],
)  # fmt: skip
def test_each_value_has_the_text_of_the_server(
    tmp_path: Path, array: pa.Array, column_type: ColumnType, text: bytes | None
) -> None:
    assert read(tmp_path, array, column_type) == [text]


def test_instants_are_wall_clocks_in_the_zone(tmp_path: Path) -> None:
    array = pa.array([UTC_NOON], pa.timestamp("us", "UTC"))
    assert read(tmp_path, array, typed("timestamp"), "+08:00") == [b"2026-03-01 20:00:00.250000"]
    assert read(tmp_path, array, typed("timestamp", scale=2), "Asia/Shanghai") == [b"2026-03-01 20:00:00.25"]


@pytest.mark.parametrize(
    ("array", "column_type"),
    [
        (pa.array([1]), typed("varchar", length=9)),
        (pa.array([1]), typed("enum", elements=("a",))),
        (pa.array(["1"]), typed("bit", length=8)),
        (pa.array([UTC_NOON], pa.timestamp("us", "UTC")), typed("datetime")),
        (pa.array([NOON]), typed("date")),
        (pa.array([1]), typed("time")),
        (pa.array([["a"]]), typed("json")),
    ],
)
def test_values_without_one_text_are_refused(tmp_path: Path, array: pa.Array, column_type: ColumnType) -> None:
    with pytest.raises(WrongRowError, match=r"t\.parquet: c is .* in its table, and .* in the file"):
        read(tmp_path, array, column_type)


def test_digits_that_no_column_has_are_refused(tmp_path: Path) -> None:
    array = pa.array([1_709_294_400_000_000_001], pa.timestamp("ns"))
    with pytest.raises(WrongRowError, match=r"t\.parquet: c is datetime") as error:
        read(tmp_path, array, typed("datetime", scale=6))
    assert "1709294400" not in str(error.value)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"id,v\n1,2\n")
    with pytest.raises(WrongRowError, match=r"t\.parquet: this is no Parquet file"):
        list(parquet_rows(pa.fs.LocalFileSystem(), str(path), "t.parquet", {}, "UTC"))
