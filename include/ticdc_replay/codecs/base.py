"""The contract of a codec: bytes of one Kafka message in, events out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.claim_checks import in_place_of, may_name_object, shared
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Event, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.limits import is_unicode, latest_commit_ts, refused_definition, refused_table
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import MAX_TSO, describe
from ticdc_replay.large_messages.compression import CompressionError, DecompressedTooLargeError, decompress
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.versions import MissingVersion

DECODER_FAILED = "decoder_failed"
"""Reason of a message or object at which a protocol's reader failed, which is a defect of the reader."""
MAX_BAD_EVENTS = 1_000
"""Of one message, each with an entry in quarantine. With more of them the whole message goes there."""

MAX_DDL_EVENTS = 100
"""Of one message. TiCDC sends one DDL a message, and each can change thousands of columns. With more of them the whole message
goes to quarantine."""


class Codec(ABC):
    """Decodes the messages of one protocol. One instance serves one thread and remembers the shapes of rows.

    A codec reads bytes, and the tables' schemas through the ``SchemaLookup`` it is made with. Only the schema registry behind
    that is a network. It never raises for bad input, only what the look-up of a writer schema and ``failure`` raise.
    A protocol implements the methods that begin with an underscore. The public ones are the boundary around them.
    """

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        """A codec for the messages of *changefeed*.

        It refuses keys, values, and the events of a message together, that have over *decompressed_max_bytes* decompressed.
        """
        self.changefeed = changefeed
        self.decompressed_max_bytes = decompressed_max_bytes
        self.schemas = schemas
        self.expanded = 0
        """Bytes that decompression added so far."""
        self.missing_versions: set[MissingVersion] = set()
        """Versions of tables that rows named and *schemas* did not know; each such row became ``schema_unknown``."""
        self._ordered = changefeed.traits.carries(changefeed).commit_ts == "rows"

    def decode(self, message: RawMessage) -> list[Event]:
        """The events of *message*, in wire order; an ``Undecodable`` for each part that can't be understood.

        A claim-check event comes back as the small message has it: ``partial`` and with its ``reference``.

        Never raises for a message. One ``Undecodable`` stands for all of it if the protocol's reader raises (``decoder_failed``),
        if key or value is larger than ``decompressed_max_bytes`` (``too_large``), or if it has more than ``MAX_BAD_EVENTS``
        (``too_many_bad_events``) or ``MAX_DDL_EVENTS`` (``too_many_ddl_events``).

        An ``Undecodable`` also replaces DDL and bootstraps that no table can have (``domain.limits``), and events whose commitTs
        is years after their record was made. So it does rows without commitTs if ``Carried`` says that rows have one, as nothing
        orders them: ``empty_message`` for a delete without value, else ``bad_value``.
        """
        try:  # hot: the boundary takes 0.2 µs, and 0.04 µs an event
            _, _, _, recorded_ms, key, value = message
            most = self.decompressed_max_bytes
            if (value and len(value) > most) or (key and len(key) > most):
                size = len(key or b"") + len(value or b"")
                return [Undecodable(None, "too_large", f"{size} bytes as Kafka has them, {most} allowed")]
            events = self._decode(message)
            latest = latest_commit_ts(recorded_ms)
            for event in events:
                if event.__class__ is not RowEvent or (
                    self._ordered if event.commit_ts is None else event.commit_ts > latest
                ):
                    return _too_much_ddl(events) or [self._usable(event, bool(value), latest) for event in events]
            return events
        except MessageError as error:
            return [error.as_event()]
        except BaseException as error:
            return [Undecodable(None, DECODER_FAILED, failure(error))]

    def decode_claim_check(self, small: RowEvent, content: bytes) -> Event:
        """The whole row that *content*, the bytes of the claim-check object, holds instead of *small*.

        The result has the ordinal and reference of *small*. An ``Undecodable`` when the object can't be read or is not of the
        same schema, table, commitTs and handle key (reason ``claim_check_mismatch``). Raises as ``decode`` does.
        """
        return self.made_whole(small, self.read_object(content))

    def read_object(self, content: bytes) -> Event:
        """The event in the claim-check object *content*, for ``made_whole``; an ``Undecodable`` when it can't be read.

        Its time grows with the object, that of ``made_whole`` with the row: several rows may refer to one object.
        """
        try:
            return shared(self._read_object(content))
        except MessageError as error:
            return error.as_event()
        except BaseException as error:
            return Undecodable(None, DECODER_FAILED, failure(error))

    def made_whole(self, small: RowEvent, found: Event) -> Event:
        """The row that *found*, read by ``read_object``, is instead of *small*; see ``decode_claim_check``."""
        try:
            return self._usable(self._made_whole(small, found), True, MAX_TSO)
        except BaseException as error:
            detail = failure(error)
            return Undecodable(small.ordinal, DECODER_FAILED, detail, small.commit_ts, small.schema, small.table)

    def is_schema_change(self, message: RawMessage) -> bool:
        """Whether *message* may hold a DDL or bootstrap; cheap. May be wrong only if it is true."""
        return self._may(self._is_schema_change, message)

    def schema_changes(self, messages: Sequence[RawMessage]) -> Iterable[RawMessage]:
        """Those of *messages* that ``is_schema_change``."""
        try:
            return self._schema_changes(messages)
        except BaseException as error:
            failure(error)
            return filter(self.is_schema_change, messages)

    def is_watermark(self, message: RawMessage) -> bool:
        """Whether *message* may hold a watermark; cheap. May be wrong only if it is true."""
        return self._may(self._is_watermark, message)

    def may_refer(self, message: RawMessage) -> bool:
        """Whether *message* may hold a claim-check reference; cheap. May be wrong only if it is true.

        Also true for what can't be decompressed or is not of the protocol's syntax from end to end.
        """
        try:  # asked of every message of a scan: not by way of another call
            return self._may_refer(message)
        except BaseException as error:
            failure(error)
            return True

    def has_no_location(self, message: RawMessage) -> bool:
        """Whether *message*, which could not be decoded, is of the protocol, and that has no locations of objects.

        Then it refers to no object but those whose names are in its bytes.
        """
        return False

    def _usable(self, event: Event, has_value: bool, latest: int) -> Event:
        """*event*, or an ``Undecodable`` in its place: see ``decode``. *latest* is the last commitTs that it may have."""
        if isinstance(event, RowEvent | DdlEvent | WatermarkEvent) and (event.commit_ts or 0) > latest:
            return _too_late(event)
        if not isinstance(event, RowEvent):
            return _of_tables(event)
        if event.commit_ts is not None or not self._ordered:
            return event
        reason, what = (
            ("bad_value", "a row") if has_value else ("empty_message", "no value: a delete by its key alone,")
        )
        detail = f"{what} without commitTs, which all rows of this changefeed have: its time is unknown"
        return Undecodable(event.ordinal, reason, detail, None, event.schema, event.table, event.reference)

    def _may(self, question: Callable[[RawMessage], bool], message: RawMessage) -> bool:
        try:
            return question(message)
        except BaseException as error:
            failure(error)
            return True

    @abstractmethod
    def _decode(self, message: RawMessage) -> list[Event]:
        """As ``decode``. May raise MessageError, which becomes an ``Undecodable``."""

    def _read_object(self, content: bytes) -> Event:
        """As ``read_object``, and may raise MessageError. Overridden by protocols with claim-check objects."""
        detail = f"TiCDC writes no claim-check objects with protocol {self.changefeed.protocol}"
        raise MessageError("claim_check_mismatch", detail)

    def _made_whole(self, small: RowEvent, found: Event) -> Event:
        """As ``made_whole``."""
        return in_place_of(small, found)

    @abstractmethod
    def _is_schema_change(self, message: RawMessage) -> bool:
        """As ``is_schema_change``."""

    def _schema_changes(self, messages: Sequence[RawMessage]) -> list[RawMessage]:
        """As ``schema_changes``. Overridden where many can be asked for faster than one by one."""
        return list(filter(self._is_schema_change, messages))

    @abstractmethod
    def _is_watermark(self, message: RawMessage) -> bool:
        """As ``is_watermark``."""

    def _may_refer(self, message: RawMessage) -> bool:
        """As ``may_refer``. Without override, true for what names an object, and for what may be of a protocol with locations."""
        key, value = message.key or b"", message.value or b""
        return may_name_object(key) or may_name_object(value) or not self.has_no_location(message)

    def _decompressed(self, data: bytes, part: str = "", room: int | None = None) -> bytes:
        """The content of *data*, which errors call *part*. Raises MessageError.

        *room* is what is left of ``decompressed_max_bytes``, where several contents share it.
        """
        compression, most = self.changefeed.compression, self.decompressed_max_bytes
        room = most if room is None else room
        try:
            content = decompress(data, compression, room)
        except DecompressedTooLargeError as error:
            taken = f"; events before it take {most - room} of {most}" if room < most else ""
            raise MessageError("too_large", f"{part}{error}{taken}") from None
        except CompressionError as error:
            detail = f"{part}{error}; the changefeed is configured with {compression}"
            raise MessageError("bad_compression", detail) from None
        self.expanded += len(content) - len(data)
        return content


def _too_late(event: RowEvent | DdlEvent | WatermarkEvent) -> Undecodable:
    detail = (
        f"a commitTs of {describe(event.commit_ts or 0)}, years after the record was made: one of the two is damaged"
    )
    if isinstance(event, WatermarkEvent):
        return Undecodable(event.ordinal, "bad_watermark", detail)
    if isinstance(event, DdlEvent):
        return Undecodable(event.ordinal, "bad_ddl", detail, None, event.schema or None, event.table or None)
    return Undecodable(event.ordinal, "bad_value", detail, None, event.schema, event.table, event.reference)


def _of_tables(event: Event) -> Event:
    """*event*, or an ``Undecodable`` in its place if it is of names or definitions that no table has."""
    if not isinstance(event, DdlEvent | BootstrapEvent):
        return event
    if isinstance(event, DdlEvent) and not (is_unicode(event.query) and is_unicode(str(event.type))):
        return Undecodable(event.ordinal, "bad_value", "the text of a DDL that is not Unicode")
    definitions = event.definitions if isinstance(event, DdlEvent) else (event.definition,)
    refusals = (
        refused_table(event.schema, event.table),
        *(refused_definition(definition) for definition in definitions if definition is not None),
    )
    for refusal in refusals:
        if refusal is not None:
            commit_ts = event.commit_ts if isinstance(event, DdlEvent) else None
            return Undecodable(event.ordinal, *refusal, commit_ts, event.schema or None, event.table or None)
    return event


def _too_much_ddl(events: Sequence[Event]) -> list[Event]:
    """The one event of a message with more than ``MAX_DDL_EVENTS``; empty for any other."""
    found = sum(event.__class__ is DdlEvent for event in events)
    if found <= MAX_DDL_EVENTS:
        return []
    detail = f"{found} DDL; at most {MAX_DDL_EVENTS} of a message are read, as TiCDC sends one"
    return [Undecodable(None, "too_many_ddl_events", detail)]


def too_many_bad(first: Undecodable) -> list[Event]:
    """The one event of a message with more than ``MAX_BAD_EVENTS`` that can't be understood; *first* is the first of them."""
    detail = f"more than {MAX_BAD_EVENTS} events can't be read, the first: {first.reason}, {first.detail}"
    return [Undecodable(None, "too_many_bad_events", detail)]
