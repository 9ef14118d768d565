"""What the native extension must know about rows of one form, derived from a row that the Python codec read.

A form is what rows have in common: how they look on the wire, the schema they are written with, and the commitTs between which
both hold. The extension converts the ordinary values of a cell (``changelog/cells/convert.py``) and hands back the others.
"""

from typing import NamedTuple

import pyarrow as pa

from ticdc_replay.changelog.cells.types import arrow_type
from ticdc_replay.changelog.files.layout import refused
from ticdc_replay.codecs.native import NativeReader
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, BaseType, ColumnType
from ticdc_replay.domain.events import RowEvent, Shape
from ticdc_replay.schemas.resolve import ResolvedSchema

KindSpec = tuple[str, int, int, int, tuple[str, ...]]
"""Name, width or length, lowest and highest integer or digits after the point, and names of an enum or set."""
_SKIP: KindSpec = ("skip", 0, 0, 0, ())
_MAX_COLUMNS = 128
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64, "bit": 64}
_MAX_UINT64 = (1 << 64) - 1
_LONGEST_MOMENT = 26


class NativeColumn(NamedTuple):
    """One column of a form: its place among the schema's columns or None, and how cells are read."""

    to: int | None
    kind: KindSpec


class NativeForm(NamedTuple):
    """What all rows of one form have in common, but for the protocol's own."""

    columns: tuple[NativeColumn, ...]
    key: tuple[int, ...]
    """Places of the handle key's columns, in the order of their names."""


def form_of(row: RowEvent, resolved: ResolvedSchema, reader: NativeReader) -> NativeForm | None:
    """The form of *row*, whose schema is *resolved*; None where there is something about it that is not ordinary."""
    image = row.after if row.after is not None else row.before
    if resolved.unlike or refused(resolved.schema) is not None:
        return None
    unusual = row.large is not None or row.lossy or row.damage or row.before_unknown or row.commit_ts is None
    if image is None or unusual or len(image.shape.columns) > _MAX_COLUMNS:
        return None
    if row.before is not None and row.before.shape is not image.shape:
        return None
    return _form(image.shape, resolved, reader)


def _form(shape: Shape, resolved: ResolvedSchema, reader: NativeReader) -> NativeForm | None:
    places = {column.name: at for at, column in enumerate(resolved.schema.columns)}
    columns = []
    for column in shape.columns:
        to = places.get(column.name)
        kind = _SKIP if to is None else _kind(column.type.base, resolved.schema.columns[to].type, reader)
        if kind is None:
            return None
        columns.append(NativeColumn(to, kind))
    if any(columns[at].to is None for at in shape.handle_key_positions):
        return None
    return NativeForm(tuple(columns), shape.handle_key_positions)


def _kind(wire: BaseType, target: ColumnType, reader: NativeReader) -> KindSpec | None:
    base = target.base
    arrow = arrow_type(target)
    if base in _INTEGER_BITS:
        bits = target.length if base == "bit" and target.length is not None else _INTEGER_BITS[base]
        if target.unsigned or base == "bit":
            return ("integer", arrow.bit_width // 8, 0, (1 << bits) - 1, ())
        return ("integer", arrow.bit_width // 8, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, ())
    if base == "year":
        return ("integer", 2, 0, 2155, ())
    if base in ("float", "double"):
        return ("float32" if base == "float" else "float64", 0, 0, 0, ())
    if base == "decimal":
        if pa.types.is_string(arrow):
            return ("decimal_text", 0, 0, 0, ())
        return ("decimal", arrow.precision, 0, target.scale or 0, ())
    if base in ("date", "time"):
        return (base, 0, 0, 0, ())
    if base in ("datetime", "timestamp"):
        longest = _LONGEST_MOMENT if target.scale is None else 20 + target.scale if target.scale else 19
        return (base, longest, 0, 0, ())
    if base in ("enum", "set"):
        if target.elements is not None:
            return (base, 0, 0, 0, target.elements)
        return ("integer", 2, 0, 65_535, ()) if base == "enum" else ("integer", 8, 0, _MAX_UINT64, ())
    if base in BINARY_TYPES:
        return (reader.bytes_as(wire), 0, 0, 0, ())
    if base in CHARACTER_TYPES or base == "json":
        return (reader.text_as(wire), 0, 0, 0, ())
    return None
