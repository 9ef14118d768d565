"""The ledger of a mirror in PostgreSQL: what is known of its tables, and what was loaded into them."""

from collections.abc import Mapping
from typing import LiteralString

import msgspec
from psycopg import sql

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import HeldTable, Load, StoppedLoad, TableReport
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnEvent,
    ColumnMove,
    KnownColumn,
    RecordedColumn,
    Relation,
    TableState,
)
from ticdc_replay.targets.postgres.begun import BegunLoads
from ticdc_replay.targets.postgres.tables import sql_of

_OF_TARGET: LiteralString = "WHERE (target_schema, target_table) = (%s, %s)"
_TABLES_OF_TARGETS: tuple[LiteralString, ...] = ("tables", "columns", "added_columns", "column_events", "ledger")


class PostgresLedger(BegunLoads):
    """The tables of ``ledger_tables`` that are about mirror tables."""

    def state_of(self, target: Relation) -> TableState | None:
        place = [target.schema, target.table]
        row = self._execute(
            "SELECT source_schema, source_table, pipeline, floor_ts, newest_ts, schema_ts, tombstones, topic_id, "
            "whole_ts, CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END FROM {schema}.tables "
            + _OF_TARGET,
            place,
        ).fetchone()
        if row is None:
            return None
        added = self._execute("SELECT column_name, commit_ts, fill FROM {schema}.added_columns " + _OF_TARGET, place)
        columns = {name: RecordedColumn(commit_ts, fill) for name, commit_ts, fill in added}
        known = self._execute(
            "SELECT column_name, type, commit_ts, in_rows, in_key, since FROM {schema}.columns "
            + _OF_TARGET
            + " ORDER BY commit_ts, column_name",
            place,
        )
        source, tombstones = TableName(row[0], row[1]), Relation(LEDGER_SCHEMA, row[6])
        form = {name: KnownColumn(*column) for name, *column in known}
        found = self._execute(
            "SELECT commit_ts, number, column_name, new_name, since FROM {schema}.column_events "
            + _OF_TARGET
            + " ORDER BY commit_ts, number, column_name",
            place,
        )
        events = tuple(ColumnEvent(*event) for event in found)
        return TableState(
            source, row[2], row[3], row[4], row[5], tombstones, row[7], columns, form, row[8], row[9], events
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

    def raise_floor(self, target: Relation, floor_ts: int, form_floor_ts: int) -> list[str]:
        place = [target.schema, target.table]
        self._execute(
            "UPDATE {schema}.tables SET floor_ts = greatest(floor_ts, %s), truncated_to = greatest(floor_ts, %s), "
            "form_floor_ts = greatest(CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END, %s), "
            "whole_ts = CASE WHEN whole_ts < %s THEN 0 ELSE whole_ts END " + _OF_TARGET,
            [floor_ts, floor_ts, form_floor_ts, form_floor_ts, *place],
        )
        too_old: LiteralString = " AND commit_ts < %s"
        self._execute("DELETE FROM {schema}.columns " + _OF_TARGET + too_old, [*place, form_floor_ts])
        self._execute("DELETE FROM {schema}.column_events " + _OF_TARGET + too_old, [*place, form_floor_ts])
        forgotten = self._execute(
            "DELETE FROM {schema}.added_columns a USING {schema}.tables t "
            "WHERE (t.target_schema, t.target_table) = (%s, %s) AND t.topic_id IS NULL AND a.commit_ts < t.floor_ts "
            "AND (a.target_schema, a.target_table) = (t.target_schema, t.target_table) RETURNING a.column_name",
            place,
        )
        return [name for (name,) in forgotten]

    def forget(self, target: Relation, tombstones: Relation) -> None:
        for table in _TABLES_OF_TARGETS:
            self._execute("DELETE FROM {schema}." + table + " " + _OF_TARGET, [target.schema, target.table])
        self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql_of(tombstones)))

    def raise_marks(self, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
        self._execute(
            "UPDATE {schema}.tables SET schema_ts = greatest(schema_ts, %s), whole_ts = greatest(whole_ts, %s), "
            "newest_ts = greatest(newest_ts, %s) " + _OF_TARGET,
            [schema_ts, whole_ts, newest_ts, target.schema, target.table],
        )

    def note_form(self, target: Relation, columns: Mapping[str, KnownColumn]) -> None:
        self._execute_many(
            "INSERT INTO {schema}.columns AS known "
            "(target_schema, target_table, column_name, type, commit_ts, in_rows, in_key, since) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (target_schema, target_table, column_name) DO UPDATE SET "
            "type = CASE WHEN excluded.commit_ts >= known.commit_ts THEN excluded.type ELSE known.type END, "
            "in_key = CASE WHEN excluded.commit_ts >= known.commit_ts THEN excluded.in_key ELSE known.in_key END, "
            "commit_ts = greatest(excluded.commit_ts, known.commit_ts), in_rows = known.in_rows OR excluded.in_rows, "
            "since = greatest(excluded.since, known.since)",
            [(target.schema, target.table, name, *msgspec.structs.astuple(column)) for name, column in columns.items()],
        )

    def note_topic(self, target: Relation, topic_id: str) -> None:
        parameters = [topic_id, target.schema, target.table]
        self._execute("UPDATE {schema}.tables SET topic_id = %s " + _OF_TARGET, parameters)

    def note_added_column(self, target: Relation, column: str, commit_ts: int, fill: str | None) -> None:
        self._execute(
            "INSERT INTO {schema}.added_columns (target_schema, target_table, column_name, commit_ts, fill) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (target_schema, target_table, column_name) "
            "DO UPDATE SET commit_ts = excluded.commit_ts, fill = excluded.fill",
            [target.schema, target.table, column, commit_ts, fill],
        )

    def note_column_event(self, target: Relation, move: ColumnMove) -> None:
        state, place, event = self.state_of(target), [target.schema, target.table], move.event
        assert state is not None, "a table is added before its columns are noted"
        after = state.after(move)
        if after is state:
            return
        names = [name for name in (move.column, move.to) if name is not None]
        for table in ("columns", "added_columns"):
            self._execute(
                "DELETE FROM {schema}." + table + " " + _OF_TARGET + " AND column_name = ANY(%s)", [*place, names]
            )
        self.note_form(target, {name: after.columns[name] for name in names if name in after.columns})
        for name in names:
            if name in after.added_columns:
                added = after.added_columns[name]
                self.note_added_column(target, name, added.commit_ts, added.fill)
        self._execute(
            "INSERT INTO {schema}.column_events "
            "(target_schema, target_table, commit_ts, number, column_name, new_name, since) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [*place, event.commit_ts, event.number, event.name, event.to, event.since],
        )

    def stopped_loads(self, target: Relation, pipeline: str) -> tuple[StoppedLoad, ...]:
        rows = self._execute(
            "SELECT run_hash, from_ts, to_ts, report::text FROM {schema}.ledger "
            "WHERE (target_schema, target_table, pipeline) = (%s, %s, %s) AND report->>'outcome' = 'stopped' "
            "ORDER BY applied_at, run_hash",
            [target.schema, target.table, pipeline],
        )
        return tuple(
            StoppedLoad(run, Window(from_ts, to_ts), msgspec.json.decode(report, type=TableReport))
            for run, from_ts, to_ts, report in rows
        )

    def report_of(self, target: Relation, window: Window, run_hash: str) -> TableReport | None:
        row = self._execute(
            "SELECT report::text FROM {schema}.ledger "
            "WHERE (target_schema, target_table, from_ts, to_ts, run_hash) = (%s, %s, %s, %s, %s)",
            [target.schema, target.table, window.from_ts, window.to_ts, run_hash],
        ).fetchone()
        return msgspec.json.decode(row[0], type=TableReport) if row is not None else None

    def other_runs(self, load: Load) -> tuple[HeldTable, ...]:
        index = load.index
        rows = self._execute(
            "SELECT run_hash, report::text FROM {schema}.ledger "
            "WHERE (from_ts, to_ts, pipeline) = (%s, %s, %s) AND run_hash <> %s AND report->>'outcome' <> 'stopped'",
            [index.window.from_ts, index.window.to_ts, index.pipeline, index.run_hash],
        )
        return tuple(
            sorted(HeldTable(run, msgspec.json.decode(report, type=TableReport).table) for run, report in rows)
        )

    def note_done(self, load: Load, target: Relation, report: TableReport) -> None:
        index, window = load.index, load.index.window
        self._execute(
            "INSERT INTO {schema}.ledger (target_schema, target_table, from_ts, to_ts, run_hash, pipeline, attempt, report) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (target_schema, target_table, from_ts, to_ts, run_hash) DO UPDATE SET "
            "pipeline = excluded.pipeline, attempt = excluded.attempt, report = excluded.report, applied_at = now() "
            "WHERE excluded.report->>'outcome' <> 'stopped' OR ledger.report->>'outcome' = 'stopped'",
            [
                *(target.schema, target.table, window.from_ts, window.to_ts, index.run_hash, index.pipeline),
                *(load.attempt, msgspec.json.encode(report).decode()),
            ],
        )
