"""The history: every row version once, whatever windows are loaded, in any order, and how often.

A commitTs belongs to one window of a grid, so what a window brings is a slice of a table: the rows with a commitTs in
it. Order of writes, each of which may be repeated:

1. The load's mark, with its tables: a newer run without rows of one of them empties the slice that an older run left.
2. The table's form, and in the ledger its newest commitTs: below it, a slice may have rows.
3. Reports of other runs end: a run without a report is loaded again.
4. One commit replaces the slice.
5. The report of the run.

A load that finds rows without a report, left by a kill between 4 and 5, replaces them. In a database with transactions
2 to 5 are one.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from ticdc_replay.changelog.files.index import TableVersion
from ticdc_replay.domain.errors import ConfigError, PermanentError, TargetMismatchError, TransientError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.changes import TableChanges, TableCreated
from ticdc_replay.targets.base import Execute, Load, Loaded, TableReport, TargetColumn
from ticdc_replay.targets.database_ddl import with_creations_of, with_ddl_of
from ticdc_replay.targets.ddl import changes_by_table
from ticdc_replay.targets.generations import Mark, refuse_superseded, wants_any
from ticdc_replay.targets.history import scd2
from ticdc_replay.targets.history.columns import require_free_names, require_history
from ticdc_replay.targets.history.ledger import SliceLedger
from ticdc_replay.targets.history.rows import DDL
from ticdc_replay.targets.history.section import HistorySection
from ticdc_replay.targets.history.table import DdlRow, HistoryTable, Rows, ddl_rows
from ticdc_replay.targets.mirror import dropped_databases, stops
from ticdc_replay.targets.mirror.marks import place_of
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.differences import refuse_others, refuse_shaped
from ticdc_replay.targets.mirror.planning.section import filled
from ticdc_replay.targets.mirror.planning.table_plan import target_of, tombstones_of
from ticdc_replay.targets.mirror.planning.tables import Relation, TableState
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.shaped_load import require_unmoved

log = logging.getLogger(__name__)
Result = TypeVar("Result")

_DROPPED = "dropped: the table was dropped with its database"

_Marks = frozenset[tuple[Mark, str]]
"""Marks, each with the schema of the tables that it is about; empty for that of each upstream's table."""


def history_of(config: HistorySection, dialect: Dialect, table: TableName) -> Relation:
    """The table that has the history of *table*."""
    suffix = "_history" if config.mode == "scd2" else ""
    schema, name = config.names_of(table)
    return Relation(dialect.fit(schema), dialect.fit(name + suffix))


def refuse_offsets(load: Load) -> None:
    """Raise ConfigError for a window by offset."""
    if load.index.order == "place":
        raise ConfigError(
            f"target {load.target}: a history needs windows by commitTs, and rows of this one have none: its windows are by "
            "offset. Load them into a parquet target"
        )


class Pending(msgspec.Struct, frozen=True):
    """A table that an attempt loads."""

    table: TableName
    target: Relation
    versions: tuple[TableVersion, ...]
    changes: tuple[TableChanges, ...]

    @property
    def schemas(self) -> list[TableSchema]:
        """Those of rows, and those that DDL defines, so that columns are there before rows have them."""
        created = [
            change.schema
            for entry in self.changes
            for change in entry.changes
            if isinstance(change, TableCreated) and change.schema is not None
        ]
        return [*(version.schema for version in self.versions), *created]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row in the newest definition; none without one."""
        return max(self.schemas, key=attrgetter("valid_from")).handle_key if self.schemas else ()


class Brought(msgspec.Struct, Generic[Rows], frozen=True):
    """The rows of one table, outside of it, and how many are set aside for their values, with the files that list them."""

    rows: Rows
    quarantined: int
    quarantine_files: tuple[str, ...]


class HistoryAttempt(ABC, Generic[Rows]):
    """One attempt to load one window. A subclass says how rows are brought to the tables, and how one table is held."""

    def __init__(
        self, config: HistorySection, dialect: Dialect, load: Load, session: Session, slices: SliceLedger
    ) -> None:
        self.config = config
        self.dialect = dialect
        self.load = load
        self.session = session
        self.ledger = session.ledger
        self.slices = slices
        self._began: list[Mark] = []
        """The marks of the window from before this load's own, which replaces those of its patterns."""

    @abstractmethod
    def bring(
        self, pending: Sequence[Pending], left: Sequence[TableName], execute: Execute
    ) -> dict[TableName, Brought[Rows]]:
        """Bring the rows of *pending* to where the tables can take them. Of these, and of *left*, whose slices are emptied,
        ``HistoryTable.rows_of`` will be asked for the re-drives that the slices have.

        Raises UnrepresentableValueError for a value that the history can't hold, if policy stops.
        """

    @abstractmethod
    def held(self, target: Relation, source: TableName, work: Callable[[HistoryTable[Rows]], Result]) -> Result:
        """What *work* returns for the table *target*, while no other load writes to it; commit what it did. It may be called
        again if another load took the table meanwhile."""

    def refuse(self, each: Pending) -> None:
        """Raise TargetMismatchError for a table that this kind of history can't hold. Here: every one can be held."""

    def run(self, execute: Execute) -> Loaded:
        """Load the window."""
        with self.session.translated("look at the target"):
            reports, pending, left, newer = self._look()
        load, brought = self.load, self.bring(pending, left, execute)
        for each in pending:
            apply = partial(self._apply, each, brought[each.table], newer)
            reports[each.table] = self.held(each.target, each.table, apply)
        for table in left:
            self.held(self._target(table), table, partial(self._empty, table, newer))
        with self.session.translated("read the ledger"):
            others = self.ledger.other_runs(load)
        tables = tuple(reports[table] for table in load.tables if table in reports)
        return Loaded(tables, tuple(sorted({file for each in tables for file in each.quarantine_files})), others)

    def _look(self) -> tuple[dict[TableName, TableReport], list[Pending], list[TableName], _Marks]:
        """What the ledger has already or is left out, what is to be loaded, the tables whose slice is to be emptied, and the
        newer marks. Leaves the load's own."""
        dropped_databases.note(self.session, self.load, self.config, self.dialect)
        wanted = TablePatterns(self.load.selection)
        known = [
            table
            for table, target, pipeline in self.ledger.mirrors()
            if target == self._target(table)
            and pipeline in (self.load.index.pipeline, *self.config.same_upstream_as)
            and wanted.wants(table.schema, table.table)
        ]
        if self.load.index.ddl:
            self.load = with_creations_of(with_ddl_of(self.load, known), known)
        reports, pending = self._begin()
        newer = self._leave_mark([each.table for each in pending], known)
        left = self._left_by_others(known, {*reports, *(each.table for each in pending)})
        return reports, pending, left, newer

    def _target(self, table: TableName) -> Relation:
        return history_of(self.config, self.dialect, table)

    def _begin(self) -> tuple[dict[TableName, TableReport], list[Pending]]:
        """What the ledger has already or is left out, and what is to be loaded."""
        load = self.load
        changes = changes_by_table(load.index.changes)
        reports: dict[TableName, TableReport] = {}
        pending: list[Pending] = []
        reserved = [table for table in load.tables if self.config.is_reserved_schema(self._target(table).schema)]
        stops.refuse_named_reserved(load, self.config, reserved)
        reports |= {table: stops.with_reserved_name(load, self.config, table) for table in reserved}
        for table in load.tables:
            if table in reports:
                continue
            target = self._target(table)
            state = self.ledger.state_of(target)
            if state is not None:
                self._refuse_others(table, target, state)
            each = Pending(table, target, tuple(load.index.versions_of(table)), changes.get(table, ()))
            done = None if load.reload else self.ledger.find_done(target, load.index.window, load.index.run_hash)
            if done is not None:
                self._require_history(table, target)
                reports[table] = done
            elif self.config.mode == "scd2" and any(not schema.handle_key for schema in each.schemas):
                older = self._has_key(target) and self._has_versions_before_end(target)
                if older or any(schema.handle_key for schema in each.schemas):
                    raise TargetMismatchError(
                        f"{target}: rows of this window have no key, and others have one: no interval goes over such a change. "
                        "Load windows from the change on into a target in mode history, or all of them"
                    )
                reports[table] = self._without_key(each)
            elif each.versions or each.changes:
                self.refuse(each)
                require_free_names(table, each.schemas, self.config)
                pending.append(each)
        return reports, pending

    def _has_key(self, target: Relation) -> bool:
        """Whether rows of *target* have a key. Of a table without one, the history may have DDL."""
        state, found = self.ledger.state_of(target), self.session.find_table(target)
        in_ledger = state is not None and any(column.in_key for column in state.columns.values())
        return in_ledger or (found is not None and bool(found.primary_key))

    def _has_versions_before_end(self, target: Relation) -> bool:
        """Whether *target* has versions of rows, not DDL alone, from before the end of the window."""
        commit_ts, found = self.dialect.fit_column(self.config.commit_ts_column), self.session.find_table(target)
        if found is not None:
            require_history(target, found, commit_ts)
        return stops.has_rows_before_end(self.session, self.load, target, commit_ts, DDL)

    def _require_history(self, table: TableName, target: Relation) -> None:
        """Raise TargetMismatchError if the ledger has windows of *target*, and the table is lost, or a load in another mode has
        made it."""
        found = self.session.find_table(target)
        if found is None:
            raise self._lost(table, target)
        require_history(target, found, self.dialect.fit_column(self.config.commit_ts_column))

    def _lost(self, table: TableName, target: Relation) -> TargetMismatchError:
        return TargetMismatchError(
            f"{target} was dropped by hand, and its ledger has windows of it. Make it again from a copy; or run "
            f"`ticdc-replay mirror forget <pipeline> {table} --target {self.load.target}` and load its windows again"
        )

    def _refuse_others(self, table: TableName, target: Relation, state: TableState) -> None:
        refuse_others(target, state, self.load.index.pipeline, self.config.same_upstream_as)
        refuse_shaped(target, state, self.load.index.pipeline)
        if state.source != table:
            raise TargetMismatchError(
                f"{target} is the history of {state.source}, and {table} would have the same name there: leave one of them "
                "out, or give it a target with another `schema`"
            )

    def _without_key(self, each: Pending) -> TableReport:
        if each.table in self.load.named:
            raise PermanentError(
                f"{each.table}: without primary key or NOT NULL unique key rows have no identity, so no version has an end; take "
                "it out of `tables`, or load it in mode history"
            )
        log.warning("%s has no key: mode scd2 leaves it out, mode history can hold it", each.table)
        rows = sum(version.rows for version in each.versions)
        return TableReport(table=each.table, outcome="without_key", destination="", events=rows)

    def _leave_mark(self, pending: Sequence[TableName], known: Sequence[TableName]) -> _Marks:
        """Leave the load's mark; newer ones of overlapping windows. Raises SupersededError for a newer run of this one."""
        newer, index = self._newer(), self.load.index
        for table in (*pending, *known):
            refuse_superseded(self.load, self._about(newer, table), [table])
        for mark, _ in self.ledger.newer_marks(self.load, -1):
            if mark.window == index.window:  # one of this run may have taken the place of another one's
                self._began.append(mark)
        mark = msgspec.structs.replace(Mark.of(self.load), tables=self.load.tables)
        self.ledger.put_mark(self.load, place_of(self.config, self.dialect), mark)
        return newer

    def _newer(self) -> _Marks:
        least = min([self.load.generation, *(source.generation for source in self.load.sources)])
        own = place_of(self.config, self.dialect)
        found = self.ledger.newer_marks(self.load, least)
        return frozenset((mark, own if place is None else place) for mark, place in found)

    def _about(self, marks: _Marks, table: TableName) -> list[Mark]:
        """Those of *marks* whose loads would write to the history of *table*, had they rows of it."""
        schema = self._target(table).schema
        return [mark for mark, place in marks if self.dialect.fit(filled(place or "{schema}", table)) == schema]

    def _look_again(self, table: TableName, seen: _Marks) -> None:
        """Raise SupersededError if a newer run of the window has begun, TransientError for one of an overlapping window."""
        newer = self._newer()
        refuse_superseded(self.load, self._about(newer, table), [table])
        for mark in self._about(newer - seen, table):
            if mark.generation > self.load.generation and wants_any(mark, [table]):
                raise TransientError(
                    f"target {self.load.target}: a newer run, {mark.run_hash} of the overlapping window {mark.window}, has "
                    f"begun to load {table} meanwhile; try again"
                )

    def held_runs(self, target: Relation) -> dict[str, str | None]:
        """The other runs that the slice is of, each with the run whose quarantine it re-drives."""
        index = self.load.index
        found = self.slices.runs_of(target, index.window)
        return {run: of for run, of in found.items() if run != index.run_hash}

    def redrives(self, held: Mapping[str, str | None]) -> list[str]:
        """Those of the runs *held* that are re-drives of the quarantine of the load's run."""
        own = self.load.index.redrives or self.load.index.run_hash
        return [run for run, of in held.items() if of == own]

    def _apply(self, each: Pending, brought: Brought[Rows], newer: _Marks, table: HistoryTable[Rows]) -> TableReport:
        load, target = self.load, each.target
        self._look_again(each.table, newer)
        done = None if load.reload else self.ledger.find_done(target, load.index.window, load.index.run_hash)
        if done is not None:  # another attempt has loaded it meanwhile
            return done
        require_unmoved(load, self.config, each.table)
        with self.session.translated(f"prepare {target}"):
            ddl, newest_ts, told = self._prepare(each, table)
            if self.config.mode == "scd2":
                self._fit_view(each, table)
        empty = not newest_ts or newest_ts < load.index.window.from_ts
        inside = [entry for entry in ddl if load.index.window.from_ts <= entry.commit_ts < load.index.window.to_ts]
        held = self.held_runs(target)
        redrives = self.redrives(held)
        table.note_emptied([entry for entry in ddl if entry not in inside])
        if load.index.redrives is not None:
            others = set(held) - set(redrives) - {load.index.redrives}
            if others:
                raise PermanentError(
                    f"target {load.target} has run {min(others)} of window {load.index.window} for {each.table}, and this is a "
                    f"re-drive of the quarantine of run {load.index.redrives}: re-drive that of run {min(others)}"
                )
            commit = table.add(brought.rows, inside)
        else:
            added = [table.rows_of(run) for run in redrives]  # first, as a changelog may be gone
            inside = list(dict.fromkeys([*inside, *self._redriven_ddl(each.table, redrives)]))
            self.slices.end_runs(load, target, [run for run in (*held, load.index.run_hash) if run not in redrives])
            commit = table.replace([brought.rows, *added], inside, empty=empty)
        events = sum(version.rows for version in each.versions)
        report = TableReport(
            table=each.table,
            outcome="loaded",
            destination=str(target),
            fields=tuple(TargetColumn(name, type_name) for name, type_name in table.types.items()),
            events=events,
            keys=events - brought.quarantined,
            upserted=events - brought.quarantined,
            quarantined=brought.quarantined,
            quarantine_files=brought.quarantine_files,
            ddl=told,
            redrives=load.index.redrives,
            commit=commit,
        )
        table.end(report)
        return report

    def _redriven_ddl(self, table: TableName, redrives: Sequence[str]) -> list[DdlRow]:
        """The DDL of *table* that the re-drives, which the slice has, have added."""
        found: list[DdlRow] = []
        for run in redrives:
            load = msgspec.structs.replace(self.load, index=self.load.index_of(run, [table]))
            load = with_creations_of(with_ddl_of(load, [table]), [table])
            found += ddl_rows(changes_by_table(load.index.changes).get(table, ()))
        return found

    def _prepare(self, each: Pending, table: HistoryTable[Rows]) -> tuple[list[DdlRow], int, tuple[str, ...]]:
        """Make the table, or change it, so that it can take the rows; its DDL as rows, the newest commitTs (TSO) that it
        may have had before, and what was done."""
        load, ledger, target = self.load, self.ledger, each.target
        state, is_there = ledger.state_of(target), table.is_there()
        if state is not None:
            self._refuse_others(each.table, target, state)
        ddl = ddl_rows(each.changes)
        told: list[str] = []
        if state is not None and state.newest_ts and not is_there:
            raise self._lost(each.table, target)
        floors = [] if state is None else self._floors(each.table)
        if state is None:
            ledger.share_drops()  # so that a drop which is noted from now on makes the load start again
            if is_there:
                raise TargetMismatchError(
                    f"{target} is there already, and is no history of {each.table}: drop it, or give this target another `schema`"
                )
            ledger.add_table(
                target,
                source=each.table,
                pipeline=load.index.pipeline,
                tombstones=tombstones_of(target, self.dialect),  # a name that no history uses
                newest_ts=0,
                floor_ts=0,
                form_floor_ts=0,
            )
            floors = self._floors(each.table)
            self.note()
        if each.table in load.shaped_tables:
            ledger.note_shape(target, load.index.pipeline)
        if self.config.mode == "scd2":
            self._require_one_key(each)
        if not is_there:
            if self.config.mode == "scd2":
                table.drop_view(self._view(each.table))
            table.make(each.schemas, each.key)
            told.append(f"create table {target}")
        elif self.config.mode == "scd2":
            self._require_key(each, table)
        told += table.fit(each.schemas)
        # Of windows that were loaded before there was a table to note it in.
        noted = {entry.commit_ts for entry in ddl if entry.op == "empty"}
        missing = sorted({floor_ts - 1 for floor_ts in floors} - noted)
        ddl += [DdlRow("empty", commit_ts, _DROPPED) for commit_ts in missing]
        times = [file.max_commit_ts for version in each.versions for file in version.files]
        last_ts = max([*times, *(entry.commit_ts for entry in ddl)], default=0)
        ledger.raise_marks(target, schema_ts=0, whole_ts=0, newest_ts=last_ts)
        self.note()
        return ddl, state.newest_ts if state is not None else 0, tuple(told)

    def note(self) -> None:
        """Have the ledger keep what was noted so far, before rows are written. Nothing to do where they share a transaction."""

    def _floors(self, table: TableName) -> list[int]:
        return dropped_databases.floors_of(self.session, self.load, self.config, self.dialect, table)

    def _require_one_key(self, each: Pending) -> None:
        """Raise TargetMismatchError if the rows of the window are identified by different keys."""
        keys = sorted({tuple(sorted(schema.handle_key)) for schema in each.schemas})
        if len(keys) > 1:
            listed = " and by ".join(", ".join(key) for key in keys)
            raise TargetMismatchError(
                f"{each.target}: rows of this window are identified by {listed}: no interval goes over such a change. "
                "Load windows from the change on into a target with another `schema`, or all of them in mode history"
            )

    def _require_key(self, each: Pending, table: HistoryTable[Rows]) -> None:
        """Note the key of the table's rows. Raises TargetMismatchError if rows of another key are there."""
        key = table.key()
        if each.key and key and set(each.key) != set(key):
            raise TargetMismatchError(
                f"{each.target}: its rows are identified by {', '.join(key)}, and those of this window by {', '.join(each.key)}: "
                "no interval goes over such a change. Load windows from the change on into a target with another `schema`, or "
                "all of them in mode history"
            )
        if each.key and not key:  # the first windows had rows or DDL of no known definition
            table.note_key(each.key)

    def _fit_view(self, each: Pending, table: HistoryTable[Rows]) -> None:
        taken = sorted({name for name in table.types if name.lower() in scd2.OWN})
        if taken:
            raise TargetMismatchError(
                f"{each.table}: mode scd2 needs the names of its columns {', '.join(taken)}; load it in mode history"
            )
        key = each.key or table.key()
        if key:
            table.fit_view(self._view(each.table), key)

    def _view(self, table: TableName) -> Relation:
        return target_of(self.config, self.dialect, table)

    def _left_by_others(self, known: Sequence[TableName], loaded: Collection[TableName]) -> list[TableName]:
        """Tables, of those not *loaded*, of which other runs of the window may have left rows."""
        if self.load.index.redrives is not None:
            return []
        histories = {table: self._target(table) for table in known if table not in loaded}
        return sorted(self.slices.left_by_loads(self.load, histories, self._began))

    def _empty(self, table: TableName, newer: _Marks, history: HistoryTable[Rows]) -> None:
        """Empty the slice that older runs of the window have left of *table*, and end their reports."""
        self._look_again(table, newer)
        held = self.slices.runs_of(self._target(table), self.load.index.window)
        redrives = self.redrives(held)
        others = [run for run in held if run not in redrives]
        if redrives and not others:
            return  # the slice has what re-drives of this run have added, and nothing else
        if history.is_there():  # also if the slice is empty: no commit of an older load comes after this one
            rows = [history.rows_of(run) for run in redrives]
            history.replace(rows, self._redriven_ddl(table, redrives), empty=False)
        self.slices.end_runs(self.load, self._target(table), {*others, self.load.index.run_hash})
