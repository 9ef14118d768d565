"""Every typed cell of the captures is the value the database held, once TiCDC's DDL has typed the columns."""

import base64
import datetime
import json
import struct
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.expected import read_lines
from tests.expected.wire import Json
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.events import DdlEvent, RowEvent
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver


@pytest.mark.parametrize("variant", ["open-default", "open-delete-handle-key", "open-lz4"])
@pytest.mark.parametrize("architecture", ["classic", "new"])
def test_typed_cells_agree_with_what_was_in_the_database(open_captures: Path, architecture: str, variant: str) -> None:
    capture = Capture(open_captures / architecture / variant)
    rows, history = read(capture)
    expected = defaultdict(list)
    for event in read_lines(open_captures / "expected" / "main.jsonl"):
        expected[event["commit_ts"], event["schema"], event["table"]].append(event)
    groups: dict[ResolvedSchema, list[RowEvent]] = defaultdict(list)
    resolver = SchemaResolver(history)
    for row in rows:
        groups[resolver.resolve(row)].append(row)
    compared = 0
    for resolved, members in groups.items():
        assert resolved.declared
        images = changelog_images(members, resolved, capture.changefeed().timezone)
        for row, (before, after) in zip(members, images, strict=True):
            possible = expected[row.commit_ts, row.schema, row.table]
            found = [mismatch(row, before, after, event) for event in possible]
            assert [] in found, (row.schema, row.table, row.commit_ts, found)
            compared += 1
    assert compared == len(rows) > 350


@pytest.mark.parametrize("architecture", ["classic", "new"])
def test_without_ddl_the_types_of_the_wire_hold_the_same_values(open_captures: Path, architecture: str) -> None:
    capture = Capture(open_captures / architecture / "open-default")
    rows, history = read(capture)
    zone = capture.changefeed().timezone
    declared, wire = SchemaResolver(history), SchemaResolver(SchemaHistory())
    compared = 0
    for row in rows:
        by_ddl = changelog_images([row], declared.resolve(row), zone)[0]
        by_wire = changelog_images([row], wire.resolve(row), zone)[0]
        for typed, untyped in zip(by_ddl, by_wire, strict=True):
            for name in typed or ():
                column_type, cell, exact = typed[name]
                if column_type.base not in ("enum", "set"):  # numbers where no definition names them
                    assert same_value(column_type, cell, exact, *untyped[name][1:]), (row.table, name, typed[name])
                    compared += 1
    assert compared > 12_000


def read(capture: Capture) -> tuple[list[RowEvent], SchemaHistory]:
    codec = codec_for(capture.changefeed(), 1 << 28)
    events = [event for message in capture.messages() for event in codec.decode(message)]
    ddl = [event for event in events if isinstance(event, DdlEvent)]
    return [event for event in events if isinstance(event, RowEvent)], SchemaHistory().with_ddls(ddl)


Cell = tuple[ColumnType, Any, bytes | None]
CellImage = dict[str, Cell] | None


def changelog_images(rows: list[RowEvent], resolved: ResolvedSchema, zone: str) -> list[tuple[CellImage, CellImage]]:
    """Per row the old and the new image: type, typed cell and exact text of every column that was sent."""
    converted = rows_to_batch(rows, resolved, zone)
    assert converted.bad == {}
    sides = (converted.before.to_pylist(), converted.after.to_pylist())
    images = []
    for at, (absent, exact) in enumerate(zip(converted.absent.to_pylist(), converted.exact.to_pylist(), strict=True)):
        texts = dict(exact or ())
        pair: list[CellImage] = []
        for side, cells in zip(("before", "after"), sides, strict=True):
            pair.append(
                cells[at]
                and {
                    column.name: (column.type, cells[at][column.name], texts.get(f"{side}.{column.name}"))
                    for column in resolved.schema.columns
                    if f"{side}.{column.name}" not in (absent or ())
                }
            )
        images.append((pair[0], pair[1]))
    return images


def mismatch(row: RowEvent, before: CellImage, after: CellImage, event: Json) -> list[str]:
    """What tells the row from the expected event: the columns that differ, by name."""
    different = []
    for image, wanted in ((before, event.get("pre")), (after, event.get("columns"))):
        if image is None or wanted is None:
            different += [] if image is None and wanted is None else ["one image only"]
            continue
        sent = event["handle_key"] if row.partial else [name for name in wanted if not wanted[name].get("virtual")]
        if sorted(image) != sorted(sent):
            different.append("other columns")
            continue
        different += [name for name, cell in image.items() if not is_value(*cell, wanted[name])]
    return different


def is_value(column_type: ColumnType, cell: Any, exact: bytes | None, wanted: Json) -> bool:
    text = wanted["value"]
    if exact is not None:
        return cell is None and exact.decode() == text
    if text is None or cell is None:
        return text is None and cell is None
    base = column_type.base
    if base == "timestamp":
        return bool(moment_text(cell, column_type) == wanted.get("value_utc"))
    if base in _TEXT_OF:
        return bool(_TEXT_OF[base](cell, column_type) == text)
    return _SAME[base](cell, text) if base in _SAME else bool(cell == text)


def same_value(column_type: ColumnType, cell: Any, exact: bytes | None, other: Any, other_exact: bytes | None) -> bool:
    if column_type.base == "decimal" and cell is not None:
        return format(Decimal(cell), "f") == other
    return bool(cell == other and exact == other_exact)


def moment_text(cell: datetime.datetime, column_type: ColumnType) -> str:
    fraction = f".{cell.microsecond:06d}"[: column_type.scale + 1] if column_type.scale else ""
    return cell.replace(tzinfo=None, microsecond=0).isoformat(" ") + fraction


def time_text(micros: int, column_type: ColumnType) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return (
        ("-" if micros < 0 else "") + clock + (f".{fraction:06d}"[: column_type.scale + 1] if column_type.scale else "")
    )


_TEXT_OF: dict[str, Callable[[Any, ColumnType], str]] = {
    "date": lambda cell, _: cell.isoformat(),
    "datetime": moment_text,
    "time": time_text,
    "decimal": lambda cell, _: format(Decimal(cell), "f"),
}
_SAME: dict[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys((*INTEGER_TYPES, "bit", "year"), lambda cell, text: cell == int(text)),
    **dict.fromkeys(BINARY_TYPES, lambda cell, text: cell == base64.b64decode(text)),
    "float": lambda cell, text: struct.pack("<f", cell) == struct.pack("<f", float(text)),
    "double": lambda cell, text: struct.pack("<d", cell) == struct.pack("<d", float(text)),
    "json": lambda cell, text: json.loads(cell) == json.loads(text),
}
