"""Databases that the upstream dropped, remembered for tables that get a mirror later: ``dropped_databases`` of the ledger.

A DROP DATABASE names no table: the mirrors follow it that are there when its window is loaded. A mirror that is made later, by
an older window or by a floor that a person sets, finds it here, and is what it would be, had it been there: so a note counts for
the mirrors that its load may write to, as ``marks`` do, and a newer run of the window replaces it, also by nothing. A mirror that
is forgotten is not told of it any more before the window is loaded again.
"""

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.decode.filter import TableFilter
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.database_ddl import dropped_databases
from ticdc_replay.targets.postgres import marks
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA, fit
from ticdc_replay.targets.postgres.plan import TablePlan, target_of
from ticdc_replay.targets.postgres.section import PostgresTarget

Connection = psycopg.Connection[Any]

_LOCK = 0x7469636464
"""Advisory lock: shared by transactions that make a mirror, alone to one that notes what was dropped."""

_REPLACE: LiteralString = """
DELETE FROM {schema}.dropped_databases
WHERE (pipeline, mirror_schema, from_ts, to_ts, selection) = (%s, %s, %s, %s, %s) AND generation <= %s
AND (run_hash = %s OR window_run <> %s)
"""
_KEEP: LiteralString = """
UPDATE {schema}.dropped_databases SET generation = %s
WHERE (pipeline, mirror_schema, from_ts, to_ts, selection, window_run) = (%s, %s, %s, %s, %s, %s) AND generation < %s
"""
"""What a run and re-drives of its quarantine have noted stays where one of them is loaded again: mirrors keep their rows, too."""
_NOTE: LiteralString = """
INSERT INTO {schema}.dropped_databases
(pipeline, mirror_schema, from_ts, to_ts, selection, generation, run_hash, window_run, schema_name, floor_ts)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_FOUND: LiteralString = """
SELECT d.floor_ts, d.selection, (
    SELECT json_agg(m.selection) FROM {schema}.generations m
    WHERE (m.pipeline, m.from_ts, m.to_ts) = (d.pipeline, d.from_ts, d.to_ts) AND m.generation > d.generation
    AND m.mirror_schema = ANY(%(places)s)
)
FROM {schema}.dropped_databases d
WHERE d.pipeline = ANY(%(pipelines)s) AND d.schema_name = ANY(%(names)s)
AND (d.mirror_schema IS NULL OR d.mirror_schema = ANY(%(places)s)) AND %(mirror)s <> ALL(d.forgotten)
AND NOT (d.pipeline = %(pipeline)s AND coalesce((d.from_ts, d.to_ts) = (%(from_ts)s, %(to_ts)s), false)
    AND d.window_run <> %(window_run)s)
ORDER BY d.floor_ts DESC
"""
"""Of notes by an older version, without ``mirror_schema``, it is not known which mirrors and which window they are about."""
_FORGET: LiteralString = """
UPDATE {schema}.dropped_databases SET forgotten = array_append(forgotten, %(mirror)s)
WHERE schema_name = ANY(%(names)s) AND (mirror_schema IS NULL OR mirror_schema = ANY(%(places)s))
AND %(mirror)s <> ALL(forgotten)
"""


def note(connection: Connection, load: Load, config: PostgresTarget) -> None:
    """Note the databases that the window of *load* drops, before the mirrors are looked up that are told of it, in place of what
    an older run of it has noted.

    Waits for transactions that make a mirror: those that end before are looked up, those that begin later find the note.
    """
    index = load.index
    dropped = dropped_databases(index)
    if dropped:
        connection.execute("SET LOCAL lock_timeout = '5min'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    window, run = index.window, _window_run(index)
    place = [index.pipeline, marks.place_of(config), window.from_ts, window.to_ts, sorted(load.selection)]
    own = [*place, load.generation, index.run_hash, run]
    connection.execute(_sql(_REPLACE), own)
    connection.execute(_sql(_KEEP), [load.generation, *place, run, load.generation])
    floors = {
        name: window.to_ts if index.order == "place" else commit_ts + 1 for name, commit_ts in sorted(dropped.items())
    }
    with connection.cursor() as cursor:
        cursor.executemany(_sql(_NOTE), [(*own, *floor) for floor in floors.items()])


def floor_of(connection: Connection, load: Load, config: PostgresTarget, table: TableName) -> int:
    """Below which commitTs (TSO) rows of *table*, which has no mirror yet, went with their database; 0 where none was dropped.

    Of its own window *load* knows what its run dropped: of other runs nothing counts. Of a window by offset that has both rows
    and the DDL nothing tells which came first: that is for its own DDL to stop.
    """
    index = load.index
    by_place = index.order == "place" and bool(load.versions(table))
    run = "" if by_place else _window_run(index)
    return _floor(connection, index.pipeline, config, table, (index.window.from_ts, index.window.to_ts, run))


def floor_of_new(connection: Connection, pipeline: str, config: PostgresTarget, table: TableName) -> int:
    """The same for the transaction that makes the mirror of *table* without a load."""
    _share(connection)
    return _floor(connection, pipeline, config, table, (0, 0, ""))


def look_again(connection: Connection, load: Load, config: PostgresTarget, plan: TablePlan) -> None:
    """Raise TransientError where *plan* was made with something else in mind than is known by now; in the transaction that makes
    its mirror."""
    _share(connection)
    if floor_of(connection, load, config, plan.source) != plan.dropped_ts:
        raise TransientError(
            f"whether the database of {plan.source} was dropped is told otherwise by a window that was loaded while this load "
            "staged its rows; try again"
        )


def forget(connection: Connection, config: PostgresTarget, table: TableName) -> None:
    """Have nothing that is noted by now count for the mirror of *table*."""
    connection.execute(_sql(_FORGET), _of_mirror(config, table))


def _floor(
    connection: Connection, pipeline: str, config: PostgresTarget, table: TableName, own: tuple[int, int, str]
) -> int:
    """What is noted for *table*; of the pipeline's window in *own* (TSO) by loads of the run in *own* alone."""
    found = connection.execute(
        _sql(_FOUND),
        {
            **_of_mirror(config, table),
            "pipelines": [pipeline, *config.same_upstream_as],
            **dict(zip(("pipeline", "from_ts", "to_ts", "window_run"), (pipeline, *own), strict=True)),
        },
    )
    for floor_ts, selection, newer in found:
        is_for = selection is None or _wants(selection, table)
        if is_for and not any(_wants(patterns, table) for patterns in newer or ()):
            return int(floor_ts)
    return 0


def _of_mirror(config: PostgresTarget, table: TableName) -> dict[str, Any]:
    """What tells the notes that may be about the mirror of *table*; see ``marks`` for its places."""
    target = target_of(config, table)
    places = [target.schema, ""] if fit(table.schema) == target.schema else [target.schema]
    return {"mirror": str(target), "places": places, "names": [folded(table.schema), ""]}


def _wants(patterns: Sequence[str], table: TableName) -> bool:
    return TableFilter(patterns).wants(table.schema, table.table)


def _window_run(index: ChangelogIndex) -> str:
    """The run of the window that *index* is of, or adds to."""
    return index.redrives or index.run_hash


def _share(connection: Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])


def _sql(text: LiteralString) -> sql.Composed:
    return sql.SQL(text).format(schema=sql.Identifier(LEDGER_SCHEMA))
