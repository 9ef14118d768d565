"""Applies staged rows to a mirror table: one transaction that does all of it or nothing.

Versions of one row are ordered by (commitTs, delete < put). A key lives either in the mirror, with the commitTs of its row, or
in the tombstone table, with the commitTs of its delete: so an older version, in whatever order windows come, finds the newer
one. A version of equal commitTs overwrites: a reload repairs.

The touched keys are deleted and inserted again. An upsert would go wrong where the value of a secondary unique key moves from
one row to another.
"""

import logging
from collections.abc import Iterable
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import CommitStateUnknownError, PolicyStopError
from ticdc_replay.targets.base import Field, Load, TableReport
from ticdc_replay.targets.postgres import ledger, mirror_table
from ticdc_replay.targets.postgres.catalog import FoundTable, find_table
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.plan import TablePlan
from ticdc_replay.targets.postgres.staged_rows import COMMIT_TS, PUT

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

_SESSION = (
    "SET LOCAL work_mem = '256MB'",
    "SET LOCAL temp_buffers = '64MB'",
    "SET LOCAL lock_timeout = '5min'",
)
"""For the sorts and joins of one commit; and a lock that somebody holds for ever ends in an error that a retry may mend."""


class Staged(msgspec.Struct, frozen=True):
    """What workers left for one table. ``stage`` is None where the window has no rows of it, only DDL."""

    stage: str | None
    events: int
    quarantined: int


class _Counts(msgspec.Struct, frozen=True):
    keys: int = 0
    upserted: int = 0
    deleted: int = 0
    tombstones: int = 0


def commit_table(connection: Connection, load: Load, plan: TablePlan, staged: Staged, conn_id: str) -> TableReport:
    """Apply *staged* to the table of *plan*, with the DDL of the window before it, and write the ledger.

    Does nothing where the ledger has this window and run already. Raises CommitStateUnknownError when the connection broke
    in the commit itself; after any other error nothing of the table was changed.
    """
    try:
        report = _apply(connection, load, plan, staged)
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


def _apply(connection: Connection, load: Load, plan: TablePlan, staged: Staged) -> TableReport:
    for statement in _SESSION:
        connection.execute(sql.SQL(statement))
    ledger.lock_table(connection, plan.target)
    if not load.reload:
        done = ledger.find_done(connection, plan.target, load.index.window, load.index.run_hash)
        if done is not None:
            _drop_staging(connection, staged)
            return done
    # Looked at again: another load may have changed the table since this one began.
    observed = mirror_table.observe(connection, plan.target)
    unfollowed = mirror_table.unfollowed_changes(plan, observed.state)
    if unfollowed:
        raise PolicyStopError("\n".join(unfollowed))
    steps = mirror_table.steps_to(plan, observed)
    ledger.add_table(connection, plan.target, plan.source, mirror_table.tombstones(plan))
    if plan.columns:
        connection.execute(mirror_table.create_tombstones(plan))
        ledger.create_schema(connection, plan.target.schema)
    for step in steps:
        connection.execute(step.statement)
    mirror_table.note_columns(connection, plan, observed.state)
    ledger.raise_schema_ts(connection, plan.target, plan.schema_ts)
    found = find_table(connection, plan.target)
    counts = _Counts()
    if staged.stage is not None and found is not None:
        floor_ts = observed.state.floor_ts if observed.state is not None else 0
        counts = _merge(connection, plan, staged.stage, found, floor_ts)
    report = TableReport(
        table=plan.source,
        outcome="loaded",
        destination=str(plan.target),
        fields=tuple(Field(column.name, column.type) for column in found.columns) if found is not None else (),
        events=staged.events,
        keys=counts.keys,
        folded=staged.events - staged.quarantined - counts.keys,
        upserted=counts.upserted,
        deleted=counts.deleted,
        tombstones=counts.tombstones,
        superseded=counts.keys - counts.upserted - counts.tombstones,
        quarantined=staged.quarantined,
        ddl=tuple(step.text for step in steps if step.text),
    )
    ledger.note_done(connection, load, plan.target, report)
    _drop_staging(connection, staged)
    return report


def _drop_staging(connection: Connection, staged: Staged) -> None:
    if staged.stage is not None:
        ledger.drop_staging(connection, [staged.stage])


_FOLD = """
CREATE TEMPORARY TABLE folded ON COMMIT DROP AS
SELECT DISTINCT ON ({key}) {cells}, {ts}, {put} FROM {stage} ORDER BY {key}, {ts} DESC, {put} DESC
"""
_DROP_BELOW_FLOOR = "DELETE FROM folded WHERE {ts} < {floor}"
_REPLACE = """
DELETE FROM {target} t USING folded f
WHERE {same_row} AND f.{put} AND t.{commit_ts} <= f.{ts}
"""
_DELETE = """
DELETE FROM {target} t USING folded f
WHERE {same_row} AND NOT f.{put} AND t.{commit_ts} < f.{ts}
"""
_REVIVE = """
DELETE FROM {tombstones} t USING folded f
WHERE {same_row} AND f.{put} AND t.{commit_ts} <= f.{ts}
"""
_INSERT = """
INSERT INTO {target} ({names}, {commit_ts})
SELECT {staged}, f.{ts} FROM folded f
WHERE f.{put} AND NOT EXISTS (SELECT FROM {tombstones} t WHERE {same_row})
ON CONFLICT ({key_names}) DO NOTHING
"""
_BURY = """
INSERT INTO {tombstones} AS old ({key_names}, {commit_ts})
SELECT {staged_key}, f.{ts} FROM folded f
WHERE NOT f.{put} AND NOT EXISTS (SELECT FROM {target} t WHERE {same_row})
ON CONFLICT ({key_names}) DO UPDATE SET {commit_ts} = excluded.{commit_ts}
WHERE old.{commit_ts} <= excluded.{commit_ts}
"""


def _merge(connection: Connection, plan: TablePlan, stage: str, found: FoundTable, floor_ts: int) -> _Counts:
    """The last version of each staged key → mirror and tombstones.

    ``folded`` is sorted by key, so that the mirror's primary key index grows in order: measured faster than inserting rows as
    they were staged, by more than the sort costs.
    """
    types = {column.name: column.type for column in found.columns}
    parts: dict[str, sql.Composable] = {
        "target": plan.target.sql,
        "tombstones": mirror_table.tombstones(plan).sql,
        "stage": sql.Identifier(LEDGER_SCHEMA, stage),
        "commit_ts": sql.Identifier(plan.commit_ts),
        "ts": sql.Identifier(COMMIT_TS),
        "put": sql.Identifier(PUT),
        "floor": sql.Literal(floor_ts),
        "key": _listed(sql.Identifier(column.staged) for column in plan.key),
        "key_names": _listed(sql.Identifier(column.target) for column in plan.key),
        "names": _listed(sql.Identifier(column.target) for column in plan.columns),
        "staged": _listed(sql.Identifier("f", column.staged) for column in plan.columns),
        "staged_key": _listed(sql.Identifier("f", column.staged) for column in plan.key),
        "cells": _listed(
            sql.SQL("{0}::{1} AS {0}").format(sql.Identifier(column.staged), mirror_table.trusted(types[column.target]))
            for column in plan.columns
        ),
        "same_row": sql.SQL(" AND ").join(
            sql.SQL("t.{} = f.{}").format(sql.Identifier(column.target), sql.Identifier(column.staged))
            for column in plan.key
        ),
    }

    def run(statement: LiteralString) -> int:
        return connection.execute(sql.SQL(statement).format(**parts)).rowcount

    keys = run(_FOLD)
    if floor_ts:
        run(_DROP_BELOW_FLOOR)
    run("ANALYZE folded")
    run(_REPLACE)
    deleted = run(_DELETE)
    run(_REVIVE)
    upserted = run(_INSERT)
    return _Counts(keys, upserted, deleted, run(_BURY))


def _listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
