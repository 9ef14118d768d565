"""Messages and events as a person reads them in a terminal."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ticdc_replay.domain import tso
from ticdc_replay.domain.events import (
    BootstrapEvent,
    DdlEvent,
    Event,
    Image,
    LargeMessage,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.messages import RawMessage

_WIDEST_CELL = 48
_LINE_BYTES = 16
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999. A producer may give its records any time."""
_SHOWN_BYTES = 512
_BYTE = re.compile(r"\bbyte (\d+)")
_STYLES = {"insert": "green", "upsert": "green", "update": "yellow", "delete": "red"}


def message(raw: RawMessage, events: Sequence[Event]) -> RenderableType:
    """*raw* with its *events*: where and when, sizes, then one line per event."""
    head = Text.assemble(
        (raw.place, "bold"),
        f"  {_time(raw.timestamp_ms)}  key {_size(raw.key)}  value {_size(raw.value)}  ",
        f"{len(events)} event{'' if len(events) == 1 else 's'}",
    )
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for event in events:
        table.add_row("" if event.ordinal is None else str(event.ordinal), *_event(event))
    return Group(head, Padding(table, (0, 0, 1, 2)))


def hex_dump(content: bytes | None, at: int | None = None) -> str:
    """*content* as hex and text, sixteen bytes a line; of a long one the beginning, and what is around byte *at*."""
    if content is None:
        return "  null"
    wanted = set(range(0, min(len(content), _SHOWN_BYTES), _LINE_BYTES))
    if at is not None and at < len(content):
        line = at - at % _LINE_BYTES
        wanted |= {start for start in range(line - _LINE_BYTES, line + 2 * _LINE_BYTES, _LINE_BYTES) if start >= 0}
    lines, end = [], 0
    for start in sorted(start for start in wanted if start < len(content)):
        if start > end:
            lines.append("  …")
        part = content[start : start + _LINE_BYTES]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        mark = "> " if at is not None and start <= at < start + _LINE_BYTES else "  "
        lines.append(f"{mark}{start:08x}  {part.hex(' '):<{3 * _LINE_BYTES}} {text}")
        end = start + _LINE_BYTES
    if end < len(content):
        lines.append(f"  … {len(content) - end:,} bytes more")
    return "\n".join(lines) if lines else "  empty"


def byte_named_in(detail: str) -> int | None:
    """The byte that the *detail* of an undecodable event names, None where it names none."""
    found = _BYTE.search(detail)
    return int(found[1]) if found else None


def _event(event: Event) -> tuple[Text, Text]:
    match event:
        case RowEvent():
            name = event.operation.value
            return Text(name, _STYLES[name]), _row(event)
        case DdlEvent():
            where = f"{event.schema}.{event.table}" if event.table else event.schema
            commit_ts = None if event.rounded else event.commit_ts
            return Text("ddl", "cyan"), _about(commit_ts, where).append(f"\n{event.query}  (type {event.type})")
        case WatermarkEvent():
            return Text("watermark", "blue"), _about(event.commit_ts, "")
        case BootstrapEvent():
            return Text("bootstrap", "cyan"), Text(f"{event.schema}.{event.table}")
        case Undecodable():
            return Text(event.reason, "bold red"), Text(event.detail)


def _row(row: RowEvent) -> Text:
    text = _about(row.commit_ts, f"{row.schema}.{row.table}")
    if row.physical_table_id is not None:
        text.append(f"  table partition {row.physical_table_id}", "dim")
    if row.large is LargeMessage.CLAIM_CHECK and row.reference is not None:
        text.append(f"\nclaim check {row.reference.location}", "magenta")
    elif row.partial:
        text.append("  key only", "magenta")
    if row.before_unknown:
        text.append(f"  old value unknown: {', '.join(row.before_unknown)}", "magenta")
    text.append("\n")
    new, old = _cells(row.after), _cells(row.before)
    if row.after is not None and row.before is not None:
        key = set(row.after.shape.handle_key)
        shown = [
            f"{name} = {cell}" if old.get(name, cell) == cell else f"{name}: {old[name]} → {cell}"
            for name, cell in new.items()
            if name in key or old.get(name, cell) != cell
        ]
    else:
        shown = [f"{name} = {cell}" for name, cell in (new or old).items()]
    return text.append("   ".join(shown))


def _about(commit_ts: int | None, where: str) -> Text:
    return Text("no commitTs" if commit_ts is None else tso.describe(commit_ts), "dim").append(f"  {where}", "bold")


def _cells(image: Image | None) -> dict[str, str]:
    if image is None:
        return {}
    return {
        column.name: _cell(column.neutral, value)
        for column, value in zip(image.shape.columns, image.values, strict=True)
    }


def _cell(neutral: Any, value: Any) -> str:
    try:
        known = neutral((value,))[0]
    except ValueError as error:
        return f"<{error}>"
    if known is None:
        return "NULL"
    text = f"0x{known.hex()}" if isinstance(known, bytes) else str(known)
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= _WIDEST_CELL else f"{text[:_WIDEST_CELL]}… ({len(text)})"


def _time(ms: int) -> str:
    if ms < 0:
        return "no time"
    if ms > _LAST_MS:
        return f"{ms} ms"
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _size(part: bytes | None) -> str:
    return "null" if part is None else f"{len(part):,} B"


def size(count: int) -> str:
    """*count* bytes, for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count:,} B" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
