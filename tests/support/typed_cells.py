"""Cells of a changelog as values that can be compared, whatever protocol brought them and however exact their type is known."""

import base64
import datetime
import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from tests.expected.wire import Json, sanitized
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

Value = object


class Cell(NamedTuple):
    """One cell of the new or old image (``after``, ``before``) of the expected event ``seq``."""

    seq: int
    side: str
    column: str


class TypedRow(NamedTuple):
    """What the changelog says of one row event; ``values`` has the cells that were sent and are not ``lossy``."""

    values: dict[Cell, Value]
    lossy: frozenset[Cell]


def typed_rows(
    rows: list[tuple[RowEvent, tuple[int, ...]]], expected: dict[int, Json], lookup: SchemaLookup, zone: str
) -> Iterator[tuple[RowEvent, TypedRow]]:
    """*rows*, each with the numbers of the expected events that it is of, as they get into the changelog."""
    resolver = SchemaResolver(lookup.history)
    groups: dict[ResolvedSchema, list[tuple[RowEvent, tuple[int, ...]]]] = defaultdict(list)
    for row, seqs in rows:
        groups[resolver.resolve(row)].append((row, seqs))
    for resolved, members in groups.items():
        converted = rows_to_batch([row for row, _ in members], resolved, zone)
        assert converted.bad == {}
        columns = zip(
            *(getattr(converted, name).to_pylist() for name in ("before", "after", "absent", "lossy", "exact")),
            strict=True,
        )
        for (row, seqs), (before, after, absent, lossy, exact) in zip(members, columns, strict=True):
            sides = {"before": (seqs[0], before), "after": (seqs[-1], after)}
            yield row, _typed_row(sides, expected, resolved, set(absent or ()), set(lossy or ()), dict(exact or ()))


def _typed_row(
    sides: dict[str, tuple[int, Json | None]],
    expected: dict[int, Json],
    resolved: ResolvedSchema,
    absent: set[str],
    lossy: set[str],
    exact: dict[str, bytes],
) -> TypedRow:
    values: dict[Cell, Value] = {}
    inexact = set()
    for side, (seq, image) in sides.items():
        wanted = image_of(expected[seq], side) or {}
        spelled = {sanitized(name): name for name in wanted}
        for column in resolved.schema.columns if image is not None else ():
            path = f"{side}.{column.name}"
            name = column.name if column.name in wanted else spelled.get(column.name, column.name)
            if path in absent or name not in wanted or wanted[name].get("virtual"):
                continue
            cell = Cell(seq, side, name)
            if path in lossy:
                inexact.add(cell)
            elif path in exact:
                values[cell] = exact[path].decode()
            else:
                assert image is not None
                values[cell] = _value(image[column.name], wanted[name])
    return TypedRow(values, frozenset(inexact))


def image_of(event: Json, side: str) -> Json | None:
    """The image of an expected *event* that the changelog calls *side*."""
    image: Json | None = event.get("columns" if side == "after" else "pre")
    return image


def _base(wanted: Json) -> str:
    return str(wanted["mysql_type"].split(" ")[0].split("(")[0])


def _value(cell: Any, wanted: Json) -> Value:
    base = _base(wanted)
    if cell is None:
        return None
    if base in ("enum", "set"):
        # A number where no definition names it; then the name is what the number stands for.
        return wanted["value"] if cell == int(wanted["index"]) else cell
    if base == "decimal":
        return Decimal(cell)
    if base == "json":
        return json.dumps(json.loads(cell), sort_keys=True)
    if base in ("float", "double"):
        return struct.pack("<f" if base == "float" else "<d", cell)
    if base == "timestamp":
        moment: datetime.datetime = cell.astimezone(datetime.UTC)
        return moment
    value: Value = cell
    return value


def same_value(cell: Any, wanted: Json) -> bool:
    """Whether a *cell* of a changelog, as Python has it, is that of an expected event."""
    return _value(cell, wanted) == expected_value(wanted)


def expected_value(wanted: Json) -> Value:
    """The value of an expected cell in the same form."""
    base, text = _base(wanted), wanted["value"]
    if text is None or base in ("enum", "set"):
        return text
    if base in ("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"):
        return int(text)
    if base in ("decimal",):
        return Decimal(text)
    if base in ("json", "float", "double"):
        return _value(float(text) if base != "json" else text, wanted)
    if base in ("date", "datetime", "timestamp") and (text.startswith("0000") or "-00" in text):
        return text
    if base == "date":
        return datetime.date.fromisoformat(text)
    if base == "datetime":
        return datetime.datetime.fromisoformat(text)
    if base == "timestamp":
        return datetime.datetime.fromisoformat(f"{wanted['value_utc']}+00:00")
    if base == "time":
        hours, minutes, seconds = text.lstrip("-").split(":")
        whole = int(hours) * 3600 + int(minutes) * 60
        micros = whole * 1_000_000 + int(Decimal(seconds) * 1_000_000)
        return -micros if text.startswith("-") else micros
    return base64.b64decode(text) if wanted.get("is_binary") else text
