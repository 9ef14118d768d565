"""The statements that re-read rows from the source, and how key cells become their parameters.

Every column is selected so that its cell comes exactly, whatever the server's settings: see ``_selected``. Values are never
part of a statement's text; names are quoted.
"""

import math
import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.withheld import withheld
from ticdc_replay.mysql_protocol import quoted

SESSION = "SET time_zone = '+00:00', sql_mode = '', character_set_results = utf8mb4"
"""TIMESTAMP cells come in UTC, CHAR cells without padding, text in UTF-8."""
SAFE_POINT = "SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'tikv_gc_safe_point'"

_MAX_KEY_BYTES = 12_288
"""What TiDB's max-index-length allows at most."""
_DECIMAL = re.compile(r"-?[0-9]{1,65}(?:\.[0-9]{1,30})?")


class Statement(NamedTuple):
    """SQL with placeholders, and what goes into them."""

    sql: str
    parameters: tuple[Any, ...] = ()


def at_snapshot(tso: int) -> Statement:
    """What makes all later reads of the session see the source, and its table definitions, as of *tso*.

    The one statement that only TiDB has.
    """
    return Statement("SET @@tidb_snapshot = %s", (str(tso),))


GENTLE: tuple[Statement, ...] = (Statement("SET @@tidb_distsql_scan_concurrency = 4"),)
"""Make long reads of the session take less of TiKV than the default of 15 tasks at once. TiDB alone has it: System
Variables in its documentation."""

TABLES = Statement("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
"""Schema and name of each table as of the session's snapshot."""


def first_row(name: TableName) -> Statement:
    """One row if *name* has any."""
    return Statement(f"SELECT 1 FROM {quoted(name.schema)}.{quoted(name.table)} LIMIT 1")


def show_create(name: TableName) -> Statement:
    """The definition of *name* as of the session's snapshot: the second column of its row."""
    return Statement(f"SHOW CREATE TABLE {quoted(name.schema)}.{quoted(name.table)}")


def show_columns(name: TableName) -> Statement:
    """The columns of *name* as of the session's snapshot: name, type and collation are the first three of a row."""
    return Statement(f"SHOW FULL COLUMNS FROM {quoted(name.schema)}.{quoted(name.table)}")


def select_rows(definition: TableDefinition, key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Statement:
    """The rows of a table whose columns *key* have one of *values* (each as ``key_cell`` gives them), at most one more than
    *values*.

    Columns are those of ``definition.schema()``, in that order.
    """
    columns = ", ".join(_selected(column.name, column.type) for column in definition.schema().columns)
    names = ", ".join(map(quoted, key))
    one = "(" + ", ".join(["%s"] * len(key)) + ")"
    condition = f"({names}) IN ({', '.join([one] * len(values))})"
    table = f"{quoted(definition.name.schema)}.{quoted(definition.name.table)}"
    parameters = tuple(cell for cells in values for cell in cells)
    return Statement(f"SELECT {columns} FROM {table} WHERE {condition} LIMIT {len(values) + 1}", parameters)


def _selected(name: str, column_type: ColumnType) -> str:
    if column_type.base in ("bit", "enum", "set"):
        return f"CAST({quoted(name)} AS UNSIGNED)"  # as number: a name does not tell enum 0 from the empty name
    if column_type.base == "float":
        return f"{quoted(name)} * 1e0"  # as double: MySQL prints six digits of a float
    return quoted(name)


def key_cells(key: Sequence[Any], types: Sequence[ColumnType], zone: str) -> tuple[Any, ...]:
    """A key's neutral values for columns of *types*, each as ``key_cell`` gives it.

    Raises ValueError also where they are longer than any index holds: what a message says must not be longer than what the source
    reads of a statement (``max_allowed_packet``).
    """
    size = sum(len(_encoded(value)) for value in key if isinstance(value, str | bytes))
    if size > _MAX_KEY_BYTES:
        raise ValueError(f"a key of {size} bytes; an index holds no more than {_MAX_KEY_BYTES}")
    return tuple(key_cell(value, column_type, zone) for value, column_type in zip(key, types, strict=True))


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def key_cell(value: Any, column_type: ColumnType, zone: str) -> Any:
    """A key's neutral *value* in the one form in which equal cells are equal, and which the source compares exactly.

    *zone* is the changefeed's, in which its TIMESTAMP cells are. Raises ValueError where *value* is not of the type: messages say
    of themselves what their cells are, and compared as another type one value is equal to many (0 to most texts).
    """
    base = column_type.base
    if not isinstance(value, _kinds(base)):
        raise ValueError(f"a {type(value).__name__} is not a key of type {column_type}")
    if base == "decimal":
        if _DECIMAL.fullmatch(value) is None:
            raise ValueError(f"{withheld(value)} is not a decimal")
        return Decimal(value)
    if base in ("float", "double"):
        if not math.isfinite(value):
            raise ValueError(f"{withheld(value)} is not a number of the source")
        return struct.unpack("<f", struct.pack("<f", value))[0] if base == "float" else float(value)
    if base == "timestamp":
        return _in_utc(value, zone)
    if base in ("datetime", "time"):
        return _short_fraction(value)
    if base == "binary":
        return value.ljust(column_type.length or 1, b"\0")
    if base == "char":
        return value.rstrip(" ") if isinstance(value, str) else value.rstrip(b" ")
    if base in ("enum", "set") and isinstance(value, str):
        return _number(value, column_type)
    return value


def _kinds(base: str) -> tuple[type[Any], ...]:
    """What neutral values of the type *base* are (``WireColumn.neutral``)."""
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return (int,)
    if base in ("float", "double"):
        return (float,)
    if base in ("enum", "set"):
        return int, str
    if base in CHARACTER_TYPES or base in ("json", "vector"):
        return str, bytes
    return (bytes,) if base in BINARY_TYPES else (str,)


def _number(names: str, column_type: ColumnType) -> int:
    elements = column_type.elements or ()
    if column_type.base == "enum":
        return elements.index(names) + 1
    return sum(1 << elements.index(name) for name in names.split(",") if names)


def _in_utc(text: str, zone: str) -> str:
    if text.endswith("Z") or text.startswith("0000-00-00"):
        return _short_fraction(text.removesuffix("Z"))
    # A local time that clocks showed twice is taken as the first; the other is then not found, never mistaken for it.
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    return _short_fraction(moment.strftime("%Y-%m-%d %H:%M:%S.%f"))


def _short_fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
