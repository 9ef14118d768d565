"""Open Protocol (``protocol=open-protocol``, also ``default``) of both generations of TiCDC."""

import re
from typing import Annotated

import msgspec
import xxhash
from msgspec import UNSET, Meta, UnsetType

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import MAX_BAD_EVENTS, Codec, too_many_bad
from ticdc_replay.codecs.claim_checks import is_object, may_name_object, states_once, unwrap
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.codecs.open.framing import places, split
from ticdc_replay.codecs.open.rows import RowReader
from ticdc_replay.domain.events import (
    DdlEvent,
    Event,
    LargeMessage,
    Operation,
    Reference,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.schemas.lookup import SchemaLookup

_ROW, _DDL, _RESOLVED = 1, 2, 3

_Id = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Of a table, or a kind of DDL: what a column of 64 bits holds."""

_TYPES = {kind: (b'"t":%d' % kind, re.compile(rb'"t"\s*:\s*%d' % kind)) for kind in (_DDL, _RESOLVED)}
"""How the type of an event stands in its key as TiCDC writes it, and as JSON allows it."""

_new_event = tuple.__new__


class _Key(msgspec.Struct, gc=False):
    """The key JSON of an event. A repeated member counts as it stands last: new TiCDC writes ``ohk`` twice beside ``ccl``, which
    itself must stand once."""

    ts: Annotated[int, Meta(ge=0, le=MAX_TSO)]
    t: int
    scm: str = ""
    tbl: str = ""
    ptn: _Id | None = None
    ohk: bool = False
    ccl: str | UnsetType = UNSET


class _Ddl(msgspec.Struct, gc=False):
    q: str
    t: _Id


_KEY = msgspec.json.Decoder(_Key)
_DDL_VALUE = msgspec.json.Decoder(_Ddl)


class OpenCodec(Codec):
    """Reads Open Protocol.

    A message whose frames do not fit is bad as a whole: after a wrong length nothing can be trusted, so no event of it is
    given out (one ``Undecodable`` without ordinal). In sound frames each event stands for itself, and a bad one takes no
    other with it.

    Reasons of an ``Undecodable``: ``foreign_message``, ``unknown_version``, ``bad_framing`` (the message); ``bad_key``,
    ``unknown_event_type``, ``bad_compression``, ``too_large``, ``bad_value``, ``bad_cell``, ``unknown_column_type``,
    ``incomplete_old_image`` (an event); ``claim_check_unreadable``, ``claim_check_mismatch`` and those of an event (an object).
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._compression = changefeed.compression
        self._room = decompressed_max_bytes
        self._key_only_deletes = changefeed.delete_only_output_handle_key_columns
        self._rows = RowReader(
            schemas.history,
            output_old_value=changefeed.output_old_value,
            only_output_updated_columns=changefeed.only_output_updated_columns,
        )

    def _decode(self, message: RawMessage) -> list[Event]:
        parts = split(message.key, message.value)
        self._room = self.decompressed_max_bytes
        events: list[Event] = []
        where: list[str] = []
        bad: list[Undecodable] = []
        for ordinal, (key, value) in enumerate(parts):
            try:
                events.append(self._event(ordinal, key, value))
            except MessageError as error:
                where = where or places(parts)
                detail = f"event {ordinal} at {where[ordinal]}: {error}"
                bad.append(_undecodable(ordinal, error.reason, detail, key))
                events.append(bad[-1])
                if len(bad) > MAX_BAD_EVENTS:
                    return too_many_bad(bad[0])
        return events

    def _read_object(self, content: bytes) -> Event:
        self._room = self.decompressed_max_bytes
        wrapped = unwrap(content)
        try:
            parts = split(wrapped.key, wrapped.value)
        except MessageError as error:
            raise MessageError("claim_check_unreadable", str(error)) from None
        if len(parts) != 1:
            raise MessageError("claim_check_unreadable", f"{len(parts)} events instead of one")
        return self._event(0, *parts[0])

    def _is_schema_change(self, message: RawMessage) -> bool:
        return message.key is not None and _may_be(_DDL, message.key)

    def _is_watermark(self, message: RawMessage) -> bool:
        return message.key is not None and _may_be(_RESOLVED, message.key)

    def _may_refer(self, message: RawMessage) -> bool:
        key = message.key
        return key is None or b'ccl"' in key or may_name_object(key) or not _are_objects(key, message.value)

    def _event(self, ordinal: int, key: bytes, value: bytes) -> Event:
        """One event. Hot for rows: 5 µs for 770 bytes with 10 columns and 1.3 images, 3.7 µs of it the value."""
        try:
            head = _KEY.decode(key)
        except (ValueError, RecursionError) as error:
            raise MessageError("bad_key", f"key JSON: {error}") from None
        if head.ccl is not UNSET and (head.t != _ROW or not states_once(key, "ccl")):
            raise MessageError("bad_key", "key JSON: ccl in an event that is not a row, or more than once")
        if head.t == _RESOLVED:
            return WatermarkEvent(ordinal, head.ts)
        if self._compression != "none":
            value = self._decompressed(value, room=self._room)
            self._room -= len(value)
        if head.t == _ROW:
            schema, table = head.scm, head.tbl
            if not schema or not table:
                raise MessageError("bad_key", "key JSON: a row without schema or table")
            large, reference = None, None
            if head.ccl is not UNSET:
                large, reference = LargeMessage.CLAIM_CHECK, Reference(head.ccl, object_name(head.ccl))
            elif head.ohk:
                large = LargeMessage.HANDLE_KEY_ONLY
            operation, after, before, unknown, lossy = self._rows.read(schema, table, head.ts, large is not None, value)
            partial = large is not None or (
                self._key_only_deletes
                and operation is Operation.DELETE
                and before is not None
                and len(before.shape.handle_key) == len(before.shape.columns)
            )
            fingerprint = xxhash.xxh3_128_digest(value, seed_of(schema, table) ^ head.ts)
            return _new_event(
                RowEvent,
                (
                    ordinal, head.ts, schema, table, head.ptn, operation, after, before,
                    partial, large, reference, unknown, fingerprint, lossy, "",
                ),
            )  # fmt: skip
        if head.t == _DDL:
            try:
                ddl = _DDL_VALUE.decode(value)
            except (ValueError, RecursionError) as error:
                raise MessageError("bad_value", f"DDL: {error}") from None
            return DdlEvent(ordinal, head.ts, head.scm, head.tbl, ddl.q, ddl.t)
        raise MessageError(
            "unknown_event_type", f"key JSON: type {head.t}; 1 (row), 2 (DDL) and 3 (resolved) are known"
        )


def _are_objects(key: bytes, value: bytes | None) -> bool:
    """Whether the frames of a message fit, and each event's key is an object."""
    try:
        return all(is_object(event) for event, _ in split(key, value))
    except MessageError:
        return False


def _undecodable(ordinal: int, reason: str, detail: str, key: bytes) -> Undecodable:
    try:
        head = _KEY.decode(key)
    except (ValueError, RecursionError):
        return Undecodable(ordinal, reason, detail)
    # Of several locations all are needed, which are looked for in the bytes where no event has one.
    known = head.ccl is not UNSET and states_once(key, "ccl")
    reference = Reference(head.ccl, object_name(head.ccl)) if known else None  # type: ignore[arg-type]
    return Undecodable(ordinal, reason, detail, head.ts, head.scm or None, head.tbl or None, reference)


def _may_be(kind: int, key: bytes) -> bool:
    """Whether the *key* of a message may have an event of *kind*: a letter may be escaped.

    Hot: the schema pass asks this of every message of a partition; one regular expression takes four times as long.
    """
    as_written, as_allowed = _TYPES[kind]
    if as_written in key or b"\\" in key:
        return True
    return any(space in key for space in (b" ", b"\n", b"\t", b"\r")) and as_allowed.search(key) is not None
