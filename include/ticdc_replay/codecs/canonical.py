"""Canonical JSON lines of decoded events: how a decode is shown and compared, whatever the protocol.

    {"kind":"row","topic":…,"partition":…,"offset":…,"index":…,"commit_ts":…|null,"schema":…,"table":…,
     "type":"insert|update|delete|upsert","columns":{name:cell}|null,"pre":{name:cell}|null,"partial":false}
    {"kind":"ddl",…,"commit_ts":…|null,"schema":…,"table":…,"query":…,"type":…}
    {"kind":"watermark",…,"commit_ts":…}
    {"kind":"bootstrap",…,"schema":…,"table":…}

A cell is ``{"value":text|null,"is_binary":true?,"index":text?,"value_utc":text?,"lossy":true?}``: numbers as text without
exponent, bytes as base64, the number of an enum or set as ``index``, a timestamp that the wire has in UTC as ``value_utc``.
Text that is not UTF-8 has ``is_binary`` too, as it can't be shown otherwise. ``lossy`` marks what the protocol could not carry.
"""

from binascii import b2a_base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from ticdc_replay.domain.column_types import BINARY_TYPES, ColumnType
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Event, Image, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import RawMessage

Cell = dict[str, str | bool | None]

_encode = msgspec.json.Encoder().encode
_LINE_BREAKS = tuple((char.encode(), f"\\u{ord(char):04x}".encode()) for char in "\u0085\u2028\u2029")
"""Characters that JSON leaves as they are, but that some readers of lines take for the end of one."""


def line(message: RawMessage, event: Event) -> bytes:
    """The canonical line of *event*, which came in *message*; without line feed.

    Raises ValueError when a cell can't be of its column's type, and for an ``Undecodable``, which has no line.
    """
    text = _encode(_members(message, event))
    for char, escape in _LINE_BREAKS:
        if char in text:
            text = text.replace(char, escape)
    return text


def _members(message: RawMessage, event: Event) -> dict[str, Any]:
    if isinstance(event, Undecodable):
        raise ValueError(f"{message.place}: {event.detail}")
    place = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "index": event.ordinal,
    }
    match event:
        case RowEvent():
            return {
                "kind": "row",
                **place,
                "commit_ts": event.commit_ts,
                "schema": event.schema,
                "table": event.table,
                "type": event.operation.value,
                "columns": _cells(event.after, "after", event.lossy),
                "pre": _cells(event.before, "before", event.lossy),
                "partial": event.partial,
            }
        case DdlEvent():
            return {
                "kind": "ddl",
                **place,
                "commit_ts": None if event.rounded else event.commit_ts,
                "schema": event.schema,
                "table": event.table,
                "query": event.query,
                "type": event.type,
            }
        case WatermarkEvent():
            return {"kind": "watermark", **place, "commit_ts": event.commit_ts}
        case BootstrapEvent():
            return {"kind": "bootstrap", **place, "schema": event.schema, "table": event.table}


def _cells(image: Image | None, side: str, lossy: tuple[str, ...]) -> dict[str, Cell] | None:
    if image is None:
        return None
    cells = {}
    for column, value in zip(image.shape.columns, image.values, strict=True):
        try:
            neutral = column.neutral((value,))[0]
        except ValueError as error:
            raise ValueError(f"column {column.name!r}: {error}") from None
        cell = cells[column.name] = _cell(column.type, neutral)
        if f"{side}.{column.name}" in lossy:
            cell["lossy"] = True
    return cells


def _cell(type_: ColumnType, value: Any) -> Cell:
    """The cell of a neutral *value* (see ``domain.events.WireColumn``)."""
    if value is None:
        return {"value": None, "is_binary": True} if type_.base in BINARY_TYPES else {"value": None}
    if type_.base in ("enum", "set") and isinstance(value, int):
        return {"index": str(value)}
    if type_.base == "timestamp" and isinstance(value, str) and value.endswith("Z"):
        return {"value_utc": value.removesuffix("Z")}
    return _RENDER[type(value)](value)


def _float(value: float) -> Cell:
    text = format(Decimal(repr(value)), "f")
    return {"value": text.removesuffix(".0")}


_RENDER: dict[type, Callable[[Any], Cell]] = {
    str: lambda value: {"value": value},
    int: lambda value: {"value": str(value)},
    float: _float,
    bytes: lambda value: {"value": b2a_base64(value, newline=False).decode(), "is_binary": True},
}
