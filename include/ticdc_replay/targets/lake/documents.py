"""The JSON documents of a lake mirror's ledger, and where they lie below its root. Timestamps are TSO.

* ``mirrors.json``: the ``Registry``, which lists all mirrors and the databases that loads have dropped. One document, so
  that a mirror is added only if no drop was noted meanwhile.
* ``tables/<schema>/<table>/state.json``: a ``TableDocument``. Beside it ``lease.json`` (``lease``), and
  ``windows/<from>-<to>/<run_hash>.json``, a ``WindowReport``.
* ``begun/<pipeline>/<from>-<to>.json``: the marks of loads of a window that have begun, by place (``Marks``).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from ticdc_replay.changelog.files.layout import escape
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import TableReport
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.mirror.begun_changes import BegunChange
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnEvent,
    ColumnMove,
    KnownColumn,
    RecordedColumn,
    Relation,
    TableState,
    events_above,
)

REGISTRY = "mirrors.json"
_TSO_DIGITS = 20
"""So that names of marks sort as their windows do."""

Marks = dict[str, tuple[Mark, ...]]
"""The marks of one window, by the schema of the mirrors that they are about (``Ledger.put_mark``)."""


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read only where all is understood: what a newer version has written would be lost at the next write."""


class MirrorEntry(_Document, frozen=True):
    """One mirror in the registry."""

    source: TableName
    target: Relation
    pipeline: str
    """The one that loaded it first."""
    incarnation: str
    loaded_by: tuple[str, ...]
    """Sorted: all pipelines that have loaded it."""


class DropNote(_Document, frozen=True, order=True, kw_only=True):
    """A database that the window of a load dropped: no row below ``floor_ts`` was left of it."""

    pipeline: str
    place: str
    window: Window
    selection: tuple[str, ...]
    """Sorted."""
    window_run: str
    """The run of the window that the load is of, or adds to."""
    database: str
    """As the upstream compares names; empty for all."""
    floor_ts: int
    run_hash: str
    generation: int
    forgotten: tuple[str, ...] = ()
    """Sorted: mirrors that were forgotten since, for which it does not count."""


class Registry(_Document, frozen=True):
    """All mirrors, by source, and all noted drops of databases; both sorted."""

    mirrors: tuple[MirrorEntry, ...] = ()
    drops: tuple[DropNote, ...] = ()
    format: int = 1

    def entry_of(self, target: Relation) -> MirrorEntry | None:
        """The entry of *target*, or None."""
        return next((entry for entry in self.mirrors if entry.target == target), None)

    def with_mirrors(self, entries: Iterable[MirrorEntry]) -> "Registry":
        """With *entries* in place of those of the same targets; pipelines that loaded the same incarnation stay known."""
        by_target = {entry.target: entry for entry in self.mirrors}
        for entry in entries:
            known = by_target.get(entry.target)
            same = known is not None and known.incarnation == entry.incarnation
            loaded_by = {*entry.loaded_by, *(known.loaded_by if known is not None and same else ())}
            by_target[entry.target] = msgspec.structs.replace(entry, loaded_by=tuple(sorted(loaded_by)))
        ordered = sorted(by_target.values(), key=lambda entry: (entry.source, entry.target.schema, entry.target.table))
        return msgspec.structs.replace(self, mirrors=tuple(ordered))

    def without_mirror(self, target: Relation) -> "Registry":
        """Without the entry of *target*."""
        return msgspec.structs.replace(self, mirrors=tuple(each for each in self.mirrors if each.target != target))

    def with_drops(self, drops: Iterable[DropNote]) -> "Registry":
        """With *drops* in place of all that were noted."""
        return msgspec.structs.replace(self, drops=tuple(sorted(set(drops))))


class TombstoneFile(_Document, frozen=True, order=True):
    """A Parquet file of keys that were deleted, each with its version. ``name`` is relative to the ledger's root;
    ``last_ts`` is the newest version in it."""

    name: str
    rows: int
    last_ts: int


class StoppedReport(_Document, frozen=True):
    """The report of a load that DDL at the window's end stopped. Counts only as long as the window has no
    ``WindowReport`` of the run."""

    window: Window
    run_hash: str
    pipeline: str
    attempt: str
    report: TableReport


class WindowReport(_Document, frozen=True):
    """The report of a run that was applied to the end of a window. Of another incarnation than its table's, it does not count."""

    pipeline: str
    attempt: str
    incarnation: str
    report: TableReport
    redrives: str | None = None
    """The run whose quarantine it re-drives."""


class SwapNote(_Document, frozen=True):
    """It is decided that the mirror ``side``, which was filled anew, takes the place of the one that this is noted of."""

    side: Relation
    held: str
    """Hash of the runs that the old mirror had. If it has others, a load came between, and the swap does not take place."""
    is_new: bool = False
    """Whether the ledger did not know the mirror. If the swap is withdrawn, it forgets it."""
    is_lost: bool = False
    """Whether there was no table. If the swap is withdrawn, there is none, either: one without rows would hide that."""
    columns: tuple[str, ...] = ()
    """Those of the table. If the swap is withdrawn, those that it has added go."""
    has_rows: bool = False
    """Whether the commit that brings the rows of ``side`` was done, whatever becomes of its snapshot."""
    is_written: bool = False
    """Whether rows and ledger are those of ``side``, so that only that one is left to be removed."""


class Former(_Document, frozen=True):
    """The mirror whose name a table had before a RENAME that was followed, with the floor ``floor_ts`` (TSO) after it. The table
    may still carry its ``incarnation``."""

    incarnation: str
    floor_ts: int


class TableDocument(_Document, frozen=True, kw_only=True):
    """What the ledger knows of one mirror: ``TableState``, and what a lake needs beside it.

    Its methods merge changes as a mirror's ledger does in a database. Applied twice in the same order, or after another
    session's, they lose nothing: floors and marks only rise, and of a column's definitions the newest stays.
    """

    source: TableName
    pipeline: str
    incarnation: str
    """Unlike that of any other mirror that had the name before."""
    tombstones: Relation
    floor_ts: int
    form_floor_ts: int
    newest_ts: int
    schema_ts: int = 0
    whole_ts: int = 0
    topic_id: str | None = None
    added_columns: dict[str, RecordedColumn] = {}
    columns: dict[str, KnownColumn] = {}
    events: tuple[ColumnEvent, ...] = ()
    begun: tuple[BegunChange, ...] = ()
    """Oldest first. Each is noted before its statement, and taken out after it."""
    tombstone_files: tuple[TombstoneFile, ...] = ()
    """Sorted."""
    dropping_ts: int = 0
    """The floor of the last DROP that is followed: set before the table is dropped, and the floor later; 0 for none."""
    stopped: tuple[StoppedReport, ...] = ()
    """Oldest first."""
    base: str = ""
    """As ``TableState`` has it."""
    swap: SwapNote | None = None
    """Set until the swap has ended."""
    former: Former | None = None
    """Of the last rename of its table that was followed."""
    shaped_by: str | None = None
    """As ``TableState`` has it."""
    takes_place_of: Relation | None = None
    """The mirror whose place it takes, once that one's ``swap`` says so. From then on nothing is loaded into it."""
    format: int = 1

    @property
    def state(self) -> TableState:
        """As planning sees it."""
        return TableState(
            self.source,
            self.pipeline,
            self.floor_ts,
            self.newest_ts,
            self.schema_ts,
            self.tombstones,
            self.topic_id,
            self.added_columns,
            dict(sorted(self.columns.items(), key=lambda each: (each[1].commit_ts, each[0]))),
            self.whole_ts,
            self.form_floor_ts,
            self.events,
            self.dropping_ts > max(self.floor_ts, self.newest_ts),
            self.base,
            shaped_by=self.shaped_by,
        )

    @property
    def live_tombstones(self) -> tuple[TombstoneFile, ...]:
        """The files with a version at or above the floor; all, if versions are places, which no floor can be compared with."""
        if self.topic_id is not None:
            return self.tombstone_files
        return tuple(file for file in self.tombstone_files if file.last_ts >= self.floor_ts)

    def forgotten_by(self, floor_ts: int) -> list[str]:
        """The columns whose fills ``with_floor`` forgets."""
        return self.state.forgotten_by(floor_ts)

    def with_floor(self, floor_ts: int, form_floor_ts: int) -> "TableDocument":
        """After ``Ledger.raise_floor``."""
        gone = set(self.forgotten_by(floor_ts))
        return self._with(
            floor_ts=max(self.floor_ts, floor_ts),
            form_floor_ts=max(self.form_floor_ts, form_floor_ts),
            whole_ts=self.whole_ts if self.whole_ts >= form_floor_ts else 0,
            added_columns={name: each for name, each in self.added_columns.items() if name not in gone},
            columns={name: each for name, each in self.columns.items() if each.commit_ts >= form_floor_ts},
            events=events_above(self.events, form_floor_ts),
            begun=tuple(change for change in self.begun if form_floor_ts <= max(self.form_floor_ts, change.commit_ts)),
        )

    def with_base(self, run_hash: str) -> "TableDocument":
        """After ``Ledger.note_base``."""
        return self._with(base=run_hash)

    def with_shape(self, pipeline: str) -> "TableDocument":
        """After ``Ledger.note_shape``."""
        return self._with(shaped_by=pipeline)

    def with_marks(self, schema_ts: int, whole_ts: int, newest_ts: int) -> "TableDocument":
        """After ``Ledger.raise_marks``."""
        return self._with(
            schema_ts=max(self.schema_ts, schema_ts),
            whole_ts=max(self.whole_ts, whole_ts),
            newest_ts=max(self.newest_ts, newest_ts),
        )

    def with_form(self, columns: Mapping[str, KnownColumn]) -> "TableDocument":
        """After ``Ledger.note_form``."""
        return self._with(
            columns={**self.columns, **{name: self._newest(name, each) for name, each in columns.items()}}
        )

    def with_topic(self, topic_id: str) -> "TableDocument":
        """After ``Ledger.note_topic``."""
        return self._with(topic_id=topic_id)

    def with_added_column(self, column: str, added: RecordedColumn) -> "TableDocument":
        """After ``Ledger.note_added_column``."""
        return self._with(added_columns={**self.added_columns, column: added})

    def with_move(self, move: ColumnMove) -> "TableDocument":
        """After ``Ledger.note_column_event``; the step of *move* has begun."""
        state = self.state.after(move)
        noted = self._with(columns=state.columns, added_columns=state.added_columns, events=state.events)
        begun = BegunChange.of(move)
        return noted if begun is None else noted.with_begun(begun)

    def with_begun(self, change: BegunChange) -> "TableDocument":
        """With *change* as the last one that has begun."""
        return self._with(begun=(*(each for each in self.begun if each.key != change.key), change))

    def without_begun(self, change: BegunChange) -> "TableDocument":
        """Without *change*, which is done."""
        return self._with(begun=tuple(each for each in self.begun if each.key != change.key))

    def with_dropping(self, floor_ts: int) -> "TableDocument":
        """With a DROP that raises the floor to *floor_ts*."""
        return self._with(dropping_ts=max(self.dropping_ts, floor_ts))

    def with_swap(self, swap: SwapNote | None) -> "TableDocument":
        """With *swap* noted, or no longer."""
        return self._with(swap=swap)

    def with_place_of(self, target: Relation) -> "TableDocument":
        """As one that is to take the place of *target*."""
        return self._with(takes_place_of=target)

    def in_place_of(self, old: "TableDocument", target: Relation) -> "TableDocument":
        """What is known of *target*, which *old* was of, once it has the rows of this mirror. The incarnation stays, as the
        table does."""
        stopped = (
            msgspec.structs.replace(each, report=msgspec.structs.replace(each.report, destination=str(target)))
            for each in self.stopped
        )
        return self._with(
            incarnation=old.incarnation,
            tombstones=old.tombstones,
            former=old.former,
            stopped=tuple(stopped),
            swap=None if old.swap is None else msgspec.structs.replace(old.swap, is_written=True),
            takes_place_of=None,
        )

    def with_former(self, former: Former | None) -> "TableDocument":
        """After ``LakeLedger.note_former``, or ``forget_former``."""
        return self._with(former=former)

    def with_tombstones(self, files: Iterable[TombstoneFile], without: Collection[str] = ()) -> "TableDocument":
        """With *files*, and without those that are called as *without* says."""
        by_name = {file.name: file for file in self.tombstone_files if file.name not in without}
        return self._with(tombstone_files=tuple(sorted({**by_name, **{file.name: file for file in files}}.values())))

    def with_stopped(self, stopped: StoppedReport) -> "TableDocument":
        """With *stopped* as the last one, in place of that of the same window and run."""
        return self._with(stopped=(*self._stopped_others(stopped.window, stopped.run_hash), stopped))

    def without_stopped(self, window: Window, run_hash: str) -> "TableDocument":
        """Without the stopped load of *window* and *run_hash*."""
        return self._with(stopped=self._stopped_others(window, run_hash))

    def stopped_of(self, window: Window, run_hash: str) -> StoppedReport | None:
        """The stopped load of *window* and *run_hash*, or None."""
        return next((each for each in self.stopped if (each.window, each.run_hash) == (window, run_hash)), None)

    def _stopped_others(self, window: Window, run_hash: str) -> tuple[StoppedReport, ...]:
        return tuple(each for each in self.stopped if (each.window, each.run_hash) != (window, run_hash))

    def _newest(self, name: str, column: KnownColumn) -> KnownColumn:
        known = self.columns.get(name)
        if known is None:
            return column
        newest = column if column.commit_ts >= known.commit_ts else known
        since = max(known.since, column.since)
        return msgspec.structs.replace(newest, in_rows=known.in_rows or column.in_rows, since=since)

    def _with(self, **changes: Any) -> "TableDocument":
        return msgspec.structs.replace(self, **changes)


def table_folder(target: Relation) -> str:
    """The folder of all that is about *target*."""
    return f"tables/{escape(target.schema)}/{escape(target.table)}"


def state_name(target: Relation) -> str:
    """The name of the ``TableDocument`` of *target*."""
    return f"{table_folder(target)}/state.json"


def windows_folder(target: Relation) -> str:
    """The folder of the reports of all windows, with a slash at its end."""
    return f"{table_folder(target)}/windows/"


def window_folder(target: Relation, window: Window) -> str:
    """The folder of the reports of *window*, with a slash at its end."""
    return f"{windows_folder(target)}{window.from_ts}-{window.to_ts}/"


def report_name(target: Relation, window: Window, run_hash: str) -> str:
    """The name of the ``WindowReport`` of a run."""
    return f"{window_folder(target, window)}{run_hash}.json"


def run_of(report: str) -> str:
    """The run that the ``WindowReport`` called *report* is of."""
    return report.rpartition("/")[2].removesuffix(".json")


def window_of_report(report: str) -> Window:
    """The window that the ``WindowReport`` called *report* is of."""
    return window_of(report.rpartition("/")[0])


MARKS = "begun/"
"""The folder of all marks."""


def marks_folder(pipeline: str) -> str:
    """The folder of the marks of the loads of *pipeline*, with a slash at its end."""
    return f"{MARKS}{escape(pipeline)}/"


def marks_name(pipeline: str, window: Window) -> str:
    """The name of the ``Marks`` of *window*."""
    return f"{marks_folder(pipeline)}{window.from_ts:0{_TSO_DIGITS}}-{window.to_ts:0{_TSO_DIGITS}}.json"


def window_of(marks: str) -> Window:
    """The window that the ``Marks`` called *marks* are of."""
    from_ts, _, to_ts = marks.rpartition("/")[2].removesuffix(".json").partition("-")
    return Window(int(from_ts), int(to_ts))
