"""Canal-JSON (``protocol=canal-json``) of both generations of TiCDC, with and without the TiDB extension."""

import re
from collections.abc import Callable, Sequence

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import MAX_BAD_EVENTS, Codec, too_many_bad
from ticdc_replay.codecs.canal.members import (
    WATERMARK,
    DocumentHead,
    documents,
    read_head,
    read_query,
    read_watermark,
)
from ticdc_replay.codecs.canal.rows import NO_COMMIT_TS, RowReader
from ticdc_replay.codecs.canal.shapes import with_handle_key_of
from ticdc_replay.codecs.claim_checks import has_escaped_letter, in_place_of, may_refer, unwrap
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.members import Object
from ticdc_replay.domain.events import DdlEvent, Event, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import from_ms
from ticdc_replay.extension import native_extension
from ticdc_replay.schemas.lookup import SchemaLookup

_IS_DDL = b'"isDdl"'
_IS_TRUE = re.compile(rb"\s*:\s*t")


class CanalCodec(Codec):
    """Reads Canal-JSON.

    A value is one JSON document; several, one after the other or on lines of their own, are read too. If one of them is
    no JSON, the ends of the others are unknown: no event of the message is given out, so that its quarantine stands for
    all of them.

    Reasons of an ``Undecodable``: ``empty_message``, ``bad_compression``, ``too_large``, ``bad_json`` (the message);
    ``bad_value``, ``bad_cell``, ``unknown_column_type``, ``unknown_event_type``, ``incomplete_old_image`` (an event);
    ``claim_check_unreadable``, ``claim_check_mismatch`` and those of an event (an object).
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._compression = changefeed.compression
        self._rows = RowReader(changefeed, schemas.history)

    def _decode(self, message: RawMessage) -> list[Event]:
        value = message.value
        if not value:
            return [Undecodable(None, "empty_message", "the value is null" if value is None else "the value is empty")]
        if self._compression != "none":
            value = self._decompressed(value)
        known = self._rows.read_known(0, value)
        return self._events(value) if known is None else [known]

    def _read_object(self, content: bytes) -> Event:
        value = self._decompressed(content if self.changefeed.claim_check_raw_value else _unwrapped(content))
        known = self._rows.read_known(0, value) if value else None
        events = self._events(value) if known is None else [known]
        if len(events) != 1:
            raise MessageError("claim_check_unreadable", f"{len(events)} events instead of one")
        return events[0]

    def _made_whole(self, small: RowEvent, found: Event) -> Event:
        if not isinstance(found, RowEvent):
            return in_place_of(small, found)
        # The small row shows the handle key even if there is no primary key and no definition. The rows are compared by it.
        replaced = in_place_of(small, with_handle_key_of(small, found))
        if not isinstance(replaced, RowEvent):
            return replaced
        return replaced._replace(after=found.after, before=found.before)

    def _is_schema_change(self, message: RawMessage) -> bool:
        return self._may_be(_may_be_ddl, message)

    def _schema_changes(self, messages: Sequence[RawMessage]) -> list[RawMessage]:
        extension = native_extension() if self._compression == "none" else None
        if extension is None:
            return super()._schema_changes(messages)
        values = [message.value or b"" for message in messages]
        if max(map(len, values), default=0) > self.decompressed_max_bytes:
            return super()._schema_changes(messages)
        found: list[int] = extension.may_be_ddl(values)
        return [messages[at] for at in found]

    def _is_watermark(self, message: RawMessage) -> bool:
        return self._may_be(_may_be_watermark, message)

    def _may_refer(self, message: RawMessage) -> bool:
        try:
            value = self._decompressed(message.value or b"")
        except MessageError:
            return True
        return may_refer(value)

    def _may_be(self, be: Callable[[bytes], bool], message: RawMessage) -> bool:
        try:
            return be(self._decompressed(message.value or b""))
        except MessageError:
            return False

    def _events(self, value: bytes) -> list[Event]:
        events: list[Event] = []
        bad: list[Undecodable] = []
        try:
            for document, members in documents(value):
                event = self._event(len(events), document, members)
                events.append(event)
                if isinstance(event, Undecodable):
                    bad.append(event)
                    if len(bad) > MAX_BAD_EVENTS:
                        return too_many_bad(bad[0])
        except MessageError as error:
            detail = f"after event {len(events) - 1}: {error}" if events else str(error)
            return [Undecodable(None, error.reason, detail)]
        return events

    def _event(self, ordinal: int, document: bytes, members: Object) -> Event:
        head: DocumentHead | None = None
        try:
            head = read_head(members)
            if head.is_ddl:
                return self._ddl(ordinal, head, read_query(members))
            if head.type == WATERMARK:
                return WatermarkEvent(ordinal, read_watermark(members))
            return self._rows.read(ordinal, document, members, head)
        except MessageError as error:
            detail = f"event {ordinal}: {error}"
            if head is None:
                return Undecodable(ordinal, error.reason, detail)
            return Undecodable(ordinal, error.reason, detail, head.commit_ts, head.schema or None, head.table or None)

    def _ddl(self, ordinal: int, head: DocumentHead, query: str) -> DdlEvent:
        if head.commit_ts is not None:
            return DdlEvent(ordinal, head.commit_ts, head.schema, head.table, query, head.type)
        if self.changefeed.enable_tidb_extension:
            raise MessageError("bad_value", NO_COMMIT_TS)
        return DdlEvent(ordinal, from_ms(head.es), head.schema, head.table, query, head.type, rounded=True)


def _unwrapped(content: bytes) -> bytes:
    wrapped = unwrap(content)
    if wrapped.key:
        raise MessageError("claim_check_unreadable", "it holds a key, which messages of Canal-JSON have not")
    return wrapped.value


def _may_be_ddl(value: bytes) -> bool:
    """Hot: the schema pass asks this of every message of a partition; one regular expression takes four times as long.

    ``may_be_ddl`` of the native extension says the same.
    """
    at = value.find(_IS_DDL)
    while at >= 0:
        if _IS_TRUE.match(value, at + len(_IS_DDL)):
            return True
        at = value.find(_IS_DDL, at + len(_IS_DDL))
    return has_escaped_letter(value)


def _may_be_watermark(value: bytes) -> bool:
    return b'"TIDB_WATERMARK"' in value or has_escaped_letter(value)
