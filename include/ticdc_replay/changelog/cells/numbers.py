"""Cells of numbers: integers, bit, year, float, double, decimal."""

import decimal
import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.judging import (
    REFUSED,
    Converted,
    DoesNotFit,
    array_of,
    judged,
    matched,
    refuse_other_kinds,
    within,
)
from ticdc_replay.changelog.cells.text import text_cells
from ticdc_replay.changelog.cells.types import arrow_type
from ticdc_replay.domain.column_types import INTEGER_TYPES, ColumnType, integer_range
from ticdc_replay.domain.withheld import withheld

_INTEGER_OR_NULL: set[type] = {int, type(None)}
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def integer_cells(values: Sequence[Any], column_type: ColumnType) -> Converted:
    """Integer types, BIT, YEAR, and ENUM and SET by number. A name of an enum or set whose names are not known is exact."""
    arrow = arrow_type(column_type)
    low, high = _integer_range(column_type, arrow)
    try:
        refuse_other_kinds(values, _INTEGER_OR_NULL)  # Arrow would cut the fraction off a float
        array = pa.array(values, arrow)
    except REFUSED:
        pass
    else:
        if column_type.base not in ("mediumint", "bit") or within(array, low, high):
            return Converted(array, {}, {})

    def judge(value: Any) -> int:
        if isinstance(value, str) and column_type.base in ("enum", "set"):
            raise DoesNotFit(value.encode("utf-8", "surrogatepass"))
        if type(value) is not int:
            raise ValueError(f"{withheld(value)} is not an integer")
        if not low <= value <= high:
            raise DoesNotFit(str(value).encode())
        return value

    return judged(values, judge, lambda fitting: pa.array(fitting, arrow))


def _integer_range(column_type: ColumnType, arrow: pa.DataType) -> tuple[int, int]:
    if column_type.base in INTEGER_TYPES:
        return integer_range(column_type)
    bits = arrow.bit_width
    if column_type.base == "bit" and column_type.length is not None:
        bits = column_type.length
    if pa.types.is_unsigned_integer(arrow):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def float_cells(values: Sequence[Any], column_type: ColumnType) -> Converted:
    """FLOAT and DOUBLE. FLOAT is the shortest text of a 32-bit number: read as 64 bits and rounded it is that number."""

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pa.array(fitting, pa.float64()).cast(arrow, safe=False)

    arrow = arrow_type(column_type)
    try:
        array = build(values)
    except REFUSED:
        array = None
    if array is not None and not pc.any(pc.is_inf(array)).as_py():
        return Converted(array, {}, {})

    def judge(value: Any) -> float:
        if isinstance(value, int) and abs(value) > 1 << 53:
            raise DoesNotFit(str(value).encode())
        if not isinstance(value, (int, float)):
            raise ValueError(f"{withheld(value)} is not a number")
        if math.isinf(build([value])[0].as_py()):
            raise DoesNotFit(repr(value).encode())
        return float(value)

    return judged(values, judge, build)


def decimal_cells(values: Sequence[Any], column_type: ColumnType) -> Converted:
    """DECIMAL, from exact text. More digits than declared do not fit."""
    arrow = arrow_type(column_type)
    if pa.types.is_string(arrow):
        return text_cells(values)

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(pa.array(fitting, pa.string()), arrow)

    try:
        texts = array_of(values, pa.string())
        # Arrow reads 1E-78 as 0: what has an exponent is judged below.
        if not pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
            return Converted(pc.cast(texts, arrow), {}, {})
    except REFUSED:
        pass
    step = decimal.Decimal(1).scaleb(-arrow.scale)
    limit = decimal.Decimal(1).scaleb(arrow.precision - arrow.scale)
    context = decimal.Context(prec=200)

    def judge(value: Any) -> str:
        matched(_DECIMAL, value, "a decimal number")
        number = decimal.Decimal(value)
        # Not abs(), which rounds to 28 digits.
        if number.copy_abs() >= limit or number.remainder_near(step, context) != 0:
            raise DoesNotFit(value.encode())
        # Arrow reads only exponents that are near the scale, not those of 0E40.
        return format(number.quantize(step, context=context), "f")

    return judged(values, judge, build)
