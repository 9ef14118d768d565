"""The statements that bring staged versions into a mirror table and its tombstones; see ``Session.merge``.

A mirror has no unique key but its primary one, so puts replace rows by ON DUPLICATE KEY UPDATE, which takes about a third
of the time of a DELETE and an INSERT. Each key is staged once, so staging tables, and parts of one, are merged one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ticdc_replay import mysql_protocol
from ticdc_replay.changelog.files.version_order import OFFSET_BITS
from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.mirror import stops
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.differences import KeptColumn
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, Observed
from ticdc_replay.targets.mirror.session import Merged
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.mysql.errors import NULL_IN_KEY, Errors
from ticdc_replay.targets.mysql.server import MysqlConnection
from ticdc_replay.targets.mysql.staging import NUMBER, stage_name
from ticdc_replay.targets.mysql.tables import listed, sql_of

_DELETE = """
DELETE t FROM {stage} AS f STRAIGHT_JOIN {target} AS t ON {same_row}
WHERE {part} AND NOT f.{put} AND t.{version} < f.{new}
"""
_REMOVE_TOMBSTONES = """
DELETE t FROM {stage} AS f STRAIGHT_JOIN {tombstones} AS t ON {same_row}
WHERE {part} AND t.{version} <= f.{new}
"""
_OF_PUTS = "AND f.{put}"
_INSERT = """
INSERT INTO {target} ({names}, {version}) SELECT {staged}, f.{new} FROM {stage} AS f WHERE {part} AND f.{put}
"""
_UNLESS_DELETED_LATER = "AND NOT EXISTS (SELECT 1 FROM {tombstones} AS t WHERE {same_row})"
_REPLACE = """
ON DUPLICATE KEY UPDATE {replaced}
{target}.{version} = IF(VALUES({version}) >= {target}.{version}, VALUES({version}), NULL)
"""
"""NULL, which a version can't be, is an error: the row is newer than anything that was loaded."""
_REPLACE_OLDER = """
ON DUPLICATE KEY UPDATE {replaced_if_newer}
{target}.{version} = GREATEST(VALUES({version}), {target}.{version})
"""
"""Assignments are made in their order: the version is the last that changes."""
_OLDER_PUTS = """
SELECT count(*) FROM {stage} AS f WHERE {part} AND f.{put} AND (
    EXISTS (SELECT 1 FROM {target} AS t WHERE {same_row} AND t.{version} > f.{new})
    OR EXISTS (SELECT 1 FROM {tombstones} AS t WHERE {same_row} AND t.{version} > f.{new}))
"""
_NEW_DELETES = """
SELECT count(*) FROM {stage} AS f WHERE {part} AND NOT f.{put}
AND NOT EXISTS (SELECT 1 FROM {target} AS t WHERE {same_row})
AND NOT EXISTS (SELECT 1 FROM {tombstones} AS t WHERE {same_row} AND t.{version} > f.{new})
"""
_ADD_TOMBSTONES = """
INSERT INTO {tombstones} ({key_names}, {version})
SELECT {staged_key}, f.{new} FROM {stage} AS f WHERE {part} AND NOT f.{put}
AND NOT EXISTS (SELECT 1 FROM {target} AS t WHERE {same_row})
ON DUPLICATE KEY UPDATE {tombstones}.{version} = GREATEST({tombstones}.{version}, VALUES({version}))
"""
_INSERT_ALL = """
INSERT INTO {target} ({names}, {version}) SELECT {staged}, f.{new} FROM {stage} AS f WHERE {part}
"""
_OLDER_VERSIONS = """
SELECT coalesce(sum(f.{put}), 0), coalesce(sum(NOT f.{put}), 0) FROM {stage} AS f WHERE {part} AND EXISTS (
    SELECT 1 FROM {target} AS t WHERE {same_row}
    AND (t.{version} > f.{new} OR t.{version} = f.{new} AND NOT f.{put} AND NOT t.{deleted}))
"""
_MOVED = """
SELECT (t.{version} - 1) >> {offset_bits}, (f.{new} - 1) >> {offset_bits}, {old_key}
FROM {stage} AS f STRAIGHT_JOIN {old} AS t ON {same_row}
WHERE {part} AND t.{version} > 0 AND (t.{version} - 1) >> {offset_bits} <> (f.{new} - 1) >> {offset_bits} LIMIT 1
"""
"""Version 0 is no place: rows that a person took from the upstream."""
_COUNTS = "SELECT count(*), coalesce(sum(f.{put}), 0) FROM {stage} AS f WHERE {part}"


def merge(
    connection: MysqlConnection,
    plan: TablePlan,
    staged: Staged,
    found: FoundTable,
    *,
    in_order: bool,
    observed: Observed,
    rows_per_commit: int | None,
    before_commit: Callable[[], None],
) -> Merged:
    """See ``Session.merge``. With *rows_per_commit* parts are committed one by one, after *before_commit*, all but the last:
    applied again, after an attempt that broke, they change nothing."""
    parts = _Parts(connection, plan, staged, differences.kept_columns(plan, found, observed.state), rows_per_commit)
    if plan.order == "place":
        parts.refuse_moved()
    upserted = deleted = tombstones = 0
    for number, part in enumerate(parts):
        if number:
            before_commit()
            connection.commit()
        counts = part.merge(in_order=in_order, empty=observed.empty)
        upserted, deleted, tombstones = upserted + counts[0], deleted + counts[1], tombstones + counts[2]
    return Merged(staged, upserted, deleted, tombstones)


class _Parts:
    """The staged rows of one table, in parts."""

    def __init__(
        self,
        connection: MysqlConnection,
        plan: TablePlan,
        staged: Staged,
        kept: Sequence[KeptColumn],
        rows_per_commit: int | None,
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._stages = [stage_name(stage) for stage in staged.stages]
        self._most = rows_per_commit
        # Of windows by place the plan has left out what is below the floor.
        floor = plan.next_floor_ts if plan.order == "commit_ts" else 0
        self._above_floor = f"f.{VERSION} >= {floor}"
        target, version = sql_of(plan.target), identifier(plan.version_column)
        rows = {column.target: f"f.{column.staged}" for column in plan.columns}
        for each in kept:
            cell = rows.get(each.name, each.fill or "NULL")
            rows[each.name] = f"CASE WHEN f.{VERSION} <= {each.until_ts} THEN {cell} END"
        names = [identifier(name) for name in rows]
        is_newer = f"VALUES({version}) >= {target}.{version}"
        cells = list(rows.values())
        deleted = identifier(plan.deleted_column or "")
        if plan.deleted_column is not None:  # the last before the version: what is newer is known by both
            names.append(deleted)
            cells.append(f"NOT f.{identifier(PUT)}")
            is_newer = (
                f"VALUES({version}) > {target}.{version} OR "
                f"VALUES({version}) = {target}.{version} AND (NOT VALUES({deleted}) OR {target}.{deleted})"
            )
        self._texts = {
            "target": target,
            "tombstones": sql_of(plan.tombstones),
            "version": version,
            "new": VERSION,
            "put": identifier(PUT),
            "deleted": deleted,
            "offset_bits": str(OFFSET_BITS),
            "old_key": ", ".join(f"t.{identifier(column.target)}" for column in plan.key),
            "key_names": listed(column.target for column in plan.key),
            "names": ", ".join(names),
            "staged": ", ".join(cells),
            "staged_key": ", ".join(f"f.{column.staged}" for column in plan.key),
            "same_row": " AND ".join(f"t.{identifier(column.target)} = f.{column.staged}" for column in plan.key),
            "replaced": "".join(f"{target}.{name} = VALUES({name}), " for name in names),
            "replaced_if_newer": "".join(
                f"{target}.{name} = IF({is_newer}, VALUES({name}), {target}.{name}), " for name in names
            ),
        }

    def __iter__(self) -> Iterator["_Part"]:
        for stage in self._stages:
            if self._most is None:
                yield self._part(stage, self._above_floor)
                continue
            last = self._last_number(stage)
            for first in range(1, last + 1, self._most):
                numbers = f"f.{NUMBER} BETWEEN {first} AND {first + self._most - 1}"
                yield self._part(stage, f"{numbers} AND {self._above_floor}")

    def refuse_moved(self) -> None:
        """Raise TargetMismatchError where a row was in another partition before, so that its places don't order it."""
        plan = self._plan
        for stage in self._stages:
            for old in ("target", "tombstones") if plan.deleted_column is None else ("target",):
                part = _Part(
                    self._connection,
                    {**self._texts, "stage": stage, "part": self._above_floor, "old": self._texts[old]},
                )
                row = part.first(_MOVED)
                if row is not None:
                    raise stops.moved_row(plan, row[2:], row[0], row[1])

    def _last_number(self, stage: str) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT coalesce(max({NUMBER}), 0) FROM {stage}")
            ((last,),) = cursor.fetchall()
        return int(last)

    def _part(self, stage: str, condition: str) -> "_Part":
        kind = _Part if self._plan.deleted_column is None else _SoftPart
        return kind(self._connection, {**self._texts, "stage": stage, "part": condition})


class _Part:
    """Rows of one staging table that are merged at once."""

    def __init__(self, connection: MysqlConnection, texts: Mapping[str, str]) -> None:
        self._connection = connection
        self._texts = texts

    def merge(self, *, in_order: bool, empty: bool) -> tuple[int, int, int]:
        """Rows put, rows of the mirror that a delete removed, deletes applied: the counts of ``Merged``."""
        rows, puts = (int(count) for count in self.first(_COUNTS))
        deleted = self._run(_DELETE) if rows > puts and not empty else 0
        self._run(_REMOVE_TOMBSTONES if in_order else _REMOVE_TOMBSTONES + _OF_PUTS)
        upserted = 0
        if puts:
            upserted = puts if in_order else puts - int(self.first(_OLDER_PUTS)[0])
            self._put(in_order=in_order, empty=empty)
        tombstones = 0
        if rows > puts:
            tombstones = int(self.first(_NEW_DELETES)[0])
            self._run(_ADD_TOMBSTONES)
        return upserted, deleted, tombstones

    def _put(self, *, in_order: bool, empty: bool) -> None:
        if not in_order:
            self._run(_INSERT + _UNLESS_DELETED_LATER + _REPLACE_OLDER)
            return
        self._put_newer(_INSERT if empty else _INSERT + _REPLACE)

    def _put_newer(self, statement: str) -> None:
        try:
            self._run(statement)
        except Errors as error:
            if mysql_protocol.code_and_text(error)[0] != NULL_IN_KEY:
                raise
            raise TargetMismatchError(
                f"{self._texts['target']} has rows that are newer than every window that was loaded into it; "
                "who wrote them should have raised floor_ts in _ticdc_replay.tables. Load the window with `reload`, "
                "which compares with each row"
            ) from error

    def first(self, query: str) -> Any:
        """The first row of *query*, or None."""
        with self._connection.cursor() as cursor:
            cursor.execute(query.format(**self._texts))
            return cursor.fetchone()

    def _run(self, statement: str) -> int:
        with self._connection.cursor() as cursor:
            return int(cursor.execute(statement.format(**self._texts)))


class _SoftPart(_Part):
    """The same where deleted rows stay: each is a version as any other, marked, and there are no tombstones."""

    def merge(self, *, in_order: bool, empty: bool) -> tuple[int, int, int]:
        rows, puts = (int(count) for count in self.first(_COUNTS))
        if in_order:
            self._put_newer(_INSERT_ALL if empty else _INSERT_ALL + _REPLACE)
            return puts, 0, rows - puts
        older_puts, older_deletes = (int(count) for count in self.first(_OLDER_VERSIONS))
        self._run(_INSERT_ALL + _REPLACE_OLDER)
        return puts - older_puts, 0, rows - puts - older_deletes
