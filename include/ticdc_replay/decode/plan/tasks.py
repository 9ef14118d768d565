"""What crosses the seam between the driver of a decode and its workers: plain values that survive pickling."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from ticdc_replay.changelog.files.index import DataFile, Ddl, Elsewhere, EventCounts, MessageCounts
from ticdc_replay.changelog.files.keys import KeysFile
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.schemas.versions import MissingVersion

Counts = TypeVar("Counts", MessageCounts, EventCounts)


class Split(msgspec.Struct, frozen=True):
    """Ranges that are decoded together, the unit that is retried. ``number`` counts over the whole run.

    *ranges* are ordered by topic, partition and offset, and do not overlap.
    """

    number: int
    ranges: tuple[OffsetRange, ...]
    partitions: dict[str, int] = {}
    """How many partitions each topic has, where that matters."""
    sampled: int = 1
    """Of so many offsets, the messages of one are looked at whether they stand in the right partition."""


class Attempt(msgspec.Struct, frozen=True):
    """One go at a decode, of which several may run at a time. ``id`` begins the name of every file that it writes."""

    id: str
    known_objects: tuple[str, ...] = ()
    """Where to read what is known of claim-check objects; see ``known_objects.KnownObjects``."""
    known_rows: tuple[str, ...] = ()
    """Where to read what earlier runs of the input read from the source; see ``source_record.SourceRecord``."""


class VersionFile(msgspec.Struct, frozen=True):
    """A data file that a split wrote, with the schema of its rows."""

    schema: TableSchema
    version: str
    declared: bool
    file: DataFile

    def __reduce__(self) -> tuple[Any, ...]:
        return _version_file, (self.schema, self.version, self.declared, self.file)


_schemas: dict[tuple[TableName, str], TableSchema] = {}


def _version_file(schema: TableSchema, version: str, declared: bool, file: DataFile) -> VersionFile:
    """A ``VersionFile`` that came over a seam. The driver gets one for each table of each split, and keeps each schema once."""
    known = _schemas.setdefault((schema.name, version), schema)
    return VersionFile(known if known == schema else schema, version, declared, file)


class SplitResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one split left behind. File names are relative to the changelog's root."""

    number: int
    files: tuple[VersionFile, ...]
    keys_file: KeysFile | None
    quarantine_file: str | None
    references_file: str | None
    sparse_index_file: str | None
    ddl: tuple[Ddl, ...]
    other_unread: tuple[UnreadDdl, ...]
    messages: MessageCounts
    events: EventCounts
    quarantine_reasons: dict[str, int]
    missing_versions: tuple[MissingVersion, ...] = ()
    """Versions of tables that rows named and nothing defined, sorted; the rows are in quarantine."""
    writer_schemas: dict[str, str] = {}
    """SHA-256 of every schema of the registry that was used, by id."""
    elsewhere: tuple[Elsewhere, ...] = ()
    acting: tuple[EventPlace, ...] = ()
    """Those places of the job's ``set_aside`` of which something went to quarantine, sorted."""
    unsearched: tuple[OffsetRange, ...] = ()
    """Messages that may hold a claim-check reference which could not be found."""


def add_messages(parts: Iterable[MessageCounts]) -> MessageCounts:
    """The sum of *parts*, member by member."""
    return _add(MessageCounts(), parts)


def add_events(parts: Iterable[EventCounts]) -> EventCounts:
    """The sum of *parts*, member by member."""
    return _add(EventCounts(), parts)


def _add(total: Counts, parts: Iterable[Counts]) -> Counts:
    for part in parts:
        for field in part.__struct_fields__:
            setattr(total, field, getattr(total, field) + getattr(part, field))
    return total
