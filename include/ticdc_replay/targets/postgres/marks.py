"""The marks of loads that have begun in a mirror's database: table ``generations`` of the ledger's schema."""

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark, refuse_superseded, wants_any
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA

Connection = psycopg.Connection[Any]

Marks = frozenset[Mark]

_PUT: LiteralString = """
INSERT INTO {schema}.generations AS old
(pipeline, target, from_ts, to_ts, selection_hash, selection, generation, run_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline, target, from_ts, to_ts, selection_hash) DO UPDATE
SET generation = excluded.generation, run_hash = excluded.run_hash, began_at = now()
WHERE old.generation <= excluded.generation
"""
_NEWER: LiteralString = """
SELECT from_ts, to_ts, selection, generation, run_hash FROM {schema}.generations
WHERE (pipeline, target) = (%s, %s) AND from_ts < %s AND to_ts > %s AND generation > %s
"""


def leave(connection: Connection, load: Load, tables: Sequence[TableName]) -> Marks:
    """Leave the mark of *load*, in the transaction before its rows are staged; what is newer in overlapping windows.

    *tables* are those that it is to apply rows to. Raises SupersededError where a newer run of the window, or of a source's, has
    begun with one.
    """
    newer = _newer(connection, load)
    refuse_superseded(load, newer, tables)
    own = Mark.of(load)
    named = (canonical.hash_of(own.selection), list(own.selection))
    connection.execute(
        _sql(_PUT),
        [*_place(load), own.window.from_ts, own.window.to_ts, *named, own.generation, own.run_hash],
    )
    return newer


def look_again(connection: Connection, load: Load, table: TableName, seen: Marks) -> None:
    """Return if *load* may still apply its rows of *table*; in the transaction that applies them. *seen* is what ``leave`` gave.

    Raises SupersededError where a newer run of the window, or of a source's, has begun. Otherwise windows with other bounds say
    nothing of each other, but an old load must not come after one that began later: TransientError, as a load that begins now
    is the later one.
    """
    newer = _newer(connection, load)
    refuse_superseded(load, newer, [table])
    for mark in newer - seen:
        if mark.generation > load.generation and wants_any(mark, [table]):
            raise TransientError(
                f"target {load.target}: a newer run, {mark.run_hash} of the overlapping window {mark.window}, has begun to load "
                f"{table} while this load staged its rows; try again"
            )


def _newer(connection: Connection, load: Load) -> Marks:
    """The marks in overlapping windows that are newer than *load*, or than the rows that it takes from one of them."""
    window = load.index.window
    known = min([load.generation, *(source.generation for source in load.sources)])
    rows = connection.execute(_sql(_NEWER), [*_place(load), window.to_ts, window.from_ts, known])
    return frozenset(Mark(Window(row[0], row[1]), tuple(row[2]), row[3], row[4]) for row in rows)


def _place(load: Load) -> tuple[str, str]:
    return load.index.pipeline, load.target


def _sql(text: LiteralString) -> sql.Composed:
    return sql.SQL(text).format(schema=sql.Identifier(LEDGER_SCHEMA))
