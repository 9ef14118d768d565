"""Debezium in JSON (``protocol=debezium``) of both generations of TiCDC, with and without schemas and TiDB extension."""

import re
from typing import Any

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.claim_checks import may_refer
from ticdc_replay.codecs.debezium.json import ChangeSource, Document, Number, read_source
from ticdc_replay.codecs.debezium.rows import RowReader
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.events import DdlEvent, Event, Undecodable, WatermarkEvent
from ticdc_replay.domain.limits import is_unicode
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup

_ESCAPED_LETTER = rb"|\\u00[4-7]"
"""TiCDC escapes no letter, but a member that is written so is the same for JSON."""
_MAY_BE_DDL = re.compile(rb'"databaseName"' + _ESCAPED_LETTER)
_MAY_BE_DDL_VALUE = re.compile(rb'"ddl"\s*:' + _ESCAPED_LETTER)
_MAY_BE_WATERMARK = re.compile(rb'"payload"\s*:\s*\{\s*\}' + _ESCAPED_LETTER)
_MAY_BE_WATERMARK_VALUE = re.compile(rb'"op"\s*:\s*"m"' + _ESCAPED_LETTER)


class DebeziumCodec(Codec):
    """Reads Debezium.

    A message is one change. Which types columns have is taken from the schema block and from the table's definition; cells that
    the wire can't carry exactly, and that these don't restore, are marked as lossy (``cells``). The handle key is the
    columns of the key, or the definition's where old releases send no key. A key that says other cells than its value makes
    both unbelievable.

    Watermarks need the TiDB extension. Releases v8.x of the classic architecture send neither them nor DDL, and no option says
    which release a changefeed runs on. Pinning a window finds out what is missing.

    Reasons of an ``Undecodable``: ``empty_message``, ``bad_compression``, ``too_large``, ``bad_json``, ``bad_value``,
    ``unknown_event_type`` (the message); ``bad_schema``, ``bad_key``, ``key_mismatch``, ``bad_cell``, ``incomplete_old_image``
    (a row).
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._compressed = changefeed.compression != "none"
        self._rows = RowReader(changefeed, schemas.history)

    def _decode(self, message: RawMessage) -> list[Event]:
        key, value = message.key or None, message.value
        if not value:
            return [Undecodable(None, "empty_message", "the value is null" if value is None else "the value is empty")]
        try:
            if self._compressed:
                key, value = self._decompressed(key, "key: ") if key else None, self._decompressed(value, "value: ")
            return [self._rows.read_known(key, value) or self._read(key, value)]
        except RecursionError:
            raise MessageError("bad_json", "nested too deeply") from None

    def _is_schema_change(self, message: RawMessage) -> bool:
        return self._may_be(message, _MAY_BE_DDL, _MAY_BE_DDL_VALUE)

    def _is_watermark(self, message: RawMessage) -> bool:
        return self._may_be(message, _MAY_BE_WATERMARK, _MAY_BE_WATERMARK_VALUE)

    def _may_refer(self, message: RawMessage) -> bool:
        value = message.value or b""
        try:
            return may_refer(self._decompressed(value) if self._compressed else value)
        except MessageError:
            return True

    def _may_be(self, message: RawMessage, in_key: re.Pattern[bytes], in_value: re.Pattern[bytes]) -> bool:
        """Whether the key allows it, which is short, and the value too."""
        key, value = message.key or b"", message.value or b""
        try:
            if self._compressed:
                key = self._decompressed(key) if key else b""
            if key and in_key.search(key) is None:
                return False
            return in_value.search(self._decompressed(value) if self._compressed else value) is not None
        except MessageError:
            return False

    def _read(self, key: bytes | None, value: bytes) -> Event:
        """Any message, read completely. Raises MessageError."""
        document = Document(value, "value")
        payload = document.payload
        source = read_source(payload)
        try:
            operation = payload.get("op")
            if operation is None:
                ddl = self._ddl(payload, source)
                _check_key(key, _MAY_BE_DDL, "a schema change")
                return ddl
            if operation == "m":
                _check_key(key, _MAY_BE_WATERMARK, "a watermark")
                return WatermarkEvent(0, source.commit_ts)
            if operation in ("c", "u", "d"):
                return self._rows.read(key, value, document, source)
            raise MessageError("unknown_event_type", f"op {operation!r:.20}; c, u, d and m are known")
        except MessageError as error:
            error.commit_ts, error.schema, error.table = source.commit_ts, source.db or None, source.table or None
            raise
        except UnicodeEncodeError as error:
            raise MessageError(
                "bad_schema", f"names or types that are not UTF-8: {error}", source.commit_ts, source.db, source.table
            ) from None

    def _ddl(self, payload: dict[str, Any], source: ChangeSource) -> DdlEvent:
        """A schema change; its type is that of the table change, "" for one on a database and for TRUNCATE TABLE."""
        query, changes = payload.get("ddl"), payload.get("tableChanges")
        if not isinstance(query, str) or isinstance(query, Number) or not is_unicode(query):
            raise MessageError("bad_value", "neither op nor the text of a ddl")
        if not isinstance(changes, list) or not all(isinstance(change, tuple) for change in changes):
            raise MessageError("bad_value", "tableChanges must be an array of objects")
        type_ = dict(changes[0]).get("type") if changes else ""
        if not isinstance(type_, str) or isinstance(type_, Number) or not is_unicode(type_):
            raise MessageError("bad_value", "the type of a table change must be text")
        return DdlEvent(0, source.commit_ts, source.db, source.table, query, type_)


def _check_key(key: bytes | None, like: re.Pattern[bytes], what: str) -> None:
    """Raise MessageError where *key*, if there is one, is not that of *what*."""
    if key is not None and like.search(key) is None:
        raise MessageError("key_mismatch", f"the value is {what}, and the key is not of one")
