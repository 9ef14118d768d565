"""Attempts to load, and their staging tables: each is written down before it is made, with the lock that its attempt holds."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import ColumnDefinition, Relation
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.ledger_tables import CREATE_LOCK, LONG_WAIT, SHORT_WAIT, create, in_ledger
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.tables import PgConnection, definition
from ticdc_replay.targets.postgres.types import stage_type

log = logging.getLogger(__name__)


@contextmanager
def attempt(settings: PostgresSettings, load: Load) -> Iterator[PgConnection]:
    """The connection of one attempt. It holds the attempt's lock, so it stays open while workers stage."""
    with translated("connect", settings.conn_id):
        connection = settings.connect()
    try:
        with translated("prepare the ledger", settings.conn_id):
            _require_utf8(connection)
            create(connection)
            # Held until the connection ends: the sign for other attempts that this one lives.
            connection.execute("SELECT pg_advisory_lock(%s)", [lock_of(load.attempt)])
            _drop_dead_staging(connection)
            connection.commit()
        yield connection
    except BaseException:
        _drop_own_staging(connection, load)
        raise
    finally:
        connection.close()


def make_staging(
    connection: PgConnection, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]
) -> None:
    """Make the staging tables *names*; see ``Session.make_staging``."""
    wanted = [ColumnDefinition(column.staged, column.type, defaults.get(column.target)) for column in plan.columns]
    make_tables(connection, load, plan.target, wanted, names)


def make_tables(
    connection: PgConnection, load: Load, target: Relation, wanted: Sequence[ColumnDefinition], names: Sequence[str]
) -> None:
    """Make the staging tables *names* for *target*, with the columns *wanted*, whose types are those of rows."""
    columns = [definition(ColumnDefinition(each.name, stage_type(each.type), each.default)) for each in wanted]
    columns.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(VERSION), sql.Identifier(PUT)))
    for name in names:
        statement = sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(
            sql.Identifier(LEDGER_SCHEMA, name), sql.SQL(", ").join(columns)
        )
        make_table(connection, load, target, name, statement)


def make_table(connection: PgConnection, load: Load, target: Relation, name: str, statement: sql.Composed) -> None:
    """Make the staging table *name* for *target* by *statement*."""
    connection.execute(
        in_ledger(
            "INSERT INTO {schema}.staging (name, attempt_lock, target_schema, target_table) VALUES (%s, %s, %s, %s)"
        ),
        [name, lock_of(load.attempt), target.schema, target.table],
    )
    connection.execute(statement)


def drop_staging(connection: PgConnection, names: Sequence[str]) -> None:
    """Drop the staging tables *names* and forget them, and the tasks of attempts without any."""
    for name in names:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(LEDGER_SCHEMA, name)))
    connection.execute(in_ledger("DELETE FROM {schema}.staging WHERE name = ANY(%s)"), [list(names)])
    connection.execute(
        in_ledger("DELETE FROM {schema}.tasks WHERE attempt_lock NOT IN (SELECT attempt_lock FROM {schema}.staging)")
    )


def _drop_dead_staging(connection: PgConnection) -> None:
    """Drop the staging tables that ended attempts left. One that a worker still holds is left for a later load."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
    dead = connection.execute(
        in_ledger("SELECT name FROM {schema}.staging WHERE pg_try_advisory_xact_lock(attempt_lock)")
    ).fetchall()
    connection.execute(SHORT_WAIT)
    for (name,) in dead:
        try:
            with connection.transaction():
                drop_staging(connection, [name])
        except psycopg.errors.LockNotAvailable:
            log.warning("staging table %s of an attempt that ended is still in use; a later load drops it", name)
    connection.execute(LONG_WAIT)


def _drop_own_staging(connection: PgConnection, load: Load) -> None:
    """Drop the staging of this attempt if the connection still works; else the next attempt does."""
    try:
        connection.rollback()
        own = connection.execute(
            in_ledger("SELECT name FROM {schema}.staging WHERE attempt_lock = %s"), [lock_of(load.attempt)]
        ).fetchall()
        drop_staging(connection, [name for (name,) in own])
        connection.commit()
    except psycopg.Error as error:
        log.warning("staging of attempt %s is left for the next load to drop: %s", load.attempt, error)


def lock_of(attempt_: str) -> int:
    """The advisory lock of an attempt: a signed 64-bit number out of its random name."""
    return int.from_bytes(bytes.fromhex(attempt_)[:8], signed=True)


def _require_utf8(connection: PgConnection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise TargetMismatchError(
            f"database {connection.info.dbname!r} has the encoding {encoding}; a mirror needs UTF8 to hold every text unaltered"
        )
