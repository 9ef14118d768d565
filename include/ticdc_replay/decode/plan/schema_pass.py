"""The pass before decoding: finds the table schemas in the range, so that every split types its rows alike."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.reader import read_ranges
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.registry import UsedSchemas, open_registry
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import FixedWriterSchemas, SchemaLookup


class Unread(NamedTuple):
    """A message that may hold DDL and can't be read, or not all of it; the other members as far as they could be read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    commit_ts: int | None = None
    schema: str = ""
    table: str = ""


class FoundSchemas(msgspec.Struct, frozen=True):
    """What messages say of tables, in offset order, copies included: DDL, and the definitions in DDL and bootstraps."""

    ddl: tuple[DdlEvent, ...]
    definitions: tuple[TableDefinition, ...]
    unread: tuple[Unread, ...] = ()


def find_schemas(
    ranges: Sequence[OffsetRange],
    changefeed: Changefeed,
    settings: KafkaSettings,
    max_bytes: int,
    registry: Connection | None,
) -> FoundSchemas:
    """What *ranges* say of tables. Rows are not decoded.

    *max_bytes* caps a decompressed event. What can't be decoded is left to the decode itself, which quarantines it.
    """
    lookup = SchemaLookup(writer_schemas=UsedSchemas(open_registry(registry)))
    codec = codec_for(changefeed, max_bytes, lookup)
    return schemas_in(read_ranges(settings, ranges), codec)


def schemas_in(batches: Iterable[Sequence[RawMessage]], codec: Codec) -> FoundSchemas:
    """What the messages of *batches* say of tables."""
    ddl: list[DdlEvent] = []
    definitions: list[TableDefinition] = []
    unread: list[Unread] = []
    for message in chain.from_iterable(map(codec.schema_changes, batches)):
        events = codec.decode(message)
        bad = [event for event in events if isinstance(event, Undecodable)]
        if bad:
            unread.append(_unread(message, bad))
        for event in events:
            if isinstance(event, DdlEvent):
                ddl.append(event)
                definitions += event.definitions
            elif isinstance(event, BootstrapEvent) and event.definition is not None:
                definitions.append(event.definition)
    return FoundSchemas(tuple(ddl), tuple(definitions), tuple(unread))


def _unread(message: RawMessage, bad: Sequence[Undecodable]) -> Unread:
    known = bad[0]
    if len(bad) > 1 or known.ordinal is None or known.commit_ts is None:
        return Unread(*message[:4])
    return Unread(*message[:4], known.commit_ts, known.schema or "", known.table or "")


def lookup_in(capture: Capture, max_bytes: int) -> SchemaLookup:
    """All that *capture* says of its tables, wherever in it; *max_bytes* caps a decompressed event."""
    found = schemas_in([list(capture.messages())], codec_for(capture.changefeed(), max_bytes))
    return SchemaLookup(
        SchemaHistory().with_ddls(found.ddl).with_versions(found.definitions),
        FixedWriterSchemas(capture.writer_schemas()),
    )
