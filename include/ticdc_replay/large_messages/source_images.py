"""Rows of the source as images: the cells that ``source_statements.select_rows`` asks for, in the neutral forms."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import Image, Shape, WireColumn
from ticdc_replay.domain.tables import folded

Neutral = Callable[[Sequence[Any]], Sequence[Any]]


class SourceRow(NamedTuple):
    """A row as the source gave it: bytes for the columns of ``definition.schema()``, in that order; None for NULL."""

    definition: TableDefinition
    values: tuple[bytes | None, ...]


def image_of(row: SourceRow, handle_key: tuple[str, ...], kept: tuple[str, ...]) -> Image:
    """*row* with the columns *kept*, keyed as its message says."""
    shape, places = _shape(row.definition, handle_key, kept)
    return Image(shape, tuple(row.values[at] for at in places))


@lru_cache(maxsize=1024)
def _shape(
    definition: TableDefinition, handle_key: tuple[str, ...], kept: tuple[str, ...]
) -> tuple[Shape, tuple[int, ...]]:
    columns = definition.schema().columns
    wanted, keys = set(kept), {folded(name) for name in handle_key}
    places = tuple(at for at, column in enumerate(columns) if column.name in wanted)
    wire = tuple(
        WireColumn(column.name, column.type, folded(column.name) in keys, neutral_of(column.type))
        for column in (columns[at] for at in places)
    )
    return Shape(wire), places


def _each(read: Callable[[bytes], Any]) -> Neutral:
    return lambda values: [None if value is None else read(value) for value in values]


def _ascii(value: bytes) -> str:
    return value.decode("ascii")


def _moment(value: bytes) -> str:
    text = _ascii(value)
    return text if text.startswith("0000-00-00") else text + "Z"  # the zero value is no moment in any zone


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


_INTEGERS, _FLOATS, _TEXTS = _each(int), _each(float), _each(_text)
_ASCII, _MOMENTS = _each(_ascii), _each(_moment)


def neutral_of(column_type: ColumnType) -> Neutral:
    """What turns cells of a source's column into the neutral form; raises ValueError for others (``WireColumn.neutral``)."""
    base = column_type.base
    if base in INTEGER_TYPES or base in ("bit", "enum", "set", "year"):
        return _INTEGERS
    if base in ("float", "double"):
        return _FLOATS
    if base in BINARY_TYPES:
        return list
    if base in CHARACTER_TYPES or base in ("json", "vector"):
        return _TEXTS
    return _MOMENTS if base == "timestamp" else _ASCII
