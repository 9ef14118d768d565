"""Plain-JSON: a message is one JSON document, which is a row, a DDL or a watermark."""

import msgspec
import xxhash

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.column_types import BaseType, ColumnType
from ticdc_replay.domain.events import (
    DdlEvent,
    Event,
    Image,
    Operation,
    RowEvent,
    Shape,
    Undecodable,
    WatermarkEvent,
    WireColumn,
)
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup


class _Document(msgspec.Struct):
    op: str
    ts: int
    schema: str = ""
    table: str = ""
    ddl: str = ""
    types: dict[str, BaseType] = {}
    key: tuple[str, ...] = ()
    before: dict[str, int | str | None] | None = None
    after: dict[str, int | str | None] | None = None


_DOCUMENT = msgspec.json.Decoder(_Document)


class PlainJsonCodec(Codec):
    """Reads Plain-JSON. Reasons of an ``Undecodable``: ``bad_json``, ``bad_value``, ``unknown_event_type``."""

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._shapes: dict[tuple[object, ...], Shape] = {}

    def _decode(self, message: RawMessage) -> list[Event]:
        value = message.value or b""
        try:
            document = _DOCUMENT.decode(value)
        except (ValueError, RecursionError) as error:
            return [Undecodable(None, "bad_json", str(error))]
        about = (document.ts, document.schema, document.table)
        if document.op == "watermark":
            return [WatermarkEvent(0, document.ts)]
        if document.op == "ddl":
            return [DdlEvent(0, *about, document.ddl, document.op)]
        if document.op not in ("insert", "update", "delete"):
            return [Undecodable(0, "unknown_event_type", f"op {document.op!r:.20}", *about)]
        try:
            before, after = self._image(document, document.before), self._image(document, document.after)
        except KeyError as error:
            return [Undecodable(0, "bad_value", f"no type of column {error}", *about)]
        operation, fingerprint = Operation(document.op), xxhash.xxh3_128_digest(value)
        return [RowEvent(0, *about, None, operation, after, before, False, None, None, (), fingerprint)]

    def _is_schema_change(self, message: RawMessage) -> bool:
        return b'"ddl"' in (message.value or b"")

    def _is_watermark(self, message: RawMessage) -> bool:
        return b'"watermark"' in (message.value or b"")

    def _image(self, document: _Document, cells: dict[str, int | str | None] | None) -> Image | None:
        if cells is None:
            return None
        columns = tuple((name, document.types[name], name in document.key) for name in cells)
        shape = self._shapes.get(columns)
        if shape is None:
            wire = (WireColumn(name, ColumnType(type_), is_key, list) for name, type_, is_key in columns)
            shape = self._shapes[columns] = Shape(tuple(wire))
        return Image(shape, tuple(cells.values()))
