"""Avro with a schema registry (``protocol=avro``, also ``flat-avro``) of both generations of TiCDC."""

from typing import Annotated, Any

import msgspec
import xxhash
from msgspec import Meta

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.avro.binary import encode
from ticdc_replay.codecs.avro.forms import Forms, WriterForm
from ticdc_replay.codecs.avro.framing import is_framed
from ticdc_replay.codecs.avro.registered import RegisteredCodec, read_whole
from ticdc_replay.codecs.avro.traits import is_test_mode
from ticdc_replay.codecs.checksum import RowChecksum
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.events import DdlEvent, Event, Image, Operation, RowEvent, Shape, WatermarkEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import MAX_TSO, physical_ms
from ticdc_replay.schemas.lookup import SchemaLookup

_DDL, _WATERMARK, _DELETE = b"\x01", b"\x02", b"\x03"
"""What messages of TiCDC's test mode begin with."""
_TSO_BYTES = 8
_NO_KEY: tuple[None, bytes] = (None, b"")
_MAX_CHECKSUM = (1 << 32) - 1

# Hot: members of an enum are looked up through a descriptor, and a NamedTuple's constructor takes twice the time.
_INSERT, _UPDATE, _REMOVE, _UPSERT = Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.UPSERT
_new = tuple.__new__


class _Ddl(msgspec.Struct, gc=False):
    query: str
    type: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    schema: str
    table: str
    commitTs: Annotated[int, Meta(ge=0, le=MAX_TSO)]  # noqa: N815 - the wire's spelling


_DDL_VALUE = msgspec.json.Decoder(_Ddl)


class AvroCodec(RegisteredCodec):
    """Reads Avro with Confluent's or AWS Glue's framing; they differ in the first byte.

    A message is one row. A delete is its key with a null value: partial, and without commitTs, but for
    ``avro-include-before-value`` and TiCDC's test mode. The handle key is the columns of the key; without key, a row
    has no identity. A key that says other cells than its value makes both unbelievable.

    The table is the one that the record names. Where tables share a topic, TiCDC may name another one with the same
    schema (after a RENAME or EXCHANGE PARTITION), and nothing shows it. New TiCDC sends virtual and hidden columns too,
    as NULL.

    Reasons of an ``Undecodable``: ``empty_message`` (neither key nor value, or no value where all rows have a commitTs);
    ``bad_framing``, ``bad_compression``, ``too_large`` (what stands before the Avro); ``schema_unknown``, ``bad_schema`` (the
    registry's answer); ``bad_key``, ``bad_value``, ``key_mismatch``; ``bad_ddl``, ``bad_watermark`` (test mode).
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._test_mode = is_test_mode(changefeed)
        self._forms = Forms(schemas.writer_schemas)
        self._checksums: dict[Shape, RowChecksum] = {}

    def _decode(self, message: RawMessage) -> list[Event]:
        key, value = message.key, message.value
        if not value:
            return [self._delete(key, None)]
        if self._test_mode:
            if not key and value[:1] in (_DDL, _WATERMARK):
                return [_control(value)]
            if _is_delete(value):
                return [self._delete(key, int.from_bytes(value[1:], "big"))]
        return [self._row(key, value)]

    def _is_schema_change(self, message: RawMessage) -> bool:
        return self._test_mode and not message.key and (message.value or b"")[:1] == _DDL

    def _is_watermark(self, message: RawMessage) -> bool:
        return self._test_mode and not message.key and (message.value or b"")[:1] == _WATERMARK

    def has_no_location(self, message: RawMessage) -> bool:
        key, value = message.key, message.value
        if self._test_mode and value and _is_delete(value):
            return not key or is_framed(key)
        return super().has_no_location(message)

    def _row(self, key: bytes | None, value: bytes) -> RowEvent:
        """The row in *value*. Hot: 7 µs for 208 bytes with 13 fields, 4 µs of it reading the fields."""
        schema_id, body = self._unframed("value", value)
        key_id, key_body = self._unframed("key", key) if key else _NO_KEY
        form = self._forms.form(schema_id)
        shape, old_shape = self._forms.row(schema_id, key_id)
        record = read_whole("value", form.avro, body, *form.about)
        if key_id is not None:
            self._check_key(key_id, key_body, record, form)
        cells = form.cells(record)
        operation, commit_ts, physical, checksum, corrupted, old_record = map(record.get, form.appended)
        before = None if old_record is None else tuple(old_record[1].values())
        if commit_ts is not None and (
            not 0 < commit_ts <= MAX_TSO or (physical is not None and physical != physical_ms(commit_ts))
        ):
            raise MessageError(
                "bad_value", f"value: {commit_ts} beside the physical time {physical} ms is not a commitTs", *form.about
            )
        image: Image | None = _new(Image, (shape, cells))
        old: Image | None = None if before is None else _new(Image, (old_shape, before))
        if operation == b"c" or operation is None:
            kind = _INSERT if operation else _UPSERT
            if old is not None:
                raise MessageError("bad_value", "value: an old image, but no update", *form.about)
        elif operation == b"u":
            kind = _UPDATE
        elif operation == b"d":
            kind = _REMOVE
            if before is not None and before != cells:
                raise MessageError("bad_value", "value: a delete whose two images differ", *form.about)
            image, old = None, image
        else:
            raise MessageError("bad_value", f"value: operation {operation[:20]!r}; c, u and d are known", *form.about)
        damage = self._damage(shape, cells, checksum, corrupted) if checksum or corrupted else ""
        fingerprint = xxhash.xxh3_128_digest(body, form.seed)
        return _new(
            RowEvent,
            (
                0, commit_ts, form.schema, form.table, None, kind, image, old,
                False, None, None, (), fingerprint, (), damage,
            ),
        )  # fmt: skip

    def _check_key(self, key_id: str, body: bytes, record: dict[str, Any], form: WriterForm) -> None:
        """Check that a key with *body* has the cells of *record*, the value. Raises MessageError."""
        key_form = self._forms.key(key_id)
        try:
            if encode(key_form.avro, record) == body:
                return
        except (ValueError, TypeError):  # a cell is not of the key's type
            pass
        read_whole("key", key_form.avro, body, *key_form.about)
        raise MessageError("key_mismatch", "the key has other cells than the value", *form.about)

    def _delete(self, key: bytes | None, commit_ts: int | None) -> RowEvent:
        """A delete of which only the key is known."""
        if not key:
            what = "neither key nor value: new TiCDC deletes so from a table without primary key"
            raise MessageError("empty_message", f"{what}; which row it was can't be known", None)
        schema_id, body = self._unframed("key", key)
        form = self._forms.key(schema_id)
        cells = form.cells(read_whole("key", form.avro, body, *form.about))
        if commit_ts is not None and not 0 < commit_ts <= MAX_TSO:
            raise MessageError("bad_value", f"value: {commit_ts} is not a commitTs", *form.about)
        return RowEvent(
            ordinal=0,
            commit_ts=commit_ts,
            schema=form.schema,
            table=form.table,
            physical_table_id=None,
            operation=_REMOVE,
            after=None,
            before=Image(self._forms.key_shape(schema_id), cells),
            partial=True,
            large=None,
            reference=None,
            before_unknown=(),
            fingerprint=xxhash.xxh3_128_digest(body, form.seed ^ (commit_ts or 0)),
        )

    def _damage(self, shape: Shape, cells: tuple[Any, ...], sent: bytes | None, corrupted: bool | None) -> str:
        """Why the row can't be what the upstream has; "" if it can."""
        if corrupted:
            return "TiCDC itself found that the row disagrees with the upstream's checksum (_tidb_corrupted)"
        if not sent or sent == b"0":
            return ""
        if len(sent) > len(str(_MAX_CHECKSUM)) or not sent.isdigit() or int(sent) > _MAX_CHECKSUM:
            return f"row checksum {sent[:20]!r} is not a 32-bit number"
        checksum = self._checksums.get(shape)
        if checksum is None:
            checksum = RowChecksum([column.type for column in shape.columns], self.changefeed.timezone)
            self._checksums[shape] = checksum
        return checksum.damage(Image(shape, cells), int(sent))


def _is_delete(value: bytes) -> bool:
    """Whether *value* is that of a delete in the test mode; what begins so by Glue's hand is longer."""
    return value[:1] == _DELETE and len(value) == 1 + _TSO_BYTES


def _control(value: bytes) -> Event:
    """A DDL or watermark of the test mode."""
    if value[:1] == _WATERMARK:
        watermark = int.from_bytes(value[1:], "big")
        if len(value) != 1 + _TSO_BYTES or watermark > MAX_TSO:
            raise MessageError("bad_watermark", f"value: {len(value)} bytes that are not a watermark")
        return WatermarkEvent(0, watermark)
    try:
        ddl = _DDL_VALUE.decode(value[1:])
    except (ValueError, RecursionError) as error:
        raise MessageError("bad_ddl", f"value: DDL: {error}") from None
    return DdlEvent(0, ddl.commitTs, ddl.schema, ddl.table, ddl.query, ddl.type)
