"""A value as a person writes it, as the cell that a changelog has of it.

Dates and times are MySQL's text; a TIMESTAMP is in the changefeed's zone, or in UTC with a Z at its end. Bytes are hex
with ``0x``. An ENUM or SET is its name where the names are known, else its number.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_HEX = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)", re.ASCII)
_FRACTION = re.compile(r"(:\d\d)\.(\d*?)0*(Z?)\Z", re.ASCII)
MOMENT_TYPES = frozenset({"date", "time", "datetime", "timestamp"})


class WrittenCell(NamedTuple):
    """One value, which is not NULL, as a cell of ``type``. ``array`` has this one cell. Where the type can't hold the
    value, as of a zero date, the cell is NULL and ``exact`` is the value's text."""

    type: ColumnType
    array: pa.Array
    exact: str | None

    def is_in(self, cells: pa.Array) -> pa.BooleanArray:
        """Which of *cells*, which have the type of ``array``, are the value. None is, where only ``exact`` has it."""
        if self.exact is None and self.type.base == "decimal" and pa.types.is_string(cells.type):
            wanted = _number(self.array[0].as_py())  # one number has several texts
            return pa.array([text is not None and _number(text) == wanted for text in cells.to_pylist()], pa.bool_())
        return pc.fill_null(pc.equal(cells, self.array[0]), False)

    def is_exactly(self, text: bytes) -> bool:
        """Whether *text*, what the wire had where its type can't hold it, is the value."""
        return self.exact is not None and shortest(text.decode(errors="replace")) == self.exact


def written_cell(text: str, column_type: ColumnType, zone: str) -> WrittenCell:
    """*text* as a cell of *column_type*; *zone* is the changefeed's.

    Raises ValueError for a text that is no value of the type, and ConfigError for an unknown zone.
    """
    base, names_known = column_type.base, column_type.elements is not None
    converted = typed_array([_neutral(text, column_type)], column_type, zone)
    if converted.bad:
        raise ValueError(converted.bad[0])
    if not converted.exact:
        return WrittenCell(column_type, converted.array, None)
    if base in MOMENT_TYPES or (base in ("enum", "set") and not names_known):
        return WrittenCell(column_type, converted.array, shortest(text))
    raise ValueError(f"{text!r} is out of its range")


def _neutral(text: str, column_type: ColumnType) -> Any:
    """*text* in the form of ``WireColumn.neutral``."""
    base = column_type.base
    is_integer = _INTEGER.fullmatch(text) is not None
    if base in INTEGER_TYPES or base in ("bit", "year"):
        if not is_integer:
            raise ValueError(f"{text!r} is not an integer")
        return int(text)
    if base in ("enum", "set"):
        return int(text) if is_integer and column_type.elements is None else text
    if base in ("float", "double", "decimal"):
        if _number(text) is None:
            raise ValueError(f"{text!r} is not a number")
        return text if base == "decimal" else float(text)
    if base in BINARY_TYPES:
        found = _HEX.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not bytes in hex, such as 0x00ff")
        return bytes.fromhex(found[1])
    return shortest(text) if base in MOMENT_TYPES else text


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def shortest(text: str) -> str:
    """*text* of a moment, of ``MOMENT_TYPES``, without the zeros that end a fraction of a second."""
    return _FRACTION.sub(lambda found: found[1] + (found[2] and f".{found[2]}") + found[3], text)
