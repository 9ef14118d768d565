"""The marks of loads that have begun in a mirror's database: table ``generations`` of the ledger's schema.

A mark is about the mirrors that its load may write to, whatever the target is called: those of the tables that its patterns fit,
in the target's ``schema`` or in that of the upstream's table. So a target that was renamed, and two that load one mirror, heed
each other; two in one database that are called alike and have other mirrors don't.
"""

from collections.abc import Sequence
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark, refuse_superseded, wants_any
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA, fit
from ticdc_replay.targets.postgres.plan import TablePlan
from ticdc_replay.targets.postgres.section import PostgresTarget

Connection = psycopg.Connection[Any]


class _Placed(NamedTuple):
    """A mark, and the schema of the mirrors it is about; empty for that of each upstream's table."""

    mark: Mark
    schema: str

    def reaches(self, plan: TablePlan) -> bool:
        """Whether the load that left the mark would write to the mirror of *plan*, had it rows of that."""
        return (self.schema or fit(plan.source.schema)) == plan.target.schema


Marks = frozenset[_Placed]

_PUT: LiteralString = """
INSERT INTO {schema}.generations AS old
(pipeline, target, mirror_schema, from_ts, to_ts, selection_hash, selection, generation, run_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline, mirror_schema, from_ts, to_ts, selection_hash) DO UPDATE
SET target = excluded.target, generation = excluded.generation, run_hash = excluded.run_hash, began_at = now()
WHERE old.generation <= excluded.generation
"""
_NEWER: LiteralString = """
SELECT from_ts, to_ts, selection, generation, run_hash, mirror_schema FROM {schema}.generations
WHERE pipeline = %s AND from_ts < %s AND to_ts > %s AND generation > %s AND (mirror_schema IS NOT NULL OR target = %s)
"""
"""Of marks by an older version, without ``mirror_schema``, those of targets that are called so."""


def leave(connection: Connection, load: Load, config: PostgresTarget, plans: Sequence[TablePlan]) -> Marks:
    """Leave the mark of *load*, in the transaction before its rows are staged; what is newer in overlapping windows.

    *plans* are those of the tables that it is to apply rows to. Raises SupersededError where a newer run of the window, or of a
    source's, has begun with one.
    """
    newer = _newer(connection, load, config)
    for plan in plans:
        _refuse(load, newer, plan)
    own = Mark.of(load)
    named = (canonical.hash_of(own.selection), list(own.selection))
    connection.execute(
        _sql(_PUT),
        [
            *(load.index.pipeline, load.target, place_of(config)),
            *(own.window.from_ts, own.window.to_ts, *named, own.generation, own.run_hash),
        ],
    )
    return newer


def place_of(config: PostgresTarget) -> str:
    """The schema of the mirrors that a load with *config* writes to; empty for that of each upstream's table."""
    return "" if config.db_schema is None else fit(config.db_schema)


def look_again(connection: Connection, load: Load, config: PostgresTarget, plan: TablePlan, seen: Marks) -> None:
    """Return if *load* may still apply its rows to the mirror of *plan*; in the transaction that applies them. *seen* is what
    ``leave`` gave.

    Raises SupersededError where a newer run of the window, or of a source's, has begun. Otherwise windows with other bounds say
    nothing of each other, but an old load must not come after one that began later: TransientError, as a load that begins now
    is the later one.
    """
    newer = _newer(connection, load, config)
    _refuse(load, newer, plan)
    for mark, _ in (each for each in newer - seen if each.reaches(plan)):
        if mark.generation > load.generation and wants_any(mark, [plan.source]):
            raise TransientError(
                f"target {load.target}: a newer run, {mark.run_hash} of the overlapping window {mark.window}, has begun to load "
                f"{plan.source} while this load staged its rows; try again"
            )


def _refuse(load: Load, newer: Marks, plan: TablePlan) -> None:
    refuse_superseded(load, [each.mark for each in newer if each.reaches(plan)], [plan.source])


def _newer(connection: Connection, load: Load, config: PostgresTarget) -> Marks:
    """The marks in overlapping windows that are newer than *load*, or than the rows that it takes from one of them."""
    window = load.index.window
    known = min([load.generation, *(source.generation for source in load.sources)])
    rows = connection.execute(
        _sql(_NEWER), [load.index.pipeline, window.to_ts, window.from_ts, known, load.target]
    ).fetchall()
    return frozenset(
        _Placed(
            Mark(Window(row[0], row[1]), tuple(row[2]), row[3], row[4]), place_of(config) if row[5] is None else row[5]
        )
        for row in rows
    )


def _sql(text: LiteralString) -> sql.Composed:
    return sql.SQL(text).format(schema=sql.Identifier(LEDGER_SCHEMA))
