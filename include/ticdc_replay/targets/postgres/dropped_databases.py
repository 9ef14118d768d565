"""Databases that the upstream dropped, remembered for tables that get a mirror later: ``dropped_databases`` of the ledger.

A DROP DATABASE names no table: the mirrors follow it that are there when its window is loaded. A table whose first rows come
with an older window that is loaded after it finds it here.
"""

from typing import Any

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.config import PostgresTarget
from ticdc_replay.targets.database_ddl import dropped_databases
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.plan import TablePlan

Connection = psycopg.Connection[Any]

_LOCK = 0x7469636464
"""Advisory lock: shared by transactions that make a mirror, alone to one that notes what was dropped."""

_NOTE = """
INSERT INTO {}.dropped_databases AS old (pipeline, schema_name, floor_ts) VALUES (%s, %s, %s)
ON CONFLICT (pipeline, schema_name) DO UPDATE SET floor_ts = greatest(old.floor_ts, excluded.floor_ts)
"""
_FLOOR = "SELECT max(floor_ts) FROM {}.dropped_databases WHERE pipeline = ANY(%s) AND schema_name = ANY(%s)"


def note(connection: Connection, load: Load) -> None:
    """Note the databases that the window of *load* drops, before the mirrors are looked up that are told of it.

    Waits for transactions that make a mirror: those that end before are looked up, those that begin later find the note.
    """
    dropped = dropped_databases(load.index)
    if not dropped:
        return
    by_place = load.index.order == "place"
    rows = [
        (load.index.pipeline, schema, load.index.window.to_ts if by_place else commit_ts + 1)
        for schema, commit_ts in sorted(dropped.items())
    ]
    connection.execute("SET LOCAL lock_timeout = '5min'")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    with connection.cursor() as cursor:
        cursor.executemany(sql.SQL(_NOTE).format(sql.Identifier(LEDGER_SCHEMA)), rows)


def floor_of(connection: Connection, load: Load, config: PostgresTarget, table: TableName) -> int:
    """Below which commitTs (TSO) rows of *table*, which has no mirror yet, went with their database; 0 where none was dropped.

    Of a window by offset that has both rows and the DDL nothing tells which came first: that is for its own DDL to stop.
    """
    row = connection.execute(
        sql.SQL(_FLOOR).format(sql.Identifier(LEDGER_SCHEMA)),
        [[load.index.pipeline, *config.same_upstream_as], [folded(table.schema), ""]],
    ).fetchone()
    floor_ts = row[0] if row is not None and row[0] is not None else 0
    own = load.index.order == "place" and floor_ts == load.index.window.to_ts and bool(load.versions(table))
    return 0 if own else floor_ts


def look_again(connection: Connection, load: Load, config: PostgresTarget, plan: TablePlan) -> None:
    """Raise TransientError where the database of *plan* was dropped since the plan was made; in the transaction that makes its
    mirror."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])
    if floor_of(connection, load, config, plan.source) > plan.floor_ts:
        raise TransientError(
            f"the database of {plan.source} was dropped by a window that was loaded while this load staged its rows; try again"
        )
