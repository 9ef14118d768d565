"""The ledger of a lake mirror, as JSON documents in an object store.

A store has no transactions. Changes are kept in the session until ``flush`` writes them, in an order that lets every
step be repeated: the mirror in the registry, then its document, last the report of the window. Each change is a
function of the document that is stored then, so sessions that write at the same time lose nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import HeldTable, Load, StoppedLoad, TableReport
from ticdc_replay.targets.lake.begun import BegunLoads
from ticdc_replay.targets.lake.documents import (
    REGISTRY,
    Former,
    MirrorEntry,
    Registry,
    StoppedReport,
    TableDocument,
    TombstoneFile,
    WindowReport,
    report_name,
    run_of,
    state_name,
    table_folder,
    window_folder,
)
from ticdc_replay.targets.lake.lease import LEASE_S, WAIT_S, HeldLease, holding
from ticdc_replay.targets.mirror.begun_changes import BegunChange
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnMove,
    KnownColumn,
    RecordedColumn,
    Relation,
    TableState,
)

_READERS = 16
"""How many tables are asked for at once."""

Change = Callable[[TableDocument], TableDocument]


class _Changed:
    """What a session has changed of one table, and not written yet."""

    def __init__(self, document: TableDocument, *, is_new: bool) -> None:
        self.made = document if is_new else None
        self.document = document
        """With all changes."""
        self.changes: list[Change] = []
        self.reports: dict[tuple[Window, str], WindowReport] = {}

    def apply(self, change: Change) -> None:
        self.document = change(self.document)
        self.changes.append(change)


class LakeLedger(BegunLoads):
    """The documents of ``documents`` below the root of *store*. For one thread, as one session.

    Reads see this session's changes, and otherwise what was there when it looked first since the last ``flush``,
    ``discard``, ``share_drops`` or ``hold``. Any method may raise what ``ObjectStore`` raises. A change of a mirror that
    another session has forgotten, or made, meanwhile raises TransientError. *lease_s* and *wait_s* are seconds (``lease``).
    """

    def __init__(self, store: ObjectStore, *, lease_s: float = LEASE_S, wait_s: float = WAIT_S) -> None:
        super().__init__(store)
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._changed: dict[Relation, _Changed] = {}

    def flush(self) -> None:
        """Write what was changed. After an error it can be repeated, or discarded and done again: both end the same.

        Raises TransientError, and adds no mirror, if a drop of a database was noted since ``share_drops``.
        """
        self._register()
        for target, changed in sorted(self._changed.items(), key=lambda each: each[1].made is None):  # new ones first
            if changed.made is not None or changed.changes:
                self._update(target, changed.document, changed.changes, changed.made)
        for target, changed in self._changed.items():
            for (window, run_hash), report in changed.reports.items():
                self._documents.put(report_name(target, window, run_hash), report)
                if changed.document.stopped_of(window, run_hash) is not None:
                    ended = partial(TableDocument.without_stopped, window=window, run_hash=run_hash)
                    self._update(target, changed.document, [ended])
        self.discard()

    def discard(self) -> None:
        """Drop what was changed and not written."""
        self._changed.clear()
        self._drops_seen = None
        self._documents.forget_reads()

    @contextmanager
    def hold(self, target: Relation, attempt: str) -> Iterator[HeldLease]:
        """Hold the lease of *target*, which need not be known. See ``lease.holding`` for what is raised."""
        name = f"{table_folder(target)}/lease.json"
        with holding(self._documents.store, name, attempt, self._lease_s, self._wait_s) as lease:
            self._documents.forget_reads()
            yield lease

    def state_of(self, target: Relation) -> TableState | None:
        document = self._document(target)
        return document.state if document is not None else None

    def incarnation_of(self, target: Relation) -> str | None:
        """What the mirror *target* carries as a property, unlike others that had the name before; None if it is not known."""
        document = self._document(target)
        return document.incarnation if document is not None else None

    def marks_of(self, target: Relation) -> tuple[str, ...]:
        """What the table of the mirror *target* may carry: its incarnation, or that of the name which it had before. Empty if the
        mirror is not known."""
        incarnation, former = self.incarnation_of(target), self.former_of(target)
        return tuple(
            each for each in (incarnation, former.incarnation if former is not None else None) if each is not None
        )

    def former_of(self, target: Relation) -> Former | None:
        """What is known of the name that the table of *target* had before; None for nothing."""
        document = self._document(target)
        return document.former if document is not None else None

    def mirrors(self) -> list[tuple[TableName, Relation, str]]:
        made = [_entry(target, each) for target, each in self._changed.items() if each.made is not None]
        return [(entry.source, entry.target, entry.pipeline) for entry in self._registry().with_mirrors(made).mirrors]

    def add_table(
        self,
        target: Relation,
        *,
        source: TableName,
        pipeline: str,
        tombstones: Relation,
        newest_ts: int,
        floor_ts: int,
        form_floor_ts: int,
    ) -> None:
        if self._drops_seen is None:
            self.share_drops()
        document = TableDocument(
            source=source,
            pipeline=pipeline,
            incarnation=uuid4().hex,
            tombstones=tombstones,
            newest_ts=newest_ts,
            floor_ts=floor_ts,
            form_floor_ts=form_floor_ts,
        )
        self._changed[target] = _Changed(document, is_new=True)

    def note_deleted_column(self, target: Relation, column: str) -> None:
        """Never asked: the session alone knows the column (``MirrorSection.marker``)."""
        raise PermanentError(
            f"{target}: the ledger of a lake does not know the column {column} that marks deleted rows"
        )

    def raise_floor(self, target: Relation, floor_ts: int, form_floor_ts: int) -> None:
        self._of(target).apply(lambda document: document.with_floor(floor_ts, form_floor_ts))

    def note_base(self, target: Relation, run_hash: str) -> None:
        self._of(target).apply(lambda document: document.with_base(run_hash))

    def note_shape(self, target: Relation, pipeline: str) -> None:
        self._of(target).apply(lambda document: document.with_shape(pipeline))

    def raise_marks(self, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
        self._of(target).apply(lambda document: document.with_marks(schema_ts, whole_ts, newest_ts))

    def note_form(self, target: Relation, columns: Mapping[str, KnownColumn]) -> None:
        self._of(target).apply(lambda document: document.with_form(columns))

    def note_former(self, target: Relation, former: Former) -> None:
        """Note that the table of *target* is that of *former*, whose incarnation it still carries."""
        self._of(target).apply(lambda document: document.with_former(former))

    def forget_former(self, target: Relation) -> None:
        """Note, at once, that the table of *target* carries its own incarnation."""
        if self.former_of(target) is not None:
            self._write_now(target, lambda document: document.with_former(None))

    def note_topic(self, target: Relation, topic_id: str) -> None:
        self._of(target).apply(lambda document: document.with_topic(topic_id))

    def note_added_column(self, target: Relation, column: str, commit_ts: int, fill: str | None) -> None:
        added = RecordedColumn(commit_ts, fill)
        self._of(target).apply(lambda document: document.with_added_column(column, added))

    def note_column_event(self, target: Relation, move: ColumnMove) -> None:
        """At once, if the mirror is known to others, with its step as one that has begun: the event is true whether or not
        the step is done."""
        self._write_soon(target, lambda document: document.with_move(move))

    def note_column_event_later(self, target: Relation, move: ColumnMove) -> None:
        """As ``note_column_event``, of a *move* without a step, with the next ``flush``."""
        self._of(target).apply(lambda document: document.with_move(move))

    def begun_changes(self, target: Relation) -> tuple[BegunChange, ...]:
        """The statements that change columns of *target*, and may have been done or not; oldest first."""
        document = self._document(target)
        return document.begun if document is not None else ()

    def begin_change(self, target: Relation, change: BegunChange) -> None:
        """Note, at once, that the statement of *change* is about to be run."""
        self._write_soon(target, lambda document: document.with_begun(change))

    def end_change(self, target: Relation, change: BegunChange) -> None:
        """Note that the statement of *change* is done: of an added column with the next ``flush``, which also says what rows
        show in it, else at once."""
        if change.key not in {each.key for each in self.begun_changes(target)}:
            return
        if change.adds:
            self._of(target).apply(lambda document: document.without_begun(change))
        else:
            self._write_soon(target, lambda document: document.without_begun(change))

    def begin_dropping(self, target: Relation, floor_ts: int) -> None:
        """Note, at once, that the table *target* is about to be dropped, and its floor raised to *floor_ts* (TSO).

        From now on the table may be gone, and ``state_of`` says so. Ends with the first ``flush`` that raises the floor
        so far, or notes a version from above it.
        """
        self._write_now(target, lambda document: document.with_dropping(floor_ts))

    def tombstones_of(self, target: Relation) -> tuple[TombstoneFile, ...]:
        """The tombstone files of *target* that have versions at or above its floor; sorted."""
        document = self._document(target)
        return document.live_tombstones if document is not None else ()

    def add_tombstones(self, target: Relation, files: Sequence[TombstoneFile]) -> None:
        """Add *files*, which are there, to the tombstones of *target*."""
        self._of(target).apply(lambda document: document.with_tombstones(files))

    def replace_tombstones(self, target: Relation, old: Collection[str], new: Sequence[TombstoneFile]) -> None:
        """List *new*, at once, in place of the files called *old*; those that others add meanwhile stay listed.

        Raises TransientError if one of *old* is not listed any more: *new* may hold deletes of a mirror that was replaced.
        """

        def replaced(document: TableDocument) -> TableDocument:
            if not {file.name for file in document.tombstone_files}.issuperset(old):
                raise TransientError(f"the deletes of {target} were replaced meanwhile; try again")
            return document.with_tombstones(new, without=old)

        self._write_now(target, replaced)

    def forget(self, target: Relation, tombstones: Relation) -> None:
        """At once. Reports stay, and no longer count. *tombstones* is a name only: the files are those of the document."""
        self._changed.pop(target, None)
        self._documents.forget_reads()
        document = self._document(target)
        if self._registry().entry_of(target) is not None:
            self._documents.update(REGISTRY, Registry, lambda found: (found or Registry()).without_mirror(target))
        self._documents.delete(state_name(target))
        for file in document.tombstone_files if document is not None else ():
            self._documents.store.delete(file.name)

    def report_of(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        done, document = self._done(target, window, run_hash), self._document(target)
        if done is not None or document is None:
            return done
        stopped = document.stopped_of(window, run_hash)
        return stopped.report if stopped is not None else None

    def runs_of(self, target: Relation, window: Window) -> dict[str, str | None]:
        """The runs that have loaded *window*, each with the run whose quarantine it re-drives; sorted."""
        incarnation = self.incarnation_of(target)
        found = {}
        for info in self._documents.store.list(window_folder(target, window)):
            report = self._documents.read_now(info.name, WindowReport)
            if report is not None and report.incarnation == incarnation:
                found[run_of(info.name)] = report.redrives
        return dict(sorted(found.items()))

    def stopped_loads(self, target: Relation, pipeline: str) -> tuple[StoppedLoad, ...]:
        document = self._document(target)
        return tuple(
            StoppedLoad(each.run_hash, each.window, each.report)
            for each in (document.stopped if document is not None else ())
            if each.pipeline == pipeline and self._done(target, each.window, each.run_hash) is None
        )

    def other_runs(self, load: Load) -> tuple[HeldTable, ...]:
        """Without changes of this session that are not written."""
        entries = [entry for entry in self._registry().mirrors if load.index.pipeline in entry.loaded_by]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="ledger") as pool:
            found = pool.map(partial(self._other_runs, load), entries)
            return tuple(sorted(each for tables in found for each in tables))

    def note_done(self, load: Load, target: Relation, report: TableReport) -> None:
        """The report is written last."""
        index, changed = load.index, self._of(target)
        run = (index.window, index.run_hash)
        if report.outcome != "stopped":
            incarnation = changed.document.incarnation
            changed.reports[run] = WindowReport(index.pipeline, load.attempt, incarnation, report, index.redrives)
        elif self._done(target, *run) is None:
            stopped = StoppedReport(*run, index.pipeline, load.attempt, report)
            changed.apply(lambda document: document.with_stopped(stopped))

    def _register(self) -> None:
        """Make the registry list what was changed, as the documents have it."""
        wanted = [_entry(target, changed) for target, changed in self._changed.items()]
        made = [target for target, changed in self._changed.items() if changed.made is not None]

        def registered(found: Registry | None) -> Registry:
            registry = found or Registry()
            listed = {(entry.target, entry.incarnation) for entry in registry.mirrors}
            own = {(entry.target, entry.incarnation) for entry in wanted if entry.target in made}
            if own - listed and registry.drops != self._drops_seen:
                raise TransientError(
                    "a window that dropped databases was loaded while this load prepared the mirrors "
                    f"{', '.join(map(str, made))}; try again"
                )
            return registry.with_mirrors(wanted)

        registry = self._registry()
        if registry.with_mirrors(wanted) != registry:
            self._documents.update(REGISTRY, Registry, registered)

    def _other_runs(self, load: Load, entry: MirrorEntry) -> list[HeldTable]:
        index = load.index
        names = [info.name for info in self._documents.store.list(window_folder(entry.target, index.window))]
        reports = {
            run_of(name): self._documents.read_now(name, WindowReport)
            for name in names
            if run_of(name) != index.run_hash
        }
        return [
            HeldTable(run, found.report.table)
            for run, found in reports.items()
            if found is not None and (found.pipeline, found.incarnation) == (index.pipeline, entry.incarnation)
        ]

    def _window_report(self, target: Relation, window: Window, run_hash: str) -> WindowReport | None:
        changed, document = self._changed.get(target), self._document(target)
        if changed is not None and (window, run_hash) in changed.reports:
            return changed.reports[window, run_hash]
        if document is None:
            return None
        found = self._documents.read(report_name(target, window, run_hash), WindowReport)
        return found if found is not None and found.incarnation == document.incarnation else None

    def _done(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        found = self._window_report(target, window, run_hash)
        return found.report if found is not None else None

    def _document(self, target: Relation) -> TableDocument | None:
        if target in self._changed:
            return self._changed[target].document
        return self._documents.read(state_name(target), TableDocument)

    def _of(self, target: Relation) -> _Changed:
        """What is changed of *target*; nothing yet, if this is the first change. Raises TransientError if it is unknown."""
        if target not in self._changed:
            document = self._document(target)
            if document is None:
                raise _forgotten(target)
            self._changed[target] = _Changed(document, is_new=False)
        return self._changed[target]

    def _write_soon(self, target: Relation, change: Change) -> None:
        """Apply *change* at once, or with the mirror if that is not written yet: then no table of it is there."""
        changed = self._changed.get(target)
        if changed is not None and changed.made is not None:
            changed.apply(change)
        else:
            self._write_now(target, change)

    def _write_now(self, target: Relation, change: Change) -> None:
        """Apply *change* to the document as it is stored, and to this session's view of it."""
        known = self._document(target)
        if known is None:
            raise _forgotten(target)
        self._update(target, known, [change])
        if target in self._changed:
            self._changed[target].apply(change)

    def _update(
        self, target: Relation, own: TableDocument, changes: Sequence[Change], made: TableDocument | None = None
    ) -> None:
        """Apply *changes* to the document as it is stored, or to *made* if there is none. Raises TransientError if that
        is not the incarnation of *own*."""

        def changed(stored: TableDocument | None) -> TableDocument:
            document = stored or made
            if document is None:
                raise _forgotten(target)
            if document.incarnation != own.incarnation:
                raise TransientError(f"the mirror {target} was made by another load meanwhile; try again")
            for change in changes:
                document = change(document)
            return document

        self._documents.update(state_name(target), TableDocument, changed)


def _forgotten(target: Relation) -> TransientError:
    return TransientError(f"the mirror {target} is not known, or was forgotten meanwhile; try again")


def _entry(target: Relation, changed: _Changed) -> MirrorEntry:
    document = changed.document
    loaded_by = {document.pipeline, *(report.pipeline for report in changed.reports.values())}
    return MirrorEntry(document.source, target, document.pipeline, document.incarnation, tuple(sorted(loaded_by)))
