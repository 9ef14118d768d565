"""Which PostgreSQL type a column has, which type can replace which, and how cells are staged.

Types are spelled as by ``format_type``, so planned types compare with the catalogue as text. See docs/types.md.
"""

import re
from functools import partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, ColumnType
from ticdc_replay.targets.mirror.planning.dialect import Check

_BIGGEST_BIT_WIDTH = 63
"""A wider BIT does not fit a signed 64-bit integer."""

_SIGNED = {"tinyint": "smallint", "smallint": "smallint", "mediumint": "integer", "int": "integer", "bigint": "bigint"}
_UNSIGNED = {
    "tinyint": "smallint",
    "smallint": "integer",
    "mediumint": "integer",
    "int": "bigint",
    "bigint": "numeric(20,0)",
}
_PLAIN = {
    "float": "real",
    "double": "double precision",
    "year": "smallint",
    "date": "date",
    "time": "interval",
    "json": "json",
    "vector": "text",
    "set": "numeric(20,0)",
    "enum": "integer",
}
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_INTEGERS = ("smallint", "integer", "bigint")
_NUMERIC = re.compile(r"numeric(?:\((\d+),(\d+)\))?")
_MOMENT = re.compile(r"timestamp(?:\((\d)\))? (with|without) time zone")
_ALL_FRACTION_DIGITS = 6


def pg_type(column_type: ColumnType, *, in_key: bool = False) -> str:
    """The type of the column in a mirror. It holds every value that the changelog's typed cell holds, but NUL in text."""
    base = column_type.base
    if base in _SIGNED:
        return (_UNSIGNED if column_type.unsigned else _SIGNED)[base]
    if base == "decimal":
        return "numeric" if column_type.length is None else f"numeric({column_type.length},{column_type.scale or 0})"
    if base == "bit":
        narrow = column_type.length is not None and column_type.length <= _BIGGEST_BIT_WIDTH
        return "bigint" if narrow else "numeric(20,0)"
    if base in ("datetime", "timestamp"):
        digits = "" if column_type.scale is None else f"({column_type.scale})"
        return f"timestamp{digits} {'with' if base == 'timestamp' else 'without'} time zone"
    if base in CHARACTER_TYPES or column_type.elements is not None:
        return "text"
    if base in BINARY_TYPES:
        return "bytea"
    return _PLAIN[base]


def holds(wide: str, narrow: str) -> bool:
    """Whether a column of type *wide* holds every value of *narrow* unaltered, and reads as the upstream does."""
    if wide == narrow:
        return True
    if wide in _INTEGERS and narrow in _INTEGERS:
        return _INTEGERS.index(wide) > _INTEGERS.index(narrow)
    wide_numeric = _NUMERIC.fullmatch(wide)
    if wide_numeric is not None:
        return _numeric_holds(wide_numeric, narrow)
    wide_moment, narrow_moment = _MOMENT.fullmatch(wide), _MOMENT.fullmatch(narrow)
    if wide_moment is not None and narrow_moment is not None:
        digits = [int(match[1] or _ALL_FRACTION_DIGITS) for match in (wide_moment, narrow_moment)]
        return wide_moment[2] == narrow_moment[2] and digits[0] >= digits[1]
    return (wide, narrow) == ("double precision", "real")


def _numeric_holds(wide: re.Match[str], narrow: str) -> bool:
    narrow_numeric = _NUMERIC.fullmatch(narrow)
    if wide[1] is None:
        return narrow_numeric is not None or narrow in _INTEGERS
    precision, scale = int(wide[1]), int(wide[2])
    if narrow in _INTEGERS:
        return precision - scale >= _DIGITS[narrow]
    if narrow_numeric is None or narrow_numeric[1] is None:
        return False
    narrow_precision, narrow_scale = int(narrow_numeric[1]), int(narrow_numeric[2])
    return scale >= narrow_scale and precision - scale >= narrow_precision - narrow_scale


def stage_type(type_name: str) -> str:
    """The type of the column in staging: a numeric of unknown scale is staged as text, which keeps its digits."""
    return "text" if type_name == "numeric" else type_name


_STAGED: dict[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "numeric": pa.string(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "date": pa.date32(),
    "interval": pa.duration("us"),
    "text": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
}


def staged_arrow_type(type_name: str) -> pa.DataType:
    """The Arrow type whose binary COPY form is that of ``stage_type(type_name)``: COPY converts nothing."""
    numeric = _NUMERIC.fullmatch(type_name)
    if numeric is not None and numeric[1] is not None:
        precision, scale = int(numeric[1]), int(numeric[2])
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    moment = _MOMENT.fullmatch(type_name)
    if moment is not None:
        return pa.timestamp("us", "UTC") if moment[2] == "with" else pa.timestamp("us")
    return _STAGED[type_name]


def staged_cells(cells: pa.Array, type_name: str) -> pa.Array:
    """*cells* of the changelog as ``staged_arrow_type(type_name)``. They passed the column's ``check``."""
    wanted = staged_arrow_type(type_name)
    if cells.type == wanted:
        return cells
    if pa.types.is_integer(cells.type) and pa.types.is_decimal(wanted):
        # Arrow casts an integer only to a decimal with room for every value of its type.
        return cells.cast(pa.decimal128(20, 0)).cast(wanted)
    return cells.cast(wanted)


MAX_ENTRY_BYTES = 2696
"""What the columns of an entry of an index have room for: 2,704 bytes with its header."""

MAX_JSON_DEPTH = 500
"""Levels of JSON that every PostgreSQL parses: 791 fit the smallest ``max_stack_depth``, 100 kB, and 16,375 its default."""

_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[{\]}]+")


def checks_of(type_name: str, cells: pa.DataType) -> list[tuple[Check, str]]:
    """Checks of changelog cells of Arrow type *cells* before they are staged as *type_name*, each with its reason; none
    if every cell fits."""
    checks: list[tuple[Check, str]] = []
    if type_name in ("text", "json") and pa.types.is_string(cells):
        has_nul = partial(pc.match_substring, pattern="\0")
        checks.append((has_nul, "the character NUL, which PostgreSQL's text can't hold"))
    if type_name == "json":
        checks.append((_is_too_deep, f"JSON of more than {MAX_JSON_DEPTH} levels, one in the other"))
    numeric = _NUMERIC.fullmatch(type_name)
    if numeric is not None and pa.types.is_string(cells):
        pattern = r"^-?\d+(\.\d+)?$"
        if numeric[1] is not None:
            whole, scale = int(numeric[1]) - int(numeric[2]), int(numeric[2])
            fraction = rf"(\.\d{{1,{scale}}})?" if scale else ""
            digits = rf"0*\d{{1,{whole}}}" if whole else "0+"
            pattern = rf"^-?{digits}{fraction}$"
        reason = f"more digits than {type_name} holds"
        checks.append((lambda array: pc.invert(pc.match_substring_regex(array, pattern)), reason))
    return checks


def entry_bytes(type_name: str, cells: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of ``MAX_ENTRY_BYTES`` that each of *cells* takes in an index at most, aligned. Compression of long
    ones depends on server and column, and is not counted on."""
    if not (pa.types.is_string(cells.type) or pa.types.is_binary(cells.type)):
        return np.full(len(cells), 48)
    header = 16 if type_name.startswith("numeric") else 4
    lengths = pc.fill_null(pc.binary_length(cells), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    aligned: npt.NDArray[np.int64] = (lengths + (header + 7)) & ~7
    return aligned


def _is_too_deep(texts: pa.Array) -> pa.Array:
    """Few texts have so many brackets, so only those are looked at one by one, at about 10 ns a byte."""
    deep = pc.greater(pc.binary_length(texts), MAX_JSON_DEPTH)
    if not pc.any(deep).as_py():
        return deep
    long = pc.if_else(deep, texts, None)
    opened = pc.add(pc.count_substring(long, "["), pc.count_substring(long, "{"))
    found = np.zeros(len(texts), dtype=bool)
    for at in pc.indices_nonzero(pc.greater(opened, MAX_JSON_DEPTH)).to_pylist():
        found[at] = _json_depth(texts[at].as_py()) > MAX_JSON_DEPTH
    return pa.array(found)


def _json_depth(text: str) -> int:
    """How many objects and arrays stand in one another at most; of a text that is not JSON, about."""
    brackets = _NO_BRACKETS.sub("", _JSON_STRING.sub("", text))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
