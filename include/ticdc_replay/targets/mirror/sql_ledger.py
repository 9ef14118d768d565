"""The ledger of a mirror in a database, in SQL that every kind of database reads: what is known of its tables, and what
was loaded into them. Statements name the ledger's schema ``{schema}``. Writers hold the lock of the table they write about,
so that rows are looked up before they are put."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, LiteralString

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import AppliedRun, HeldTable, Load, StoppedLoad, TableReport
from ticdc_replay.targets.generations import Mark, wants_any
from ticdc_replay.targets.mirror.ledger import SwappingLedger
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnEvent,
    ColumnMove,
    KnownColumn,
    RecordedColumn,
    Relation,
    TableState,
)

_OF_TARGET: LiteralString = "WHERE (target_schema, target_table) = (%s, %s)"
_OF_RUN: LiteralString = _OF_TARGET + " AND (from_ts, to_ts, run_hash) = (%s, %s, %s)"
_TABLES_OF_TARGETS: tuple[LiteralString, ...] = (
    "tables",
    "columns",
    "added_columns",
    "column_events",
    "soft_deletes",
    "shapes",
    "ledger",
)


class SqlLedger(SwappingLedger):
    """The tables ``tables``, ``columns``, ``added_columns``, ``column_events``, ``soft_deletes``, ``shapes`` and ``ledger``."""

    report_text: ClassVar[LiteralString]
    """The report of a row of ``ledger`` as text."""
    outcome: ClassVar[LiteralString]
    """The outcome in it."""

    @abstractmethod
    def _execute(self, statement: LiteralString, parameters: Sequence[object] = ()) -> Iterable[Any]:
        """Run *statement*, with ``%s`` for *parameters*; its rows, of a query."""

    @abstractmethod
    def _execute_many(self, statement: LiteralString, rows: Iterable[Sequence[object]]) -> None:
        """Run *statement* for each of *rows*."""

    @abstractmethod
    def _drop_tombstones(self, tombstones: Relation) -> None:
        """Drop the table *tombstones* where it exists."""

    def state_of(self, target: Relation) -> TableState | None:
        place = [target.schema, target.table]
        row = self._first(
            "SELECT source_schema, source_table, pipeline, floor_ts, newest_ts, schema_ts, tombstones, topic_id, "
            "whole_ts, CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END, "
            "(SELECT s.deleted_column FROM {schema}.soft_deletes s WHERE s.target_schema = t.target_schema "
            "AND s.target_table = t.target_table), "
            "(SELECT s.pipeline FROM {schema}.shapes s WHERE s.target_schema = t.target_schema "
            "AND s.target_table = t.target_table) FROM {schema}.tables t " + _OF_TARGET,
            place,
        )
        if row is None:
            return None
        added = self._execute("SELECT column_name, commit_ts, fill FROM {schema}.added_columns " + _OF_TARGET, place)
        columns = {name: RecordedColumn(commit_ts, fill) for name, commit_ts, fill in added}
        source, tombstones = TableName(row[0], row[1]), Relation(LEDGER_SCHEMA, row[6])
        found = self._execute(
            "SELECT commit_ts, number, column_name, new_name, since FROM {schema}.column_events "
            + _OF_TARGET
            + " ORDER BY commit_ts, number, column_name",
            place,
        )
        events = tuple(ColumnEvent(*event) for event in found)
        form = self._form(target)
        return TableState(
            source,
            row[2],
            row[3],
            row[4],
            row[5],
            tombstones,
            row[7],
            columns,
            form,
            row[8],
            row[9],
            events,
            deleted_column=row[10],
            shaped_by=row[11],
        )

    def mirrors(self) -> list[tuple[TableName, Relation, str]]:
        found = self._execute(
            "SELECT source_schema, source_table, target_schema, target_table, pipeline FROM {schema}.tables "
            "ORDER BY source_schema, source_table"
        )
        return [(TableName(*row[:2]), Relation(*row[2:4]), row[4]) for row in found]

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
        self._execute(
            "INSERT INTO {schema}.tables "
            "(target_schema, target_table, source_schema, source_table, pipeline, tombstones, newest_ts, floor_ts, "
            "form_floor_ts, truncated_to) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                *(target.schema, target.table, source.schema, source.table),
                *(pipeline, tombstones.table, newest_ts, floor_ts, form_floor_ts, floor_ts),
            ],
        )

    def note_deleted_column(self, target: Relation, column: str) -> None:
        self._execute(
            "INSERT INTO {schema}.soft_deletes (target_schema, target_table, deleted_column) VALUES (%s, %s, %s)",
            [target.schema, target.table, column],
        )

    def note_shape(self, target: Relation, pipeline: str) -> None:
        place = [target.schema, target.table]
        self._execute("DELETE FROM {schema}.shapes " + _OF_TARGET, place)
        self._execute(
            "INSERT INTO {schema}.shapes (target_schema, target_table, pipeline) VALUES (%s, %s, %s)",
            [*place, pipeline],
        )

    def raise_floor(self, target: Relation, floor_ts: int, form_floor_ts: int) -> None:
        place = [target.schema, target.table]
        # In one statement, since people may raise floor_ts at any time; in an order in which the new values may count at once.
        self._execute(
            "UPDATE {schema}.tables SET "
            "form_floor_ts = greatest(CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END, %s), "
            "whole_ts = CASE WHEN whole_ts < %s THEN 0 ELSE whole_ts END, "
            "truncated_to = greatest(floor_ts, %s), floor_ts = greatest(floor_ts, %s) " + _OF_TARGET,
            [form_floor_ts, form_floor_ts, floor_ts, floor_ts, *place],
        )
        too_old: LiteralString = " AND commit_ts < %s"
        self._execute("DELETE FROM {schema}.columns " + _OF_TARGET + too_old, [*place, form_floor_ts])
        self._execute(
            "DELETE FROM {schema}.column_events "
            + _OF_TARGET
            + too_old
            + " AND (new_name IS NULL OR new_name <> column_name)",
            [*place, form_floor_ts],
        )  # as ``events_above`` does
        state = self.state_of(target)
        for name in state.forgotten_by(floor_ts) if state is not None else ():
            self._execute("DELETE FROM {schema}.added_columns " + _OF_TARGET + " AND column_name = %s", [*place, name])

    def forget(self, target: Relation, tombstones: Relation) -> None:
        for table in _TABLES_OF_TARGETS:
            self._execute("DELETE FROM {schema}." + table + " " + _OF_TARGET, [target.schema, target.table])
        self._drop_tombstones(tombstones)

    def raise_marks(self, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
        self._execute(
            "UPDATE {schema}.tables SET schema_ts = greatest(schema_ts, %s), whole_ts = greatest(whole_ts, %s), "
            "newest_ts = greatest(newest_ts, %s) " + _OF_TARGET,
            [schema_ts, whole_ts, newest_ts, target.schema, target.table],
        )

    def note_form(self, target: Relation, columns: Mapping[str, KnownColumn]) -> None:
        known = self._form(target) if columns else {}
        fresh, changed = [], []
        for name, column in columns.items():
            old = known.get(name)
            if old is None:
                fresh.append((target.schema, target.table, name, *msgspec.structs.astuple(column)))
            elif (both := _newer(old, column)) != old:
                changed.append((*msgspec.structs.astuple(both), target.schema, target.table, name))
        self._execute_many(
            "INSERT INTO {schema}.columns "
            "(target_schema, target_table, column_name, type, commit_ts, in_rows, in_key, since) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            fresh,
        )
        self._execute_many(
            "UPDATE {schema}.columns SET type = %s, commit_ts = %s, in_rows = %s, in_key = %s, since = %s "
            + _OF_TARGET
            + " AND column_name = %s",
            changed,
        )

    def note_topic(self, target: Relation, topic_id: str) -> None:
        parameters = [topic_id, target.schema, target.table]
        self._execute("UPDATE {schema}.tables SET topic_id = %s " + _OF_TARGET, parameters)

    def note_added_column(self, target: Relation, column: str, commit_ts: int, fill: str | None) -> None:
        own = [target.schema, target.table, column]
        self._execute("DELETE FROM {schema}.added_columns " + _OF_TARGET + " AND column_name = %s", own)
        self._execute(
            "INSERT INTO {schema}.added_columns (target_schema, target_table, column_name, commit_ts, fill) "
            "VALUES (%s, %s, %s, %s, %s)",
            [*own, commit_ts, fill],
        )

    def note_column_event(self, target: Relation, move: ColumnMove) -> None:
        state, place, event = self.state_of(target), [target.schema, target.table], move.event
        assert state is not None, "a table is added before its columns are noted"
        after = state.after(move)
        if after is state:
            return
        names = [name for name in (move.column, move.to) if name is not None]
        for name in names:
            for table in ("columns", "added_columns"):
                self._execute(
                    "DELETE FROM {schema}." + table + " " + _OF_TARGET + " AND column_name = %s", [*place, name]
                )
        self.note_form(target, {name: after.columns[name] for name in names if name in after.columns})
        for name in names:
            if name in after.added_columns:
                added = after.added_columns[name]
                self.note_added_column(target, name, added.commit_ts, added.fill)
        self._execute(
            "DELETE FROM {schema}.column_events " + _OF_TARGET + " AND commit_ts = %s AND column_name = %s",
            [*place, event.commit_ts, event.name],
        )
        self._execute(
            "INSERT INTO {schema}.column_events "
            "(target_schema, target_table, commit_ts, number, column_name, new_name, since) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [*place, event.commit_ts, event.number, event.name, event.to, event.since],
        )

    def stopped_loads(self, target: Relation, pipeline: str) -> tuple[StoppedLoad, ...]:
        rows = self._execute(
            "SELECT run_hash, from_ts, to_ts, "
            + self.report_text
            + " FROM {schema}.ledger "
            + _OF_TARGET
            + " AND pipeline = %s "
            "AND " + self.outcome + " = 'stopped' ORDER BY applied_at, run_hash",
            [target.schema, target.table, pipeline],
        )
        return tuple(
            StoppedLoad(run, Window(from_ts, to_ts), msgspec.json.decode(report, type=TableReport))
            for run, from_ts, to_ts, report in rows
        )

    def report_of(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        row = self._first(
            "SELECT " + self.report_text + " FROM {schema}.ledger " + _OF_RUN,
            [target.schema, target.table, window.from_ts, window.to_ts, run_hash],
        )
        return msgspec.json.decode(row[0], type=TableReport) if row is not None else None

    def other_runs(self, load: Load) -> tuple[HeldTable, ...]:
        index = load.index
        rows = self._execute(
            "SELECT run_hash, " + self.report_text + " FROM {schema}.ledger "
            "WHERE (from_ts, to_ts, pipeline) = (%s, %s, %s) AND run_hash <> %s AND " + self.outcome + " <> 'stopped'",
            [index.window.from_ts, index.window.to_ts, index.pipeline, index.run_hash],
        )
        return tuple(
            sorted(HeldTable(run, msgspec.json.decode(report, type=TableReport).table) for run, report in rows)
        )

    def runs_of(self, target: Relation, window: Window) -> dict[str, str | None]:
        """The runs that have loaded *window* into the history *target*, each with the run whose quarantine it re-drives."""
        rows = self._execute(
            "SELECT run_hash, "
            + self.report_text
            + " FROM {schema}.ledger "
            + _OF_TARGET
            + " AND (from_ts, to_ts) = (%s, %s) ORDER BY run_hash",
            [target.schema, target.table, window.from_ts, window.to_ts],
        )
        return {run: msgspec.json.decode(report, type=TableReport).redrives for run, report in rows}

    def end_runs(self, load: Load, target: Relation, runs: Collection[str]) -> None:
        """Let the slice of the load's window in the history *target* be of none of *runs* any more."""
        window = load.index.window
        for run in runs:
            own = [target.schema, target.table, window.from_ts, window.to_ts, run]
            self._execute("DELETE FROM {schema}.ledger " + _OF_RUN, own)

    def left_by_loads(
        self, load: Load, histories: Mapping[TableName, Relation], began: Sequence[Mark]
    ) -> set[TableName]:
        """Those of *histories*, by table of the upstream, that loads of the window of *load* are noted for, or that one of
        *began* may be committing."""
        index = load.index
        rows = self._execute(
            "SELECT DISTINCT target_schema, target_table FROM {schema}.ledger WHERE (from_ts, to_ts, pipeline) = (%s, %s, %s)",
            [index.window.from_ts, index.window.to_ts, index.pipeline],
        )
        found = {Relation(*row) for row in rows}
        return {
            table
            for table, target in histories.items()
            if target in found or any(wants_any(mark, [table]) for mark in began)
        }

    def note_done(self, load: Load, target: Relation, report: TableReport) -> None:
        index, window = load.index, load.index.window
        known = self.report_of(target, window, index.run_hash)
        if known is not None and report.outcome == "stopped" and known.outcome != "stopped":
            return
        own = [target.schema, target.table, window.from_ts, window.to_ts, index.run_hash]
        if known is not None:
            self._execute("DELETE FROM {schema}.ledger " + _OF_RUN, own)
        self._execute(
            "INSERT INTO {schema}.ledger (target_schema, target_table, from_ts, to_ts, run_hash, pipeline, attempt, report) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [*own, index.pipeline, load.attempt, msgspec.json.encode(report).decode()],
        )

    def applied_runs(self, target: Relation) -> list[AppliedRun]:
        rows = self._execute(
            "SELECT from_ts, to_ts, run_hash, "
            + self.report_text
            + " FROM {schema}.ledger "
            + _OF_TARGET
            + " ORDER BY from_ts, to_ts, run_hash",
            [target.schema, target.table],
        )
        return [
            AppliedRun(
                window=Window(from_ts, to_ts),
                run_hash=run_hash,
                report=msgspec.json.decode(report, type=TableReport),
            )
            for from_ts, to_ts, run_hash, report in rows
        ]

    def replace(self, old: Relation, new: Relation, tombstones: Relation) -> None:
        """Let all that is written down of *new* be about *old*, whose tombstones are then *tombstones*. Of *old* only runs stay
        that *new* does not know, and that were not stopped: their rows went with the table of *old*."""
        both = [old.schema, old.table]
        place = [new.schema, new.table]
        self._execute("DELETE FROM {schema}.ledger " + _OF_TARGET + " AND " + self.outcome + " = 'stopped'", both)
        for run in self.applied_runs(new):
            own = [run.window.from_ts, run.window.to_ts, run.run_hash]
            self._execute("DELETE FROM {schema}.ledger " + _OF_RUN, [*both, *own])
            report = msgspec.structs.replace(run.report, destination=str(old))
            self._execute(
                "UPDATE {schema}.ledger SET target_schema = %s, target_table = %s, report = %s " + _OF_RUN,
                [*both, msgspec.json.encode(report).decode(), *place, *own],
            )
        for table in _TABLES_OF_TARGETS:
            if table != "ledger":
                self._execute("DELETE FROM {schema}." + table + " " + _OF_TARGET, both)
                self._execute(
                    "UPDATE {schema}." + table + " SET target_schema = %s, target_table = %s " + _OF_TARGET,
                    [*both, *place],
                )
        self._execute("UPDATE {schema}.tables SET tombstones = %s " + _OF_TARGET, [tombstones.table, *both])

    def replace_marks(self, old: str, new: str) -> None:
        """Let the marks of loads in the place *new* be about the place *old* (``marks.place_of``); of two the newer one stays."""
        key: LiteralString = " WHERE (mirror_schema, pipeline, from_ts, to_ts, selection_hash) = (%s, %s, %s, %s, %s)"
        rows = list(
            self._execute(
                "SELECT pipeline, from_ts, to_ts, selection_hash, generation FROM {schema}.generations "
                "WHERE mirror_schema = %s",
                [new],
            )
        )
        for *own, generation in rows:
            self._execute("DELETE FROM {schema}.generations" + key + " AND generation <= %s", [old, *own, generation])
            if self._first("SELECT generation FROM {schema}.generations" + key, [old, *own]) is None:
                self._execute("UPDATE {schema}.generations SET mirror_schema = %s" + key, [old, new, *own])

    def forget_place(self, place: str) -> None:
        for table in ("generations", "dropped_databases"):
            self._execute("DELETE FROM {schema}." + table + " WHERE mirror_schema = %s", [place])

    def _first(self, query: LiteralString, parameters: Sequence[object]) -> Any:
        """The first row of *query*, or None."""
        return next(iter(self._execute(query, parameters)), None)

    def _form(self, target: Relation) -> dict[str, KnownColumn]:
        """The columns of *target* as the newest loaded definition has them."""
        known = self._execute(
            "SELECT column_name, type, commit_ts, in_rows, in_key, since FROM {schema}.columns "
            + _OF_TARGET
            + " ORDER BY commit_ts, column_name",
            [target.schema, target.table],
        )
        return {
            name: KnownColumn(type_name, commit_ts, bool(in_rows), bool(in_key), since)
            for name, type_name, commit_ts, in_rows, in_key, since in known
        }


def _newer(known: KnownColumn, column: KnownColumn) -> KnownColumn:
    """What two definitions of a column say together: the newer one its type."""
    newest = column if column.commit_ts >= known.commit_ts else known
    return KnownColumn(
        newest.type, newest.commit_ts, known.in_rows or column.in_rows, newest.in_key, max(known.since, column.since)
    )
