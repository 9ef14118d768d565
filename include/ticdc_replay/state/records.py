"""What the state store holds, as values. Times ending in ``_ms`` are milliseconds since the Unix epoch."""

from typing import Literal

import msgspec

from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Grade, Window

RunStatus = Literal["running", "done", "failed"]
Quality = Literal["complete", "quarantine"]
"""``quarantine`` where a part was set aside by policy."""
PlanStatus = Literal["open", "approved", "rejected", "executed"]
LeaseKind = Literal["replay", "deletion", "decode"]
"""Many replays use a store at once, beside one deletion."""


class WindowManifest(msgspec.Struct, frozen=True):
    """Which manifest a window of a pipeline has. ``name`` is the manifest's name in the artefact store."""

    pipeline: str
    window: Window
    input_hash: str
    name: str
    pinned_at_ms: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One changelog: a window's input, decoded with one configuration and library version."""

    pipeline: str
    run_hash: str
    window: Window
    input_hash: str
    status: RunStatus
    started_at_ms: int
    finished_at_ms: int | None = None
    index: str | None = None
    """Name of the changelog's index in the artefact store, once there is one."""
    counts: dict[str, int] = {}


class CoveredTable(msgspec.Struct, frozen=True, order=True):
    """A table of which a run had rows or DDL."""

    table: TableName
    quality: Quality | Literal["left_out", "forgotten"]
    """``left_out`` where the target can't hold the table: it has no key, or a reserved name. ``forgotten`` where it was loaded
    and dropped since."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """A window that the place of a target holds, for all tables that match ``selection``: also those that had nothing in it."""

    pipeline: str
    target: str
    """What the target was called when the run was loaded."""
    place: str
    """Where the target's content lay (``TargetSection.place``): what holds the window."""
    window: Window
    run_hash: str
    selection: tuple[str, ...]
    """The patterns of tables that the run was for."""
    grade: Grade
    quality: Quality
    """Of the tables of the selection that are not among ``tables``."""
    tables: tuple[CoveredTable, ...]
    """Sorted."""
    loaded_at_ms: int
    generation: int = 0
    """Of the run, as the load carried it (``generations``)."""
    attempt: str = ""
    """The load whose report says so."""


class BegunLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load into a target that replaces what it has of the window, from its beginning until its coverage is recorded.

    Until then the target may hold what was there before, what the load brings, or the one of some tables and the other of others.
    """

    pipeline: str
    target: str
    place: str
    """As in ``Coverage``."""
    window: Window
    run_hash: str
    selection: tuple[str, ...]
    generation: int


class SchemaScan(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition whose DDL an earlier version of the library put into its schema history."""

    topic: TopicIdentity
    partition: int
    start: int
    end: int


class KnownDdl(msgspec.Struct, frozen=True):
    """A DDL that was found in a topic."""

    topic: TopicIdentity
    event: DdlEvent


class DdlScan(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Offsets ``[start, end)`` of one partition all of whose DDL is in the state store.

    Every DDL with a commitTs of ``known_from`` (TSO) or later that was sent before ``end`` was sent at ``start`` or later.
    ``resolved_ts`` is one that the partition carried before ``end`` (TSO), 0 where none is known: every DDL with a smaller
    commitTs was sent before ``end``.
    """

    topic: TopicIdentity
    partition: int
    start: int
    end: int
    known_from: int
    resolved_ts: int = 0


class ScannedRange(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Offsets ``[start, end)`` of one partition that were scanned for claim-check references.

    ``file`` is the name of the Parquet file with the references in the artefacts of the claim-check store that was reconciled;
    None where there was none. ``topic_id`` and ``cluster_id`` are Kafka's; the latter is empty in scans by earlier versions.
    ``search`` is which search it was (``domain.events.SEARCH``).
    """

    pipeline: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    file: str | None
    cluster_id: str = ""
    search: int = 0

    @property
    def identity(self) -> TopicIdentity:
        """The topic."""
        return TopicIdentity(self.cluster_id, self.topic, self.topic_id)


class Stretch(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition and the commitTs range (TSO) of all events in them.

    Both are None where the stretch holds no event with a commitTs. Offsets of a recreated topic say nothing about the one before.
    """

    topic: TopicIdentity
    partition: int
    start: int
    end: int
    min_commit_ts: int | None
    max_commit_ts: int | None


class Redrive(msgspec.Struct, frozen=True, order=True):
    """A run that came out of the quarantine of another, and where it was loaded.

    ``target`` is "" for the run itself: its changelog is complete.
    """

    pipeline: str
    run_hash: str
    """The run whose quarantine it was."""
    redrive_hash: str
    target: str
    recorded_at_ms: int
    place: str = ""
    """Of the target, as in ``Coverage``; "" for the run itself."""


class AcceptedLoss(msgspec.Struct, frozen=True, order=True):
    """An entry of a quarantine that a person accepted as lost, for the reason it stands there and for no other.

    ``ordinal`` is -1 for a whole message. Of what earlier versions recorded, ``topic`` has the id alone.
    """

    pipeline: str
    topic: TopicIdentity
    partition: int
    offset: int
    ordinal: int
    reason: str
    run_hash: str
    """The run in whose quarantine it stood."""
    person: str
    why: str
    record: str
    """Name of the record in the artefact store."""
    accepted_at_ms: int


class ReferenceFile(msgspec.Struct, frozen=True, order=True):
    """A file of claim-check references that a run left. ``name`` is relative to the artefact store."""

    pipeline: str
    run_hash: str
    name: str


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation of a claim-check store that came to its end."""

    store: str
    reconciliation_id: str
    began_at_ms: int
    finished_at_ms: int
    report: str
    """Name of the report below the store's artefacts."""
    totals: dict[str, int]
    """What the trend shows, such as ``objects.orphaned`` or ``bytes.orphaned``."""


class DeletionPlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion plan, and what people said to it."""

    store: str
    plan_hash: str
    name: str
    """Name of the plan below the store's artefacts."""
    made_at_ms: int
    due_at_ms: int
    """Not executed before."""
    objects: int
    bytes: int
    status: PlanStatus = "open"
    decided_by: str = ""
    decided_why: str = ""
    decided_at_ms: int | None = None
    reconciliation_id: str | None = None
    """The reconciliation that it is of, which has no other plan; None for plans of earlier versions."""
    policy: str | None = None
    """The store's when the plan was made: only a plan that was made under ``automatic`` needs nobody's approval."""


class DeletionExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a deletion plan."""

    store: str
    plan_hash: str
    execution_id: str
    started_at_ms: int
    finished_at_ms: int | None = None
    audit: str | None = None
    """Name of the audit record below the store's artefacts, once there is one."""
    counts: dict[str, int] = {}


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who uses a claim-check store, and until when that counts unless it is renewed. Times are of the state store's clock."""

    resource: str
    """The store's URI."""
    holder: str
    """Differs between any two processes and attempts."""
    kind: LeaseKind
    subject: str
    """What is done: the replayed input, the hash of the deletion plan."""
    acquired_at_ms: int
    expires_at_ms: int
