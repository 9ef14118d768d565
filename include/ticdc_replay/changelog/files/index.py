"""The index of a changelog: which files make it up, and the counts that account for every consumed message.

``index.json`` is written once, last: a changelog without it does not exist for any reader. If files that it names are missing,
the next decode removes it and writes the changelog again. Data files are in a layout that Hive and Spark understand:
``data/schema=<schema>/table=<table>/version=<version>/<file>.parquet`` (names percent-encoded).
"""

import msgspec

from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import TableChanges
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.snapshot.manifest import ManifestSource


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file of rows of one topic. ``name`` is relative to the changelog's root; sizes are bytes.

    Commit timestamps are TSO; 0 if no row has one. With ``only``, all members but the name are about the rows that count.
    """

    name: str
    rows: int
    bytes: int
    min_commit_ts: int
    max_commit_ts: int
    topic: str = ""
    run: str = ""
    """The run whose folder it is in; empty for the index's own."""
    only: Window | None = None
    """If only some rows of the file count, the window of their commitTs."""


class TableVersion(msgspec.Struct, frozen=True):
    """The files of one table that share one schema. ``version`` is the first 16 hex digits of the schema's hash.

    ``declared``: every column type came from a table definition.
    """

    schema: TableSchema
    version: str
    declared: bool
    files: tuple[DataFile, ...]
    rows: int


class Ddl(msgspec.Struct, frozen=True, order=True):
    """One DDL of the window, counted once however many partitions carried it; ``rounded`` as ``DdlEvent`` has it."""

    commit_ts: int
    schema: str
    table: str
    query: str
    type: int | str
    topic: str
    partition: int
    offset: int
    rounded: bool = False

    @property
    def event(self) -> DdlEvent:
        """The event, without definitions."""
        return DdlEvent(0, self.commit_ts, self.schema, self.table, self.query, self.type, rounded=self.rounded)


class Elsewhere(msgspec.Struct, frozen=True, order=True):
    """Rows of a table that stand in another topic or partition than the dispatcher rules say, of those that were sampled."""

    table: str
    rows: int
    example: str
    """Where one of them is, and where it should be."""


class MessageCounts(msgspec.Struct, kw_only=True):
    """Where the consumed messages went; ``consumed`` is the sum of all others. Sizes in bytes of key and value."""

    consumed: int = 0
    bytes: int = 0
    decoded: int = 0
    quarantined: int = 0


class EventCounts(msgspec.Struct, kw_only=True):
    """Where the events of the decoded messages went.

    Every row is accounted for:
    ``rows + split_updates == outside_window + filtered + quarantined + duplicates + written``.
    """

    rows: int = 0
    ddl: int = 0
    watermarks: int = 0
    bootstraps: int = 0
    undecodable: int = 0
    """Events that could not be read at all, and stand in quarantine."""
    split_updates: int = 0
    """Raw updates that changed their key: each became a delete and a put."""
    outside_window: int = 0
    filtered: int = 0
    quarantined: int = 0
    """Rows that were read but can't be used: partial without a whole copy, or cells of another type than the column's."""
    duplicates: int = 0
    conflicts: int = 0
    """Duplicates with another content than the copy that stayed; of a row version, each content counts once."""
    written: int = 0
    claim_checks_resolved: int = 0
    claim_check_bytes: int = 0
    handle_key_only: int = 0
    """Rows for which only the key was sent, without deletes; all but those ``reread`` are in quarantine."""
    reread: int = 0
    """Rows for which only the key was sent, and which the source completed."""
    unkeyed: int = 0
    """Rows of tables without any key: history only, never deduplicated; a subset of ``written``."""
    placed: int = 0
    """Sampled rows whose topic and partition were checked against the dispatcher rules; a subset of ``rows``."""

    @property
    def unaccounted(self) -> int:
        """Rows in none of the counts; not 0 is a defect."""
        went = self.outside_window + self.filtered + self.quarantined + self.duplicates + self.written
        return self.rows + self.split_updates - went


class DecodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a decode did, in counts that add up."""

    messages: MessageCounts
    events: EventCounts
    quarantine_reasons: dict[str, int]
    watermark: int | None
    """The smallest resolved-ts, over live partitions, that the range reached (TSO)."""
    undeclared_tables: tuple[str, ...]
    """Tables with at least one column whose type is known from the wire alone."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Tables with rows, among those ``placed``, that stand elsewhere than the dispatcher rules say."""
    idle_places: tuple[EventPlace, ...] = ()
    """Places of the index's ``set_aside`` without a row of the window and its tables: nothing went to quarantine."""


class ChangelogIndex(msgspec.Struct, frozen=True, kw_only=True):
    """A complete changelog of one run: immutable, named by ``run_hash``."""

    format: int = 1
    pipeline: str
    run_hash: str
    input_hash: str
    library_version: str
    window: Window
    ranges: tuple[OffsetRange, ...]
    topic_ids: dict[str, str] = {}
    """Kafka's id of each topic of the window, by name."""
    cluster_id: str | None = None
    """Kafka's own, as its manifest has it."""
    order: VersionOrder = "commit_ts"
    """What orders the versions of a row."""
    tables: tuple[TableVersion, ...]
    ddl: tuple[Ddl, ...]
    """The DDL of the window, of every table: a RENAME of a wanted table stands under its new name."""
    other_ddl: tuple[Ddl, ...] = ()
    """DDL of the pinned range outside the window; incomplete there, but later windows may start after it."""
    unread_ddl: tuple[UnreadDdl, ...] | None = None
    """Unread messages of the range that may hold DDL, without those before the window. Rows whose types depend on them are in
    quarantine. None for decodes by versions that did not record it."""
    other_unread: tuple[UnreadDdl, ...] = ()
    """Unread messages that may hold DDL of other tables or times. They are not in quarantine, and later windows may need them."""
    changes: tuple[TableChanges, ...]
    """What each DDL of the window does to its tables, in order of commitTs. Only a decode knows the definitions before it."""
    quarantine_files: tuple[str, ...]
    reference_files: tuple[str, ...]
    sparse_index_files: tuple[str, ...]
    unsearched: tuple[OffsetRange, ...] | None = None
    """Unread messages that may hold claim-check references which are in no reference file. None for decodes by versions that did
    not search them."""
    search: int = 0
    """The search that found ``unsearched`` (``domain.events.SEARCH``); of several changelogs, the least."""
    definitions: tuple[TableDefinition, ...] = ()
    """Versions of tables that were found in the range or after it (Simple)."""
    writer_schemas: dict[str, str] = {}
    """SHA-256 (hex) of every schema of the registry that was used, by id."""
    selection: tuple[str, ...] = ()
    """The patterns of the decoded tables; none for decodes by versions that did not record them."""
    variant: tuple[str, ...] = ()
    """Settings of the decode that decide which rows can be used, where they are not the defaults."""
    set_aside: tuple[EventPlace, ...] = ()
    """The places in the ranges whose rows had to be set aside. Of several changelogs, those that each had to set aside or did not
    read."""
    derived: tuple[ManifestSource, ...] = ()
    """The changelogs that this one's files, or the rows of them that count, belong to."""
    redrives: str | None = None
    """For a re-drive, the run whose quarantine was decoded: this changelog is a part of the window, to be added to that run."""
    base: str = ""
    """For a base, the URI of the dump: each row of the upstream at the window's first TSO is an upsert of that commitTs, and the
    window has no other. Empty for the changes of a window."""
    contents: dict[str, str] = {}
    """For a base, by table the digest of what its rows follow from: files, definition and options of the dump, whatever else was
    read with it and by which version. Tables of earlier versions have none."""
    report: DecodeReport
    took_ms: int = 0
    """How long the decode took, by the clock; 0 for versions that did not record it."""

    @property
    def identities(self) -> dict[str, TopicIdentity]:
        """The topics of the window, by name; without cluster where that is not known."""
        return {name: TopicIdentity(self.cluster_id or "", name, id_) for name, id_ in self.topic_ids.items()}

    @property
    def is_base(self) -> bool:
        """Whether it holds the rows of tables at a TSO, from a dump."""
        return bool(self.base)

    def files(self) -> frozenset[str]:
        """The names of its own files, relative to its root, but for the index itself."""
        data = (file.name for version in self.tables for file in version.files if not file.run)
        return frozenset((*data, *self.quarantine_files, *self.reference_files, *self.sparse_index_files))

    def borrowed(self) -> dict[str, frozenset[str]]:
        """The names of the data files that lie in other runs' folders, by run, relative to those runs' roots."""
        found: dict[str, set[str]] = {}
        for file in (file for version in self.tables for file in version.files if file.run):
            found.setdefault(file.run, set()).add(file.name)
        return {run: frozenset(names) for run, names in found.items()}

    def extent_of(self, version: TableVersion) -> tuple[int, int]:
        """The first and the last commitTs (TSO) of the rows of *version*: the window's where not all have one."""
        if self.order == "place" or not version.files:
            return self.window.from_ts, self.window.to_ts - 1
        files = version.files
        return min(file.min_commit_ts for file in files), max(file.max_commit_ts for file in files)

    def is_before(self, commit_ts: int, floor_ts: int) -> bool:
        """Whether what a DDL of *commit_ts* did lies below *floor_ts*, both TSO: of a window by offset all or nothing does."""
        return self.window.to_ts <= floor_ts if self.order == "place" else commit_ts < floor_ts

    def topic_ids_of(self, name: TableName) -> set[str]:
        """Kafka's ids of the topics with rows of the table *name*."""
        files = [file for version in self.versions_of(name) for file in version.files]
        return {self.topic_ids[file.topic] for file in files}

    def versions_of(self, name: TableName) -> list[TableVersion]:
        """The versions of the table *name*, oldest schema first."""
        found = [version for version in self.tables if version.schema.name == name]
        return sorted(found, key=lambda version: (version.schema.valid_from, version.version))

    def table_names(self) -> list[TableName]:
        """Every table with rows or DDL in the window, sorted."""
        names = {version.schema.name for version in self.tables}
        names |= {change.table for change in self.changes if change.table.table}
        names |= {TableName(ddl.schema, ddl.table) for ddl in self.ddl if ddl.table}
        return sorted(names)


def decode(content: bytes) -> ChangelogIndex:
    """An index from its JSON. Raises msgspec.ValidationError with the path inside the document."""
    return msgspec.json.decode(content, type=ChangelogIndex)
