"""One column of neutral values → one Arrow array, whole columns at a time."""

from collections.abc import Sequence
from typing import Any

from ticdc_replay.changelog.cells.judging import Converted
from ticdc_replay.changelog.cells.numbers import decimal_cells, float_cells, integer_cells
from ticdc_replay.changelog.cells.text import byte_cells, name_cells, text_cells
from ticdc_replay.changelog.cells.times import date_cells, moment_cells, time_cells
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType


def typed_array(values: Sequence[Any], column_type: ColumnType, zone: str) -> Converted:
    """*values* (neutral form, None for NULL) as cells of *column_type*; timestamps are text in the zone *zone*.

    Never raises for a value: see ``Converted``. Raises ConfigError for an unknown zone.
    """
    base = column_type.base
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return integer_cells(values, column_type)
    if base in ("float", "double"):
        return float_cells(values, column_type)
    if base == "decimal":
        return decimal_cells(values, column_type)
    if base == "date":
        return date_cells(values)
    if base == "time":
        return time_cells(values)
    if base in ("datetime", "timestamp"):
        return moment_cells(values, column_type, zone)
    if base in ("enum", "set"):
        return integer_cells(values, column_type) if column_type.elements is None else name_cells(values, column_type)
    if base in BINARY_TYPES:
        return byte_cells(values)
    return text_cells(values)
