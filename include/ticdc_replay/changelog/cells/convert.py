"""Rows → the image columns of the changelog, a batch at a time.

Hot: measured on one core with the 10 columns of the workload capture, see docs/decisions.md. Rows of one call share a
resolved schema but not always a shape (member order, key-only deletes, updated columns); the common case of a single shape
is transposed at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from operator import attrgetter, is_not
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.changelog.cells.judging import Converted
from ticdc_replay.changelog.cells.types import CELLS_TYPE, EXACT_TYPE, image_type
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import Image, RowEvent, Shape, WireColumn
from ticdc_replay.domain.failure import failure
from ticdc_replay.schemas.resolve import ResolvedSchema

BATCH_MAX_BYTES = 256 * 1024 * 1024
"""Of the images and names of cells of a batch. An Arrow array of text holds 2 GiB, and copies of arrays are made on their way to
the file."""
_OFFSET_BYTES = 4
"""Of Arrow, for each text in an array."""
_REFERENCE_BYTES = 8
"""Of Python, for each value in a list."""


class BatchTooLargeError(ValueError):
    """Several rows that are more than ``BATCH_MAX_BYTES`` together."""


class ConvertedRows(NamedTuple):
    """The image columns of a batch, one element per row, in row order.

    ``bad`` maps a row's position to the reason why it has to go to quarantine; its elements in the arrays are without
    meaning and must not be written.
    """

    before: pa.StructArray
    after: pa.StructArray
    absent: pa.ListArray
    lossy: pa.ListArray
    exact: pa.MapArray
    bad: dict[int, str]


def rows_to_batches(rows: Sequence[RowEvent], resolved: ResolvedSchema, zone: str) -> Iterator[ConvertedRows]:
    """*rows* as ``rows_to_batch`` converts them, in their order: in one batch, or in several where they are too many bytes."""
    if not rows:
        return
    try:
        converted = rows_to_batch(rows, resolved, zone)
    except BatchTooLargeError:
        middle = len(rows) // 2
        yield from rows_to_batches(rows[:middle], resolved, zone)
        yield from rows_to_batches(rows[middle:], resolved, zone)
    else:
        yield converted


def rows_to_batch(rows: Sequence[RowEvent], resolved: ResolvedSchema, zone: str) -> ConvertedRows:
    """The images of *rows*, which all have the schema *resolved*; TIMESTAMP text is in the zone *zone*.

    Never raises for a value. Raises ConfigError for an unknown zone, ValueError for a row that has columns *resolved*
    lacks, BatchTooLargeError for several rows of more than ``BATCH_MAX_BYTES``. A single row is never too large.
    """
    room = _Room(len(rows))
    exact: dict[int, list[tuple[str, bytes]]] = {}
    bad: dict[int, str] = {}
    images = []
    shapes: set[Shape] = set()
    for side in ("before", "after"):
        array, side_shapes, side_exact, side_bad = _images(list(map(attrgetter(side), rows)), resolved, zone, room)
        images.append(array)
        shapes |= side_shapes
        for row_at, cells in side_exact.items():
            exact.setdefault(row_at, []).extend((f"{side}.{name}", text) for name, text in cells)
        for row_at, reason in side_bad.items():
            bad.setdefault(row_at, f"{side}.{reason}")
    return ConvertedRows(
        images[0],
        images[1],
        _absent(rows, shapes, resolved, room),
        _lossy(rows, resolved, room),
        _exact(len(rows), exact, room),
        bad,
    )


class _Room:
    """The bytes that *rows* may still become."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._left = BATCH_MAX_BYTES

    def take(self, size: int) -> None:
        """Raises BatchTooLargeError where *size* bytes are too many."""
        self._left -= size
        if self._left < 0 and self._rows > 1:
            raise BatchTooLargeError(f"{self._rows} rows are more than {BATCH_MAX_BYTES} bytes")


def neutral_values(values: Sequence[Any], column: WireColumn) -> tuple[Sequence[Any], dict[int, str]]:
    """The neutral form of *values*, and the reasons at the positions of those that are not of the column's type."""
    try:
        return column.neutral(values), {}
    except BaseException as error:
        reason = str(error) if isinstance(error, ValueError) else failure(error)
        if len(values) == 1:
            return [None], {0: reason}
    middle = len(values) // 2
    left, bad = neutral_values(values[:middle], column)
    right, bad_right = neutral_values(values[middle:], column)
    return [*left, *right], {**bad, **{at + middle: reason for at, reason in bad_right.items()}}


def _typed(values: Sequence[Any], target: ColumnType, zone: str, room: _Room) -> Converted:
    """*values* as ``typed_array`` has them; those at which it fails are ``bad``, found by halving."""
    try:
        converted = typed_array(values, target, zone)
    except BaseException as error:
        reason = failure(error)
    else:
        room.take(converted.array.nbytes)  # in chunks, as Arrow makes more than 2 GiB, it is too large as well
        return converted
    if len(values) == 1:
        return typed_array([None], target, zone)._replace(bad={0: reason})
    middle = len(values) // 2
    left, right = (_typed(part, target, zone, room) for part in (values[:middle], values[middle:]))
    return Converted(
        pa.concat_arrays([left.array, right.array]),
        left.exact | {at + middle: text for at, text in right.exact.items()},
        left.bad | {at + middle: why for at, why in right.bad.items()},
    )


_SHAPE_OF = attrgetter("shape")

_ImageColumn = tuple[pa.StructArray, set[Shape], dict[int, list[tuple[str, bytes]]], dict[int, str]]


def _images(images: Sequence[Image | None], resolved: ResolvedSchema, zone: str, room: _Room) -> _ImageColumn:
    present = [image for image in images if image is not None]
    arrow = _image_type(resolved)
    room.take((len(images) - len(present)) * empty_image_bytes(resolved))
    if not present:
        return pa.nulls(len(images), arrow), set(), {}, {}
    shapes = set(map(_SHAPE_OF, present))
    if len(shapes) == 1:
        cells, bad = _one_shape(present, resolved, arrow=True)
    else:
        cells, bad = _many_shapes(present, resolved, room)
    arrays: list[pa.Array] = []
    exact: dict[int, list[tuple[str, bytes]]] = {}
    for column, values in zip(resolved.schema.columns, cells, strict=True):
        if values is None:
            kind = arrow.field(len(arrays)).type
            room.take(len(present) * _null_bytes(kind))
            arrays.append(pa.nulls(len(present), kind))
            continue
        converted = _typed(values, column.type, zone, room)
        arrays.append(converted.array)
        for at, text in converted.exact.items():
            exact.setdefault(at, []).append((column.name, text))
        for at, reason in converted.bad.items():
            bad.setdefault(at, f"{column.name}: {reason}")
    array = pa.StructArray.from_arrays(arrays, fields=list(arrow))
    if len(present) == len(images):
        return array, shapes, exact, bad
    there = np.fromiter(map(partial(is_not, None), images), np.bool_, len(images))
    rows = np.flatnonzero(there).tolist() if exact or bad else []
    array = array.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))
    exact = {rows[at]: found for at, found in exact.items()}
    return array, shapes, exact, {rows[at]: why for at, why in bad.items()}


def _one_shape(
    images: list[Image], resolved: ResolvedSchema, *, arrow: bool
) -> tuple[list[Sequence[Any] | None], dict[int, str]]:
    """Neutral values by column of *resolved*, None for one that was not sent; with *arrow*, arrays where that is faster."""
    shape = images[0].shape
    columns = list(zip(*[image.values for image in images], strict=True))
    bad: dict[int, str] = {}
    cells: list[Sequence[Any] | None] = []
    for place in _places(shape, resolved):
        if place is None:
            cells.append(None)
            continue
        column = shape.columns[place]
        array = _array(column, columns[place]) if arrow and column.arrow is not None else None
        if array is not None:
            cells.append(array)
            continue
        values, reasons = neutral_values(columns[place], column)
        cells.append(values)
        for at, reason in reasons.items():
            bad.setdefault(at, f"{column.name}: {reason}")
    return cells, bad


def _array(column: WireColumn, values: Sequence[Any]) -> Any:
    assert column.arrow is not None, "asked for by whoever calls"
    try:
        return column.arrow(values)
    except BaseException as error:
        failure(error)
        return None


def _many_shapes(
    images: list[Image], resolved: ResolvedSchema, room: _Room
) -> tuple[list[Sequence[Any] | None], dict[int, str]]:
    groups: dict[Shape, list[int]] = {}
    for at, image in enumerate(images):
        groups.setdefault(image.shape, []).append(at)
    cells: list[list[Any] | None] = [None] * len(resolved.schema.columns)
    bad: dict[int, str] = {}
    for members in groups.values():
        group_cells, group_bad = _one_shape([images[at] for at in members], resolved, arrow=False)
        bad |= {members[at]: reason for at, reason in group_bad.items()}
        for index, values in enumerate(group_cells):
            if values is None:
                continue
            column = cells[index]
            if column is None:
                room.take(_REFERENCE_BYTES * len(images))
                column = cells[index] = [None] * len(images)
            for at, value in zip(members, values, strict=True):
                column[at] = value
    return list(cells), bad


@lru_cache(maxsize=1024)
def _image_type(resolved: ResolvedSchema) -> pa.StructType:
    return image_type(resolved.schema)


@lru_cache(maxsize=1024)
def empty_image_bytes(resolved: ResolvedSchema) -> int:
    """Bytes that an image of *resolved* with only NULL cells takes in Arrow's arrays, without the validity bits."""
    return sum(_null_bytes(field.type) for field in _image_type(resolved))


def _null_bytes(arrow: pa.DataType) -> int:
    return _OFFSET_BYTES if pa.types.is_string(arrow) or pa.types.is_binary(arrow) else arrow.bit_width // 8


@lru_cache(maxsize=4096)
def _places(shape: Shape, resolved: ResolvedSchema) -> tuple[int | None, ...]:
    """Where in the shape each column of the resolved schema is; None where it was not sent."""
    at = {name: place for place, name in enumerate(shape.names)}
    places = tuple(at.pop(column.name, None) for column in resolved.schema.columns)
    unknown = [name for name in at if name not in resolved.virtual]
    if unknown:
        raise ValueError(
            f"rows of {resolved.schema.name} have columns {', '.join(unknown)} that schema {resolved.version} lacks: "
            "rows must be grouped by the schema they resolve to"
        )
    return places


@lru_cache(maxsize=1024)
def _cells(resolved: ResolvedSchema) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all cells of both images: the same texts for all rows."""
    names = [column.name for column in resolved.schema.columns]
    return tuple(f"before.{name}" for name in names), tuple(f"after.{name}" for name in names)


@lru_cache(maxsize=4096)
def absent_names(
    before: Shape | None, after: Shape | None, unknown: tuple[str, ...], resolved: ResolvedSchema
) -> tuple[str, ...]:
    """The cells that rows with these shapes lack: of columns that were not sent, and *unknown* ones of the old image."""
    names: list[str] = []
    for cells, shape in zip(_cells(resolved), (before, after), strict=True):
        if shape is not None:
            names += [cell for cell, place in zip(cells, _places(shape, resolved), strict=True) if place is None]
    absent = set(names)
    garbled = [f"before.{name}" for name in unknown]
    return tuple(names + [name for name in garbled if name not in absent])


def _absent(rows: Sequence[RowEvent], shapes: set[Shape], resolved: ResolvedSchema, room: _Room) -> pa.ListArray:
    unknown = set(map(attrgetter("before_unknown"), rows))
    if unknown == {()} and not any(None in _places(shape, resolved) for shape in shapes):
        return pa.nulls(len(rows), CELLS_TYPE)
    codes: dict[tuple[Shape | None, Shape | None, tuple[str, ...]], int] = {}
    places = []
    lists: list[tuple[str, ...] | None] = []
    sizes: list[int] = []
    for row in rows:
        before = row.before.shape if row.before is not None else None
        after = row.after.shape if row.after is not None else None
        code = (before, after, row.before_unknown)
        place = codes.setdefault(code, len(lists))
        if place == len(lists):
            names = absent_names(*code, resolved)
            lists.append(names or None)
            sizes.append(bytes_of(names))
        room.take(sizes[place])
        places.append(place)
    return pa.array(lists, CELLS_TYPE).take(pa.array(places, pa.int32()))


def _lossy(rows: Sequence[RowEvent], resolved: ResolvedSchema, room: _Room) -> pa.ListArray:
    if set(map(attrgetter("lossy"), rows)) == {()}:
        return pa.nulls(len(rows), CELLS_TYPE)
    room.take(sum(bytes_of(row.lossy) for row in rows))
    kept = {f"{side}.{column.name}" for side in ("before", "after") for column in resolved.schema.columns}
    return pa.array([[cell for cell in row.lossy if cell in kept] or None for row in rows], CELLS_TYPE)


def _exact(count: int, cells: dict[int, list[tuple[str, bytes]]], room: _Room) -> pa.MapArray:
    if not cells:
        return pa.nulls(count, EXACT_TYPE)
    room.take(sum(bytes_of((name,)) + len(text) for found in cells.values() for name, text in found))
    return pa.array([cells.get(at) for at in range(count)], EXACT_TYPE)


def bytes_of(names: Iterable[str]) -> int:
    """Bytes that *names* take in an array of lists of text."""
    return sum(len(name.encode()) + _OFFSET_BYTES for name in names)
