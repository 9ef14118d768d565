"""Simple (``protocol=simple``) of both generations of TiCDC, encoded as JSON or as Avro (``encoding-format``)."""

from operator import attrgetter

import msgspec
import xxhash

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.claim_checks import unwrap
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.codecs.simple.avro import AvroEncoding
from ticdc_replay.codecs.simple.forms import Forms, image_names, images_of
from ticdc_replay.codecs.simple.json import JsonEncoding
from ticdc_replay.codecs.simple.json_rows import JsonRows
from ticdc_replay.codecs.simple.messages import OPERATIONS, RowMessage
from ticdc_replay.domain.events import (
    Event,
    Image,
    LargeMessage,
    Reference,
    RowEvent,
    Undecodable,
)
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.versions import MissingVersion

_ROWS = frozenset({*OPERATIONS, "DML"})

_encode = msgspec.msgpack.Encoder().encode
_digest = xxhash.xxh3_128_digest


class SimpleCodec(Codec):
    """Reads Simple. A message is one event.

    Rows are typed by the schema they name (``schemas.versions``). A column of it without a cell is virtual, or dropped by a
    column selector; a cell without a column can't be typed, and the row is refused. A NULL in a NOT NULL column, or a wrong
    checksum, makes the row damaged: old TiCDC may send values under wrong names.

    Reasons of an ``Undecodable``: ``empty_message``, ``bad_compression``, ``too_large``, ``bad_message`` (not this encoding),
    ``unknown_version``, ``unknown_event_type``, ``schema_unknown`` (nobody sent the version that the row names),
    ``schema_ambiguous`` (two tables have it), ``schema_mismatch`` (cells of other columns), ``bad_cell``; of an object
    ``claim_check_unreadable``, ``claim_check_mismatch``.
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        super().__init__(changefeed, decompressed_max_bytes, schemas)
        self._compression = changefeed.compression
        is_avro = changefeed.encoding_format == "avro"
        self._encoding = AvroEncoding() if is_avro else JsonEncoding()
        self._rows = None if is_avro else JsonRows()
        self._forms = Forms(
            changefeed.timezone,
            attrgetter("of_avro" if is_avro else "of_json"),
            drops_columns=bool(changefeed.dispatch.selectors),
        )

    def _decode(self, message: RawMessage) -> list[Event]:
        value = message.value
        if not value:
            return [Undecodable(None, "empty_message", "a message without value")]
        content = self._content(value)
        row = None if self._rows is None else self._rows.read(content)
        return [self._event(content) if row is None else row]

    def _read_object(self, content: bytes) -> Event:
        value = content if self.changefeed.claim_check_raw_value else unwrap(content).value
        return self._event(self._content(value))

    def _is_schema_change(self, message: RawMessage) -> bool:
        type_ = self._type(message)
        return type_ not in _ROWS and type_ != "WATERMARK"

    def _is_watermark(self, message: RawMessage) -> bool:
        return self._type(message) in ("WATERMARK", None)

    def _may_refer(self, message: RawMessage) -> bool:
        try:
            return self._encoding.may_refer(self._content(message.value or b""))
        except MessageError:
            return True

    def _type(self, message: RawMessage) -> str | None:
        try:
            return self._encoding.type_of(self._content(message.value or b""))
        except MessageError:
            return None

    def _content(self, value: bytes) -> bytes:
        return value if self._compression == "none" else self._decompressed(value)

    def _event(self, content: bytes) -> Event:
        """The event in *content*, read in full. Raises MessageError."""
        message = self._encoding.read(content)
        return self._row(message, content) if isinstance(message, RowMessage) else message

    def _row(self, row: RowMessage, content: bytes) -> Event:
        reference = None if row.claim_check is None else Reference(row.claim_check, object_name(row.claim_check))
        try:
            return self._typed(row, content, reference)
        except MessageError as error:
            return Undecodable(0, error.reason, str(error), row.commit_ts, row.schema, row.table, reference)

    def _typed(self, row: RowMessage, content: bytes, reference: Reference | None) -> RowEvent:
        versions = self.schemas.history.versions
        definition = versions.find(row.schema, row.table, row.version)
        if definition is None:
            self.missing_versions.add(MissingVersion(TableName(row.schema, row.table), row.version))
            detail = f"no bootstrap or DDL with version {row.version} of {row.schema}.{row.table} is known"
            raise MessageError("schema_unknown", detail)
        why = versions.why_ambiguous(row.schema, row.table, row.version)
        if why is not None:
            raise MessageError(
                "schema_ambiguous", f"version {row.version} of {row.schema}.{row.table} is of two tables: {why}"
            )
        large = LargeMessage.CLAIM_CHECK if reference else LargeMessage.HANDLE_KEY_ONLY if row.handle_key_only else None
        data, old = images_of(row, reduced=large is not None)
        form = self._forms.form(definition, image_names((data, old)), large is not None, row.location)
        after = None if data is None else self._encoding.cells(data, form)
        before = None if old is None else self._encoding.cells(old, form)
        if self._rows is not None and large is None and not row.lossy:
            self._rows.learn(content, row, form)
        return RowEvent(
            ordinal=0,
            commit_ts=row.commit_ts,
            schema=row.schema,
            table=row.table,
            physical_table_id=row.table_id,
            operation=row.operation,
            after=None if after is None else Image(form.shape, after),
            before=None if before is None else Image(form.shape, before),
            partial=large is not None,
            large=large,
            reference=reference,
            before_unknown=(),
            fingerprint=_digest(_encode((after, before)), seed_of(row.schema, row.table) ^ row.commit_ts),
            lossy=row.lossy,
            damage=form.damage(row.checksum, after, before, whole=large is None and not row.lossy),
        )
