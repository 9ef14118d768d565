"""Debezium in Avro with a schema registry (``protocol=debezium-avro``), which the new architecture of TiCDC has."""

from typing import Any

import xxhash

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.avro.binary import AvroError, read
from ticdc_replay.codecs.avro.registered import RegisteredCodec, read_whole
from ticdc_replay.codecs.avro.traits import is_test_mode
from ticdc_replay.codecs.debezium.avro_forms import SOURCE, Forms
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.domain.events import DdlEvent, Event, Image, Operation, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import MAX_TSO, physical_ms
from ticdc_replay.schemas.lookup import SchemaLookup

# Hot: members of an enum are looked up through a descriptor, and a NamedTuple's constructor takes twice the time.
_OPERATIONS: dict[bytes | None, Operation] = {b"c": Operation.INSERT, b"u": Operation.UPDATE, b"d": Operation.DELETE}
_UPDATE = Operation.UPDATE
_new = tuple.__new__


class DebeziumAvroCodec(RegisteredCodec):
    """Reads Debezium-Avro, with Confluent's or AWS Glue's framing; they differ in the first byte.

    The wire has decimals, bytes and large numbers exactly, but neither the columns' defaults nor, as a rule, which may be
    NULL; and TiCDC writes the default for a NULL. So every cell but those of the handle key is lossy, unless a declared
    definition of the table has its defaults. Dates and times have the doubts of Debezium (``cells``).

    Schema changes and watermarks come in TiCDC's test mode alone.

    Reasons of an ``Undecodable``: ``empty_message``; ``bad_framing``, ``bad_compression``, ``too_large`` (what stands before the
    Avro); ``schema_unknown``, ``bad_schema`` (the registry's answer); ``bad_key``, ``bad_value``, ``key_mismatch``,
    ``incomplete_old_image``, ``unknown_event_type``.
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._forms = Forms(schemas, changefeed.timezone, drops_columns=bool(changefeed.dispatch.selectors))

    def _decode(self, message: RawMessage) -> list[Event]:
        key, value = message.key or None, message.value
        if not value:
            return [Undecodable(None, "empty_message", "the value is null" if value is None else "the value is empty")]
        return [self._read(key, value)]

    def _is_schema_change(self, message: RawMessage) -> bool:
        return is_test_mode(self.changefeed)

    def _is_watermark(self, message: RawMessage) -> bool:
        return is_test_mode(self.changefeed)

    def _read(self, key: bytes | None, value: bytes) -> Event:
        schema_id, body = self._unframed("value", value)
        form = self._forms.value(schema_id)
        try:
            record, before_build_time = read(form.avro, body)
            rest = 0 if form.is_ddl else read(form.rest, body[before_build_time:])[1]
        except AvroError as error:
            raise MessageError("bad_value", f"value: {error}") from None
        schema, table, commit_ts = _source(record["source"])
        try:
            if form.is_ddl:
                return _ddl(body[before_build_time:], commit_ts, schema, table, record["ddl"])
            if before_build_time + rest != len(body):
                raise MessageError(
                    "bad_value", f"value: {len(body) - before_build_time - rest} bytes follow the record"
                )
            if record["op"] == b"m":
                return WatermarkEvent(0, commit_ts)
            fingerprint = xxhash.xxh3_128_digest(body[:before_build_time], seed_of(schema, table) ^ commit_ts)
            before, after = _image(record.get("before")), _image(record.get("after"))
            return self._row(schema_id, key, (schema, table, commit_ts), record["op"], before, after, fingerprint)
        except MessageError as error:
            error.commit_ts, error.schema, error.table = commit_ts, schema or None, table or None
            raise

    def _row(
        self,
        value_id: str,
        key: bytes | None,
        about: tuple[str, str, int],
        letter: bytes | None,
        before: tuple[Any, ...] | None,
        after: tuple[Any, ...] | None,
        fingerprint: bytes,
    ) -> RowEvent:
        schema, table, commit_ts = about
        operation = _OPERATIONS.get(letter)
        if operation is None:
            raise MessageError("unknown_event_type", f"value: op {letter!r:.20}; c, u, d and m are known")
        if not schema or not table:
            raise MessageError("bad_value", "value: source: a row without db or table")
        cells = before if letter == b"d" else after
        if cells is None or (letter == b"d" and after is not None) or (letter == b"c" and before is not None):
            raise MessageError("bad_value", f"value: op {letter!r} with other images than it has")
        if operation is _UPDATE and before is None and self.changefeed.debezium_output_old_value:
            raise MessageError(
                "incomplete_old_image",
                "op u: no before; if the changefeed had debezium.output-old-value=false then, say so in its configuration",
            )
        key_id: str | None = None
        key_cells: tuple[Any, ...] = ()
        if key is not None:
            key_id, key_body = self._unframed("key", key)
            key_cells = tuple(read_whole("key", self._forms.key(key_id).avro, key_body).values())
        plan = self._forms.plan(value_id, key_id, about)
        dropped = not plan.key and bool(self.changefeed.dispatch.selectors)
        if key_id is not None and not dropped and key_cells != tuple(cells[at] for at in plan.key):
            raise MessageError("key_mismatch", "the key has other cells than the row")
        lossy = plan.doubtful_before(before) if before is not None else ()
        if after is not None:
            lossy += plan.doubtful_after(after)
        return _new(
            RowEvent,
            (
                0, commit_ts, schema, table, None, operation,
                None if after is None else _new(Image, (plan.shape, after)),
                None if before is None else _new(Image, (plan.shape, before)),
                False, None, None, (), fingerprint, lossy, "",
            ),
        )  # fmt: skip


def _image(pair: tuple[str, dict[str, Any]] | None) -> tuple[Any, ...] | None:
    return None if pair is None else tuple(pair[1].values())


def _source(source: dict[str, Any]) -> tuple[str, str, int]:
    """Names and commitTs (TSO). Raises MessageError, also where its time is not that of the commitTs."""
    db, table, commit_ts, ts_ms = (source[name] for name in SOURCE)
    if not isinstance(commit_ts, int) or not 0 < commit_ts <= MAX_TSO or physical_ms(commit_ts) != ts_ms:
        raise MessageError(
            "bad_value", f"value: source: commit_ts {commit_ts!r} is none, or not of the time {ts_ms!r} ms"
        )
    try:
        return (db or b"").decode(), (table or b"").decode(), commit_ts
    except UnicodeDecodeError as error:
        raise MessageError("bad_value", f"value: source: {error}") from None


def _ddl(changes: bytes, commit_ts: int, schema: str, table: str, query: bytes | None) -> DdlEvent:
    """A schema change, of whose ``tableChanges`` the first begins with its type."""
    try:
        count, at = read("long", changes)
        if count < 0:  # a block with its size
            at += read("long", changes[at:])[1]
        type_ = read("bytes", changes[at:])[0].decode() if count else ""
        return DdlEvent(0, commit_ts, schema, table, (query or b"").decode(), type_)
    except (AvroError, UnicodeDecodeError) as error:
        raise MessageError("bad_value", f"value: DDL: {error}") from None
