"""What crosses the seam between the driver of a decode and its workers: plain values that survive pickling."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from ticdc_replay.changelog.files.index import Ddl, Elsewhere, EventCounts, MessageCounts
from ticdc_replay.changelog.files.keys import KeysFile
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.schemas.versions import MissingVersion

Counts = TypeVar("Counts", bound=msgspec.Struct)


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
    """One attempt at a decode; several may run at a time. ``id`` begins the name of every file that it writes."""

    id: str
    known_objects: tuple[str, ...] = ()
    """Where to read what is known of claim-check objects; see ``known_objects.KnownObjects``."""
    known_rows: tuple[str, ...] = ()
    """Where to read what earlier runs of the input read from the source; see ``source_record.SourceRecord``."""


class SplitContext(NamedTuple):
    """What all splits of one attempt share.

    ``window`` is None where the ranges themselves are the window: then every row belongs to it, and rows are ordered by place.
    """

    attempt: Attempt
    job: DecodeJob
    window: Window | None
    history: SchemaHistory
    connections: Connections


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
    """Those places of the job's ``set_aside`` from which something went to quarantine, sorted."""
    unsearched: tuple[OffsetRange, ...] = ()
    """Messages that may hold a claim-check reference which could not be found."""


def added(total: Counts, parts: Iterable[Counts]) -> Counts:
    """*total*, to which each of *parts* is added, member by member."""
    for part in parts:
        for field in part.__struct_fields__:
            setattr(total, field, getattr(total, field) + getattr(part, field))
    return total
