"""Which Arrow type a column has in the changelog, and the layout of a changelog row.

The mapping with its reasons, and what Spark, DuckDB and PostgreSQL make of it, is in docs/types.md.
"""

import pyarrow as pa

from ticdc_replay.domain.column_types import BINARY_TYPES, ColumnType
from ticdc_replay.domain.tables import Column, TableSchema

MAX_DECIMAL_DIGITS = 38
"""The widest decimal that Parquet readers (Spark, DuckDB) have a type for; MySQL goes to 65."""

CELLS_TYPE = pa.list_(pa.string())
"""Names of cells, as ``before.x`` and ``after.x``."""
EXACT_TYPE = pa.map_(pa.string(), pa.binary())

_FIXED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bit": pa.uint64(),
    "year": pa.int16(),
    "date": pa.date32(),
    "time": pa.int64(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
_UNSIGNED = {
    "tinyint": pa.uint8(),
    "smallint": pa.uint16(),
    "mediumint": pa.uint32(),
    "int": pa.uint32(),
    "bigint": pa.uint64(),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The type of the column's cells. Where it can't hold a value, the row's ``_exact`` does.

    Decimals wider than 38 digits or of unknown precision are exact text; enum and set are names where the names are
    known, else the index (uint16) or bit mask (uint64); time is microseconds, negative and beyond 24 h included.
    """
    base = column_type.base
    if base == "decimal":
        if column_type.length is None or column_type.length > MAX_DECIMAL_DIGITS:
            return pa.string()
        return pa.decimal128(column_type.length, column_type.scale or 0)
    if base in ("enum", "set"):
        if column_type.elements is not None:
            return pa.string()
        return pa.uint16() if base == "enum" else pa.uint64()
    if base in BINARY_TYPES:
        return pa.binary()
    if column_type.unsigned and base in _UNSIGNED:
        return _UNSIGNED[base]
    return _FIXED.get(base, pa.string())


def arrow_field(column: Column) -> pa.Field:
    """The column as a member of an image: nullable, since any cell may be absent; metadata say MySQL's type."""
    metadata = {"mysql_type": str(column.type)}
    if column.type.base == "time":
        metadata["unit"] = "us"
    return pa.field(column.name, arrow_type(column.type), metadata=metadata)


def image_type(schema: TableSchema) -> pa.StructType:
    """The type of ``before`` and ``after`` for rows of *schema*."""
    return pa.struct([arrow_field(column) for column in schema.columns])


def table_arrow_schema(schema: TableSchema) -> pa.Schema:
    """The layout of a changelog row (docs/architecture.md) for rows of *schema*."""
    image = image_type(schema)
    return pa.schema(
        [
            pa.field("_op", pa.string(), nullable=False),
            pa.field("_commit_ts", pa.int64()),
            pa.field("_topic", pa.string(), nullable=False),
            pa.field("_partition", pa.int32(), nullable=False),
            pa.field("_offset", pa.int64(), nullable=False),
            pa.field("_index", pa.int32(), nullable=False),
            pa.field("_physical_table_id", pa.int64()),
            pa.field("_key", pa.binary(16)),
            pa.field("_partial", pa.bool_(), nullable=False),
            pa.field("_split", pa.bool_(), nullable=False),
            pa.field("before", image),
            pa.field("after", image),
            pa.field("_absent", CELLS_TYPE),
            pa.field("_lossy", CELLS_TYPE),
            pa.field("_exact", EXACT_TYPE),
        ]
    )
