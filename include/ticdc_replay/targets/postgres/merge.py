"""The statements that bring staged versions into a mirror table and its tombstones; see ``Session.merge``. Touched keys
are taken out and inserted again: an upsert would fail if a secondary unique value moves between rows."""

from collections.abc import Iterable
from functools import cached_property, partial
from typing import ClassVar, LiteralString

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.changelog.files.version_order import OFFSET_BITS
from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror import stops
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, Observed, TableState
from ticdc_replay.targets.mirror.planning.window_ddl import PlannedColumn
from ticdc_replay.targets.mirror.session import Merged
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.postgres import indexes, wide_rows
from ticdc_replay.targets.postgres.tables import PgConnection, sql_of, trusted
from ticdc_replay.targets.postgres.types import stage_type

Counts = tuple[int, int, int]
"""Rows put, rows of the mirror that a delete removed, deletes applied: the counts of ``Merged``."""


def merge(
    connection: PgConnection,
    load: Load,
    plan: TablePlan,
    staged: Staged,
    found: FoundTable,
    *,
    in_order: bool,
    observed: Observed,
) -> tuple[Merged, list[str]]:
    """See ``Session.merge``. Where the server refuses, rows that have no room on a page, or in an index, are looked for."""
    kind = _Merge if plan.deleted_column is None else _SoftMerge
    merge, dropped = kind(connection, plan, staged, found, observed.state), list[str]()
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
    return Merged(staged, *counts), dropped


_REPLACE = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND f.{put} AND t.{version} <= f.{new}
"""
_DELETE = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND NOT f.{put} AND t.{version} < f.{new}
"""
_HAS_DELETES = "SELECT EXISTS (SELECT FROM {folded} f WHERE NOT f.{put})"
_REMOVE_TOMBSTONES = """
DELETE FROM {tombstones} t USING {folded} f
WHERE {same_row} AND t.{version} <= f.{new}
"""
_OF_PUTS = "AND f.{put}"
_INSERT = """
INSERT INTO {target} ({names}, {version})
SELECT {staged}, f.{new} FROM {folded} f WHERE f.{put}
"""
_UNLESS_NEWER = """
AND NOT EXISTS (SELECT FROM {tombstones} t WHERE {same_row})
ON CONFLICT ({key_names}) DO NOTHING
"""
_ADD_TOMBSTONES = """
INSERT INTO {tombstones} AS old ({key_names}, {version})
SELECT {staged_key}, f.{new} FROM {folded} f WHERE NOT f.{put}
"""
_UNLESS_IN_MIRROR = "AND NOT EXISTS (SELECT FROM {target} t WHERE {same_row})"
_MOVED = """
SELECT (t.{version} - 1) >> {offset_bits}, (f.{new} - 1) >> {offset_bits}, {old_key} FROM {old} t, {folded} f
WHERE {same_row} AND t.{version} > 0 AND (t.{version} - 1) >> {offset_bits} <> (f.{new} - 1) >> {offset_bits} LIMIT 1
"""
"""Version 0 is no place: rows that a person took from the upstream."""
_OR_LATER = """
ON CONFLICT ({key_names}) DO UPDATE SET {version} = excluded.{version}
WHERE old.{version} <= excluded.{version}
"""


_TAKE_OUT_OLDER = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND t.{version} <= f.{new}
"""
_TAKE_OUT = """
DELETE FROM {target} t USING {folded} f
WHERE {same_row} AND (t.{version} < f.{new} OR t.{version} = f.{new} AND (f.{put} OR t.{deleted}))
"""
_INSERT_ALL = """
INSERT INTO {target} ({names}, {deleted}, {version})
SELECT {staged}, NOT f.{put}, f.{new} FROM {folded} f
"""
_PUTS = "WHERE f.{put}"
_DELETES = "WHERE NOT f.{put}"
_UNLESS_THERE = """
ON CONFLICT ({key_names}) DO NOTHING
"""
"""What is there after ``_TAKE_OUT`` is newer."""


class _Merge:
    """The statements that bring the staged versions into one mirror table and its tombstones."""

    _memories: ClassVar[tuple[str, ...]] = ("target", "tombstones")
    """Where versions of rows are."""
    _insert_any_age: ClassVar[LiteralString] = _INSERT + _UNLESS_NEWER

    def __init__(
        self, connection: PgConnection, plan: TablePlan, staged: Staged, found: FoundTable, state: TableState | None
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._staged = staged
        self._target = plan.target
        self._tombstones = plan.tombstones
        self._version = plan.version_column
        types = {column.name: column.type for column in found.columns}
        cells = {column.staged: _cast(column, types[column.target]) for column in plan.columns}
        rows = {column.target: cells[column.staged] for column in plan.columns}
        for kept in differences.kept_columns(plan, found, state):
            cell = rows.get(kept.name, trusted(f"CAST({kept.fill or 'NULL'} AS {types[kept.name]})"))
            rows[kept.name] = sql.SQL("CASE WHEN {} <= {} THEN {} END").format(
                sql.Identifier("f", VERSION), sql.Literal(kept.until_ts), cell
            )
        # Of windows by place the plan has left out what is below the floor.
        self._floor = floor = plan.next_floor_ts if plan.order == "commit_ts" else 0
        above_floor = sql.SQL("SELECT * FROM {} WHERE {} >= {}")
        stages = [
            above_floor.format(sql.Identifier(LEDGER_SCHEMA, stage), sql.Identifier(VERSION), sql.Literal(floor))
            for stage in staged.stages
        ]
        self._parts: dict[str, sql.Composable] = {
            "target": sql_of(plan.target),
            "tombstones": sql_of(self._tombstones),
            "folded": sql.SQL("({})").format(sql.SQL(" UNION ALL ").join(stages)),
            "version": sql.Identifier(plan.version_column),
            "new": sql.Identifier(VERSION),
            "put": sql.Identifier(PUT),
            "deleted": sql.Identifier(plan.deleted_column or ""),
            "offset_bits": sql.Literal(OFFSET_BITS),
            "old_key": _listed(sql.Identifier("t", column.target) for column in plan.key),
            "key_names": _listed(sql.Identifier(column.target) for column in plan.key),
            "names": _listed(map(sql.Identifier, rows)),
            "staged": _listed(rows.values()),
            "staged_key": _listed(cells[column.staged] for column in plan.key),
            "same_row": sql.SQL(" AND ").join(
                sql.SQL("t.{} = {}").format(sql.Identifier(column.target), cells[column.staged]) for column in plan.key
            ),
        }

    def newer(self, empty: bool) -> Counts:
        """Merge versions that are all newer than any that was applied: nothing they could lose against is looked for."""
        deleted = 0
        if not empty:
            self._run(_REPLACE)
            deleted = self._run(_DELETE) if self._has_deletes else 0
        self._run(_REMOVE_TOMBSTONES)
        upserted = self._insert_newer(_INSERT)
        return upserted, deleted, self._add_tombstones(_ADD_TOMBSTONES + _UNLESS_IN_MIRROR)

    @cached_property
    def _has_deletes(self) -> bool:
        """Whether any version is a delete: a join with the whole mirror for none would take as long as for all."""
        row = self._connection.execute(sql.SQL(_HAS_DELETES).format(**self._parts)).fetchone()
        return row is not None and bool(row[0])

    def _add_tombstones(self, statement: LiteralString) -> int:
        return self._run(statement) if self._has_deletes else 0

    def _insert_newer(self, statement: LiteralString) -> int:
        try:
            return self._run(statement)
        except psycopg.errors.UniqueViolation as error:
            raise TargetMismatchError(
                f"{self._target} has rows that are newer than every window that was loaded into it: {error}; "
                "who wrote them should have raised floor_ts in _ticdc_replay.tables. Load the window with `reload`, "
                "which compares with each row"
            ) from error

    def any_age(self) -> Counts:
        """Merge versions that may be older than what the mirror or a tombstone has."""
        deleted = self._take_out()
        upserted = self._run(self._insert_any_age)
        return upserted, deleted, self._add_tombstones(_ADD_TOMBSTONES + _UNLESS_IN_MIRROR + _OR_LATER)

    def _take_out(self) -> int:
        """Take out of the mirror, and of the tombstones, what versions of any age replace; how many rows deletes removed."""
        self._run(_REPLACE)
        deleted = self._run(_DELETE) if self._has_deletes else 0
        self._run(_REMOVE_TOMBSTONES + _OF_PUTS)
        return deleted

    def without_wide_rows(self, load: Load, error: psycopg.Error) -> Staged:
        """The rest of the rows after those without room on a page are set aside. Raises *error* if there are none, and
        what ``wide_rows.set_aside`` raises."""
        with self._connection.transaction(force_rollback=True):
            self._take_out()
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
        insert = partial(self._connection.execute, sql.SQL(self._insert_any_age).format(**parts))
        indexes.making_room(self._connection, [], insert)

    def refuse_moved(self) -> None:
        """Raise TargetMismatchError where a row was in another partition before, so that its places don't order it."""
        for old in self._memories:
            parts = {**self._parts, "old": self._parts[old]}
            row = self._connection.execute(sql.SQL(_MOVED).format(**parts)).fetchone()
            if row is not None:
                raise stops.moved_row(self._plan, row[2:], row[0], row[1])

    def _run(self, statement: LiteralString) -> int:
        return self._connection.execute(sql.SQL(statement).format(**self._parts)).rowcount


class _SoftMerge(_Merge):
    """The same where deleted rows stay: each is a version as any other, marked, and there are no tombstones."""

    _memories: ClassVar[tuple[str, ...]] = ("target",)
    _insert_any_age: ClassVar[LiteralString] = _INSERT_ALL + _UNLESS_THERE

    def newer(self, empty: bool) -> Counts:
        if not empty:
            self._run(_TAKE_OUT_OLDER)
        upserted = self._insert_newer(_INSERT_ALL + _PUTS)
        return upserted, 0, self._insert_newer(_INSERT_ALL + _DELETES)

    def any_age(self) -> Counts:
        self._take_out()
        upserted = self._run(_INSERT_ALL + _PUTS + _UNLESS_THERE)
        return upserted, 0, self._run(_INSERT_ALL + _DELETES + _UNLESS_THERE)

    def _take_out(self) -> int:
        self._run(_TAKE_OUT)
        return 0


def _cast(column: PlannedColumn, type_name: str) -> sql.Composable:
    """The staged cell in the type that the mirror's column has by now."""
    cell = sql.Identifier("f", column.staged)
    if stage_type(column.type) == type_name:
        return cell
    return sql.SQL("{}::{}").format(cell, trusted(type_name))


def _listed(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
