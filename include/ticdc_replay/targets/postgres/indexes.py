"""Indexes of a mirror without room for a row: they are dropped, since rows matter more."""

import logging
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import sql

from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.postgres.tables import PgConnection, sql_of

log = logging.getLogger(__name__)
Result = TypeVar("Result")

_ORDINARY_INDEX = """
WITH refused AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
), whole AS (SELECT coalesce(pg_catalog.pg_partition_root(oid), oid) AS oid FROM refused)
SELECT n.nspname, c.relname FROM whole
JOIN pg_catalog.pg_index i ON i.indexrelid = whole.oid AND NOT i.indisunique AND NOT i.indisexclusion
JOIN pg_catalog.pg_class c ON c.oid = whole.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
"""The index of a name; of one that belongs to a partition that of the whole table. No row where it is a constraint."""


def making_room(connection: PgConnection, dropped: list[str], change: Callable[[], Result]) -> Result:
    """What *change* returns, which changes a mirror table in the transaction of *connection*. If a row does not fit an
    index, that is dropped, with a line in *dropped*, and *change* is repeated. Raises what *change* raises, also for an
    index that is a constraint."""
    while True:
        try:
            with connection.transaction():
                return change()
        except psycopg.errors.ProgramLimitExceeded as error:
            dropped.append(_drop_index(connection, error))


def _drop_index(connection: PgConnection, error: psycopg.errors.ProgramLimitExceeded) -> str:
    """Drop the index that *error* names; a line that says it. Raises *error* where it names none that may go."""
    schema, name = error.diag.schema_name, error.diag.constraint_name
    found = connection.execute(_ORDINARY_INDEX, [schema, name]).fetchone() if schema and name else None
    if found is None:
        raise error
    index = Relation(*found)
    log.warning("the index %s is dropped: a row has more than fits an entry (%s)", index, error.diag.message_primary)
    connection.execute(sql.SQL("DROP INDEX {}").format(sql_of(index)))
    return f"DROP INDEX {index.table}: a row has more than fits an entry"
