"""What older rows show in a column that ADD COLUMN adds to a mirror; or why that is unknown or can't be held.

A default is judged like a row's value: without a typed cell, or refused by staging, it is no default of the mirror.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.visible import visible
from ticdc_replay.schemas.changes import ColumnAdded
from ticdc_replay.targets.mirror.planning.dialect import Dialect

_SHOWN = 200
"""Characters of a default that a message shows."""


def fill_of(change: ColumnAdded, type_name: str, dialect: Dialect) -> tuple[str | None, str | None]:
    """The literal that older rows show in a column of the type *type_name*, None for NULL; and why there is none, or None."""
    name, text, column_type = change.column.name, change.fill, change.column.type
    if not change.fill_known:
        return None, f"what rows from before the DDL show in {name} was decided by the server when it ran"
    if text is None:
        return None, None
    declared = dialect.type_of(column_type)
    by_number = dialect.type_of(ColumnType(column_type.base))
    if column_type.base in ("enum", "set") and dialect.holds(type_name, by_number):
        return None, f"{name} is mirrored by number, and the DDL names the default"
    if not dialect.holds(type_name, declared):
        return None, f"{name} is {declared} by the DDL and {type_name} in rows of the window"
    cells, misfit = _judged(name, text, column_type, dialect)
    if misfit is not None:
        return None, misfit
    return dialect.literal(text, column_type, cells, type_name), None


def _judged(name: str, text: str, column_type: ColumnType, dialect: Dialect) -> tuple[pa.Array, str | None]:
    """The default *text* of the column *name* as a cell; and why *column_type* or a mirror lacks it, None where they have it."""
    shown = visible(text[:_SHOWN])
    no_value = (
        f"{shown} is no {column_type.base} that {name} holds, so the server decided what rows from before the DDL show"
    )
    try:
        value = _neutral(text, column_type)
    except ValueError:
        return None, no_value
    converted = typed_array([value], column_type, "UTC")
    if converted.exact and column_type.base in ("date", "datetime"):
        if dialect.takes_exact(dialect.type_of(column_type), text.encode()):
            return converted.array, None
        return None, f"rows from before the DDL show {shown} in {name}, which {dialect.database} can't hold"
    if converted.exact or converted.bad:
        return None, no_value
    for check, reason in dialect.checks_of(dialect.type_of(column_type), converted.array.type):
        if pc.any(check(converted.array)).as_py():
            return None, f"rows from before the DDL show in {name} {reason}"
    return converted.array, None


def _neutral(text: str, column_type: ColumnType) -> int | float | str | bytes:
    """A default, which is text, as codecs hand on values of the type. Raises ValueError where it is none."""
    base = column_type.base
    if base in INTEGER_TYPES or base in ("bit", "year", "float", "double"):
        if not text.isascii():  # digits of other scripts, which databases do not read
            raise ValueError(text)
        return float(text) if base in ("float", "double") else int(text)
    return text.encode("latin-1") if base in BINARY_TYPES else text
