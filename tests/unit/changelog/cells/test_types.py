"""The layout of a changelog row, and that other engines read every type of it as what it is."""

import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.every_type import COLUMNS, SCHEMA, write_one_row
from ticdc_replay.changelog.cells.types import arrow_type, table_arrow_schema
from ticdc_replay.domain.column_types import ColumnType


@pytest.mark.parametrize(
    ("column_type", "expected"),
    [
        (ColumnType("tinyint"), pa.int8()),
        (ColumnType("tinyint", unsigned=True), pa.uint8()),
        (ColumnType("mediumint", unsigned=True), pa.uint32()),
        (ColumnType("bigint", unsigned=True), pa.uint64()),
        (ColumnType("float", unsigned=True), pa.float32()),
        (ColumnType("decimal"), pa.string()),
        (ColumnType("decimal", length=38, scale=30), pa.decimal128(38, 30)),
        (ColumnType("decimal", length=39, scale=0), pa.string()),
        (ColumnType("time", scale=3), pa.int64()),
        (ColumnType("datetime", scale=0), pa.timestamp("us")),
        (ColumnType("timestamp"), pa.timestamp("us", "UTC")),
        (ColumnType("enum"), pa.uint16()),
        (ColumnType("set"), pa.uint64()),
        (ColumnType("set", elements=("a",)), pa.string()),
        (ColumnType("json"), pa.string()),
        (ColumnType("longblob"), pa.binary()),
    ],
    ids=str,
)
def test_each_type_has_one_arrow_type(column_type: ColumnType, expected: pa.DataType) -> None:
    assert arrow_type(column_type) == expected


def test_a_changelog_row_has_the_documented_columns() -> None:
    schema = table_arrow_schema(SCHEMA)
    assert schema.names == [
        "_op", "_commit_ts", "_topic", "_partition", "_offset", "_index", "_physical_table_id", "_key", "_partial",
        "_split", "before", "after", "_absent", "_lossy", "_exact",
    ]  # fmt: skip
    assert schema.field("before").type == schema.field("after").type
    assert [field.name for field in schema.field("after").type] == [column.name for column in COLUMNS]


def test_a_columns_metadata_say_mysqls_type_and_the_unit_of_time() -> None:
    image = table_arrow_schema(SCHEMA).field("after").type
    assert image.field("u dec").metadata == {b"mysql_type": b"decimal(38,10)"}
    assert image.field("time").metadata == {b"mysql_type": b"time(6)", b"unit": b"us"}


def test_pyarrow_reads_back_what_was_written(tmp_path: Path) -> None:
    file = write_one_row(tmp_path)
    found, wanted = pq.read_schema(file), table_arrow_schema(SCHEMA)
    assert found.equals(wanted)
    for name in ("time", "u dec"):
        assert (
            found.field("after").type.field(name).metadata.items()
            >= wanted.field("after").type.field(name).metadata.items()
        )


def test_duckdb_reads_every_type_as_what_it_is(tmp_path: Path) -> None:
    file = write_one_row(tmp_path)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    types = connection.execute(f"SELECT unnest(after) FROM '{file}'").description
    found = {name: str(type_) for name, type_, *_ in types or ()}
    assert found == {
        "tiny": "TINYINT", "u tiny": "UTINYINT", "u int": "UINTEGER", "u big": "UBIGINT", "float": "FLOAT",
        "double": "DOUBLE", "u dec": "DECIMAL(38,10)", "dec65": "VARCHAR", "bit": "UBIGINT", "year": "SMALLINT",
        "date": "DATE", "time": "BIGINT", "datetime": "TIMESTAMP", "ts": "TIMESTAMP WITH TIME ZONE", "text": "VARCHAR",
        "blob": "BLOB", "enum": "VARCHAR", "raw enum": "USMALLINT", "set": "VARCHAR", "raw set": "UBIGINT", "json": "VARCHAR",
    }  # fmt: skip
    row = connection.execute(
        f"""SELECT after."u big", after."u dec", after.datetime, after.ts AT TIME ZONE 'UTC', after.time,
                   _exact['after.date'], _absent, before IS NULL, after.date IS NULL, _key FROM '{file}'"""
    ).fetchone()
    assert row == (
        (1 << 64) - 1,
        Decimal("-1234567890123456789012345678.0123456789"),
        datetime.datetime(1, 1, 1, 0, 0, 0, 1),
        datetime.datetime(2038, 1, 19, 3, 14, 7, 999999),
        -3_020_399_000_001,
        b"0000-00-00",
        ["after.tiny"],
        True,
        True,
        b"0123456789abcdef",
    )
