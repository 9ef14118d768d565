"""Applies staged rows to a mirror table: one transaction that does all of it or nothing.

Versions of one row are ordered by (commitTs, delete < put). A key lives either in the mirror, with the commitTs of its row, or
in the tombstone table, with the commitTs of its delete: so an older version, in whatever order windows come, finds the newer
one. A version of equal commitTs overwrites: a reload repairs. Where not all rows carry a commitTs, their place in Kafka stands
for it: it orders rows of one partition, and a row that is found in another one stops the load.

The touched keys are deleted and inserted again. An upsert would go wrong where the value of a secondary unique key moves from
one row to another.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.changelog.version_order import OFFSET_BITS
from ticdc_replay.domain.errors import CommitStateUnknownError, PolicyStopError, TargetMismatchError, TransientError
from ticdc_replay.targets.base import Field, Load, TableReport
from ticdc_replay.targets.postgres import (
    dropped_databases,
    emptying,
    form,
    indexes,
    ledger,
    marks,
    mirror_table,
    wide_rows,
)
from ticdc_replay.targets.postgres.catalog import FoundTable, find_table
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.marks import Marks
from ticdc_replay.targets.postgres.plan import TablePlan
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.staged_rows import PUT, VERSION
from ticdc_replay.targets.postgres.types import stage_type
from ticdc_replay.targets.postgres.window_ddl import PlannedColumn

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

_SESSION = ("SET LOCAL work_mem = '256MB'", "SET LOCAL lock_timeout = '5min'")
"""For the joins of one commit; and a lock that somebody holds for ever ends in an error that a retry may mend."""


class Staged(msgspec.Struct, frozen=True):
    """What workers left for one table: the last version of each key, once. Timestamps are TSO."""

    stages: tuple[str, ...]
    """Staging tables; none where the window has no rows of the table, only DDL."""
    events: int
    keys: int
    quarantined: int
    quarantine_files: tuple[str, ...]
    first_ts: int
    last_ts: int


class _Counts(msgspec.Struct, frozen=True):
    upserted: int = 0
    deleted: int = 0
    tombstones: int = 0


def commit_table(
    connection: Connection,
    load: Load,
    plan: TablePlan,
    staged: Staged,
    newer: Marks,
    config: PostgresTarget,
    conn_id: str,
) -> TableReport:
    """Apply *staged* to the table of *plan*, with the DDL of the window before it, and write the ledger.

    Where DDL at the end of the window stops the load the rows before it are applied, and the window is not done. What such a load
    had set aside of rows that are below the floor by now is told again.

    Does nothing where the ledger has this window and run already. *newer* are the loads that were newer when this one began.

    Raises what ``marks.look_again`` raises, CommitStateUnknownError when the connection broke in the commit itself; after any
    other error nothing of the table was changed.
    """
    try:
        report = _apply(connection, load, plan, staged, newer, config)
    except psycopg.Error as error:
        raise translate(error, f"load {plan.target}", conn_id) from error
    try:
        connection.commit()
    except psycopg.Error as error:
        if not connection.closed:
            raise translate(error, f"commit {plan.target}", conn_id) from error
        raise CommitStateUnknownError(
            f"the connection {conn_id!r} broke while {plan.target} was committed: the window may be loaded or not. "
            "Run the load again: the ledger tells, and a repeat is harmless"
        ) from error
    return report


def _apply(
    connection: Connection,
    load: Load,
    plan: TablePlan,
    staged: Staged,
    newer: Marks,
    config: PostgresTarget,
) -> TableReport:
    for statement in _SESSION:
        connection.execute(sql.SQL(statement))
    ledger.lock_table(connection, plan.target)
    if not load.reload:
        done = ledger.find_done(connection, plan.target, load.index.window, load.index.run_hash)
        if done is not None:
            _drop_staging(connection, staged)
            return done
    marks.look_again(connection, load, config, plan, newer)
    # Looked at again: another load or a person may have changed the table since this one began.
    observed = mirror_table.observe(connection, plan.target)
    state = observed.state
    if state is not None:
        mirror_table.refuse_others(plan.target, state, load.index.pipeline, config.same_upstream_as)
        if state.floor_ts > max(plan.floor_ts, load.index.window.from_ts):
            raise TransientError(f"the floor of {plan.target} was raised while this load staged its rows; try again")
    else:
        dropped_databases.look_again(connection, load, config, plan)
    mirror_table.refuse_lost(plan, observed)
    stops = mirror_table.unfollowed_changes(plan, observed)
    stops += mirror_table.rows_before_creation(connection, plan, observed)
    if stops:
        raise PolicyStopError("\n".join(stops))
    emptied = emptying.empty(connection, plan, observed)
    if state is not None:
        forgotten = ledger.raise_floor(connection, plan.target, plan.next_floor_ts, plan.next_form_floor_ts)
        observed = mirror_table.observe(connection, plan.target)
        mirror_table.drop_defaults(connection, plan, observed, forgotten)
    steps = mirror_table.steps_to(plan, observed)
    made_meanwhile = state is not None and state.floor_ts < plan.floor_ts and plan.emptied is None
    if made_meanwhile and observed.found is not None:
        raise TransientError(f"{plan.target} was made by another load while this one staged its rows; try again")
    state = observed.state
    if state is None:
        newest_ts = 0
        ledger.add_table(
            connection,
            plan.target,
            source=plan.source,
            pipeline=load.index.pipeline,
            tombstones=mirror_table.tombstones(plan),
            newest_ts=newest_ts,
            floor_ts=plan.next_floor_ts,
            form_floor_ts=plan.next_form_floor_ts,
        )
    else:
        newest_ts = state.newest_ts
    if plan.columns:
        ledger.create_schema(connection, plan.target.schema)
    dropped: list[str] = []
    for step in steps:
        try:
            indexes.making_room(connection, dropped, partial(connection.execute, step.statement))
        except psycopg.errors.ProgramLimitExceeded as error:
            raise TargetMismatchError(
                f"{plan.target} has no room for {step.text or 'what the window needs'}: {error}. Leave columns out by a column "
                "selector of the changefeed; or load the table into a parquet target, and take it out of `tables` for this one"
            ) from error
    mirror_table.note_columns(connection, plan, state)
    ledger.note_form(connection, plan.target, form.to_note(plan, state))
    ledger.raise_marks(
        connection, plan.target, schema_ts=plan.schema_ts, whole_ts=plan.whole_ts, newest_ts=staged.last_ts
    )
    if plan.topic_id is not None:
        ledger.note_topic(connection, plan.target, plan.topic_id)
    found = find_table(connection, plan.target)
    counts = _Counts()
    if staged.stages and found is not None:
        mirror_table.fit_tombstones(connection, plan, found)
        merge = _Merge(connection, plan, staged, found)
        in_order = plan.order == "commit_ts" and staged.first_ts > newest_ts and not load.reload
        if plan.order == "place":
            merge.refuse_moved()
        apply = partial(merge.newer, empty=observed.empty) if in_order else merge.any_age
        try:
            counts = indexes.making_room(connection, dropped, apply)
        except psycopg.errors.ProgramLimitExceeded as error:
            if error.diag.constraint_name is not None:
                raise
            staged = merge.without_wide_rows(load, error)
            counts = indexes.making_room(connection, dropped, apply)
    report = TableReport(
        table=plan.source,
        outcome="stopped" if plan.last_stops else "loaded",
        destination=str(plan.target),
        fields=tuple(Field(column.name, column.type) for column in found.columns) if found is not None else (),
        events=staged.events,
        keys=staged.keys,
        folded=staged.events - plan.below_floor - staged.quarantined - staged.keys,
        upserted=counts.upserted,
        deleted=counts.deleted,
        tombstones=counts.tombstones,
        superseded=staged.keys - counts.upserted - counts.tombstones,
        quarantined=staged.quarantined,
        quarantine_files=staged.quarantine_files,
        below_floor=plan.below_floor,
        ddl=(*emptied, *dropped, *(step.text for step in steps if step.text)),
    )
    if not load.reload:
        stopped = ledger.find_stopped(connection, plan.target, load.index.window, load.index.run_hash)
        if stopped is not None:
            report = _with_set_aside(report, stopped)
    ledger.note_done(connection, load, plan.target, report)
    _drop_staging(connection, staged)
    return report


def _with_set_aside(report: TableReport, stopped: TableReport) -> TableReport:
    """*report* with what the load of the same changelog that was *stopped* had set aside, and this one did not look at."""
    carried = min(stopped.quarantined - report.quarantined, report.below_floor - stopped.below_floor)
    if carried <= 0:
        return report
    return msgspec.structs.replace(
        report,
        quarantined=report.quarantined + carried,
        quarantine_files=tuple(sorted({*stopped.quarantine_files, *report.quarantine_files})),
        below_floor=report.below_floor - carried,
    )


def _drop_staging(connection: Connection, staged: Staged) -> None:
    ledger.drop_staging(connection, list(staged.stages))


_REPLACE = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND f.{put} AND t.{version} <= f.{new}
"""
_DELETE = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND NOT f.{put} AND t.{version} < f.{new}
"""
_DIG_UP = """
DELETE FROM {tombstones} t USING {folded} f
WHERE {same_row} AND t.{version} <= f.{new}
"""
_REVIVED = "AND f.{put}"
_INSERT = """
INSERT INTO {target} ({names}, {version})
SELECT {staged}, f.{new} FROM {folded} f WHERE f.{put}
"""
_UNLESS_NEWER = """
AND NOT EXISTS (SELECT FROM {tombstones} t WHERE {same_row})
ON CONFLICT ({key_names}) DO NOTHING
"""
_BURY = """
INSERT INTO {tombstones} AS old ({key_names}, {version})
SELECT {staged_key}, f.{new} FROM {folded} f WHERE NOT f.{put}
"""
_UNLESS_ALIVE = "AND NOT EXISTS (SELECT FROM {target} t WHERE {same_row})"
_MOVED = """
SELECT (t.{version} - 1) >> {offset_bits}, (f.{new} - 1) >> {offset_bits}, {old_key} FROM {old} t, {folded} f
WHERE {same_row} AND t.{version} > 0 AND (t.{version} - 1) >> {offset_bits} <> (f.{new} - 1) >> {offset_bits} LIMIT 1
"""
"""Version 0 is no place: rows that somebody brought from the upstream."""
_OR_LATER = """
ON CONFLICT ({key_names}) DO UPDATE SET {version} = excluded.{version}
WHERE old.{version} <= excluded.{version}
"""


class _Merge:
    """The statements that bring the staged versions into one mirror table and its tombstones."""

    def __init__(self, connection: Connection, plan: TablePlan, staged: Staged, found: FoundTable) -> None:
        self._connection = connection
        self._plan = plan
        self._staged = staged
        self._target = plan.target
        self._tombstones = mirror_table.tombstones(plan)
        self._version = plan.version_column
        types = {column.name: column.type for column in found.columns}
        cells = {column.staged: _cast(column, types[column.target]) for column in plan.columns}
        # Of windows by place the plan has left out what is below the floor.
        self._floor = floor = plan.next_floor_ts if plan.order == "commit_ts" else 0
        above_floor = sql.SQL("SELECT * FROM {} WHERE {} >= {}")
        stages = [
            above_floor.format(sql.Identifier(LEDGER_SCHEMA, stage), sql.Identifier(VERSION), sql.Literal(floor))
            for stage in staged.stages
        ]
        self._parts: dict[str, sql.Composable] = {
            "target": plan.target.sql,
            "tombstones": self._tombstones.sql,
            "folded": sql.SQL("({})").format(sql.SQL(" UNION ALL ").join(stages)),
            "version": sql.Identifier(plan.version_column),
            "new": sql.Identifier(VERSION),
            "put": sql.Identifier(PUT),
            "offset_bits": sql.Literal(OFFSET_BITS),
            "old_key": _listed(sql.Identifier("t", column.target) for column in plan.key),
            "key_names": _listed(sql.Identifier(column.target) for column in plan.key),
            "names": _listed(sql.Identifier(column.target) for column in plan.columns),
            "staged": _listed(cells[column.staged] for column in plan.columns),
            "staged_key": _listed(cells[column.staged] for column in plan.key),
            "same_row": sql.SQL(" AND ").join(
                sql.SQL("t.{} = {}").format(sql.Identifier(column.target), cells[column.staged]) for column in plan.key
            ),
        }

    def newer(self, empty: bool) -> _Counts:
        """Merge versions that are all newer than any that was applied: nothing they could lose against is looked for."""
        deleted = 0
        if not empty:
            self._run(_REPLACE)
            deleted = self._run(_DELETE)
        self._run(_DIG_UP)
        try:
            upserted = self._run(_INSERT)
        except psycopg.errors.UniqueViolation as error:
            raise TargetMismatchError(
                f"{self._target} has rows that are newer than every window that was loaded into it: {error}; "
                "who wrote them should have raised floor_ts in _ticdc_replay.tables. Load the window with `reload`, "
                "which compares with each row"
            ) from error
        return _Counts(upserted, deleted, self._run(_BURY + _UNLESS_ALIVE))

    def any_age(self) -> _Counts:
        """Merge versions that may be older than what the mirror or a tombstone has."""
        self._run(_REPLACE)
        deleted = self._run(_DELETE)
        self._run(_DIG_UP + _REVIVED)
        upserted = self._run(_INSERT + _UNLESS_NEWER)
        return _Counts(upserted, deleted, self._run(_BURY + _UNLESS_ALIVE + _OR_LATER))

    def without_wide_rows(self, load: Load, error: psycopg.Error) -> Staged:
        """What is left where rows that the mirror has no page for are set aside. Raises *error* where there are none, and what
        ``wide_rows.set_aside`` raises."""
        with self._connection.transaction(force_rollback=True):
            self._run(_REPLACE)
            self._run(_DELETE)
            self._run(_DIG_UP + _REVIVED)
            found = wide_rows.wide_rows(self._connection, self._plan, self._staged.stages, self._insert_some)
        if not found:
            raise error
        name = wide_rows.set_aside(self._connection, load, self._plan, found)
        return msgspec.structs.replace(
            self._staged,
            keys=self._staged.keys - len(found),
            quarantined=self._staged.quarantined + len(found),
            quarantine_files=(*self._staged.quarantine_files, name),
        )

    def _insert_some(self, stage: str, condition: sql.Composable) -> None:
        some = sql.SQL("(SELECT * FROM {} WHERE {} >= {} AND {})").format(
            sql.Identifier(LEDGER_SCHEMA, stage), sql.Identifier(VERSION), sql.Literal(self._floor), condition
        )
        parts = {**self._parts, "folded": some}
        insert = partial(self._connection.execute, sql.SQL(_INSERT + _UNLESS_NEWER).format(**parts))
        indexes.making_room(self._connection, [], insert)

    def refuse_moved(self) -> None:
        """Raise TargetMismatchError where a row was in another partition before, so that its places don't order it."""
        for old in ("target", "tombstones"):
            parts = {**self._parts, "old": self._parts[old]}
            row = self._connection.execute(sql.SQL(_MOVED).format(**parts)).fetchone()
            if row is not None:
                raise TargetMismatchError(
                    f"{self._target}: the row with key {tuple(row[2:])} was in partition {row[0]}, and is in partition {row[1]} "
                    "now; without commitTs nothing tells which came last. Were partitions added or the dispatcher changed? "
                    f"Bring the table up to date from the upstream, set {self._version} to 0 in all its rows, empty "
                    f"{self._tombstones}, and set floor_ts to the end of a window after that in _ticdc_replay.tables"
                )

    def _run(self, statement: LiteralString) -> int:
        return self._connection.execute(sql.SQL(statement).format(**self._parts)).rowcount


def _cast(column: PlannedColumn, type_name: str) -> sql.Composable:
    """The staged cell in the type that the mirror's column has by now."""
    cell = sql.Identifier("f", column.staged)
    if stage_type(column.type) == type_name:
        return cell
    return sql.SQL("{}::{}").format(cell, mirror_table.trusted(type_name))


def _listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
