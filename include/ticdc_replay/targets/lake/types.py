"""Which type of Spark SQL a column of a lake table has, which type can replace which, and how cells are staged.

Types are spelled as Spark's ``simpleString``. Both formats get the same ones: Iceberg has no integers below 32 bits.
See docs/types.md.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_replay.changelog.cells.types import MAX_DECIMAL_DIGITS
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, ColumnType
from ticdc_replay.targets.mirror.planning.dialect import Check

_WIDE_INTEGER = "decimal(20,0)"
"""Of 64 bits without sign."""
_BIGGEST_BIT_WIDTH = 63
"""A wider BIT does not fit a signed 64-bit integer."""

_SIGNED = {"tinyint": "int", "smallint": "int", "mediumint": "int", "int": "int", "bigint": "bigint"}
_UNSIGNED = {"tinyint": "int", "smallint": "int", "mediumint": "int", "int": "bigint", "bigint": _WIDE_INTEGER}
_PLAIN = {
    "float": "float",
    "double": "double",
    "year": "int",
    "date": "date",
    "time": "bigint",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "json": "string",
    "vector": "string",
    "set": _WIDE_INTEGER,
    "enum": "int",
}
_DIGITS = {"int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")

_STAGED: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def spark_type(column_type: ColumnType, *, in_key: bool = False) -> str:
    """The type of the column. It holds every value that the changelog's typed cell holds."""
    base = column_type.base
    if base in _SIGNED:
        return (_UNSIGNED if column_type.unsigned else _SIGNED)[base]
    if base == "decimal":
        if is_text(column_type):
            return "string"
        return f"decimal({column_type.length},{column_type.scale or 0})"
    if base == "bit":
        narrow = column_type.length is not None and column_type.length <= _BIGGEST_BIT_WIDTH
        return "bigint" if narrow else _WIDE_INTEGER
    if base in CHARACTER_TYPES or column_type.elements is not None:
        return "string"
    if base in BINARY_TYPES:
        return "binary"
    return _PLAIN[base]


def is_text(column_type: ColumnType) -> bool:
    """Whether a decimal is mirrored as its exact text: of more digits than Parquet's readers have, or of unknown ones."""
    return column_type.base == "decimal" and (column_type.length is None or column_type.length > MAX_DECIMAL_DIGITS)


def holds(wide: str, narrow: str) -> bool:
    """Whether a column of type *wide* holds every value of *narrow* unaltered, and reads as the upstream does."""
    if wide == narrow or (wide, narrow) in (("bigint", "int"), ("double", "float")):
        return True
    decimal = _DECIMAL.fullmatch(wide)
    if decimal is None:
        return False
    whole, scale = int(decimal[1]) - int(decimal[2]), int(decimal[2])
    if narrow in _DIGITS:
        return whole >= _DIGITS[narrow]
    other = _DECIMAL.fullmatch(narrow)
    return other is not None and scale >= int(other[2]) and whole >= int(other[1]) - int(other[2])


def staged_arrow_type(type_name: str) -> pa.DataType:
    """The Arrow type in which cells of a type are staged."""
    decimal = _DECIMAL.fullmatch(type_name)
    return _STAGED[type_name] if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def staged_cells(cells: pa.Array, type_name: str) -> pa.Array:
    """*cells* of the changelog as ``staged_arrow_type(type_name)``."""
    wanted = staged_arrow_type(type_name)
    if cells.type == wanted:
        return cells
    if pa.types.is_integer(cells.type) and pa.types.is_decimal(wanted):
        # Arrow casts an integer only to a decimal with room for every value of its type.
        return cells.cast(pa.decimal128(20, 0)).cast(wanted)
    return cells.cast(wanted)


def checks_of(type_name: str, cells: pa.DataType) -> list[tuple[Check, str]]:
    """None: each type holds every typed cell of the changelog."""
    return []


def entry_bytes(type_name: str, cells: pa.Array) -> npt.NDArray[np.int64]:
    """Nothing: a lake table has no index."""
    return np.zeros(len(cells), dtype=np.int64)
