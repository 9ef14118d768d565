"""Attempts to load, and their staging tables: each is written down before it is made, with the attempt that it is of."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import ColumnDefinition, Relation
from ticdc_replay.targets.mysql import ledger_tables, locks
from ticdc_replay.targets.mysql.errors import LOCK_TIMEOUT, Errors, translated
from ticdc_replay.targets.mysql.ledger_tables import of_texts
from ticdc_replay.targets.mysql.server import MysqlConnection, Server, look
from ticdc_replay.targets.mysql.settings import MysqlSettings
from ticdc_replay.targets.mysql.tables import definition, fitting, sql_of
from ticdc_replay.targets.mysql.types import stage_type

log = logging.getLogger(__name__)

NUMBER = "n"
"""Column of a staging table that numbers its rows, so that they can be merged in parts."""
_STAGING = f"{LEDGER_SCHEMA}.staging"


@contextmanager
def attempt(settings: MysqlSettings, load: Load) -> Iterator[tuple[MysqlConnection, Server]]:
    """The connection of one attempt. It holds the attempt's lock, so it stays open while workers stage."""
    with translated("connect", settings.conn_id):
        connection = settings.connect()
    try:
        with translated("prepare the ledger", settings.conn_id):
            server = look(connection)
            ledger_tables.create(connection, server)
            # Held until the connection ends: the sign for other attempts that this one lives.
            locks.take(connection, _lock_of(load.attempt))
            _drop_dead_staging(connection, load.attempt)
            connection.commit()
        yield connection, server
    except BaseException:
        _drop_own_staging(connection, load)
        raise
    finally:
        if connection.open:
            connection.close()


def make_staging(
    connection: MysqlConnection,
    server: Server,
    load: Load,
    plan: TablePlan,
    defaults: Mapping[str, str],
    names: Sequence[str],
) -> None:
    """Make the staging tables *names*; see ``Session.make_staging``."""
    wanted = [ColumnDefinition(column.staged, column.type, defaults.get(column.target)) for column in plan.columns]
    make_tables(connection, server, load, plan.target, wanted, names)


def make_tables(
    connection: MysqlConnection,
    server: Server,
    load: Load,
    target: Relation,
    wanted: Sequence[ColumnDefinition],
    names: Sequence[str],
) -> None:
    """Make the staging tables *names* for *target*, with the columns *wanted*, whose types are those of rows."""
    staged = [ColumnDefinition(each.name, stage_type(each.type), each.default) for each in wanted]
    columns = [f"{NUMBER} bigint NOT NULL AUTO_INCREMENT PRIMARY KEY"]
    columns += [definition(server, column) for column in fitting(staged)]
    columns += [f"{VERSION} bigint NOT NULL", f"{identifier(PUT)} boolean NOT NULL"]
    for name in names:
        statement = f"CREATE TABLE {stage_name(name)} ({', '.join(columns)}) ENGINE = InnoDB {of_texts(server)}"
        make_table(connection, load, target, name, statement)


def make_table(connection: MysqlConnection, load: Load, target: Relation, name: str, statement: str) -> None:
    """Make the staging table *name* for *target* by *statement*."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_STAGING} (name, attempt, target_schema, target_table) VALUES (%s, %s, %s, %s)",
            (name, load.attempt, target.schema, target.table),
        )
        cursor.execute(statement)


def stage_name(name: str) -> str:
    """The staging table *name*, quoted."""
    return sql_of(Relation(LEDGER_SCHEMA, name))


def require_whole(connection: MysqlConnection, stages: Sequence[str], rows: int) -> None:
    """Raise TransientError if the staging tables have not as many *rows* as the workers reported."""
    found = 0
    with connection.cursor() as cursor:
        for name in stages:
            cursor.execute(f"SELECT count(*) FROM {stage_name(name)}")
            ((staged,),) = cursor.fetchall()
            found += staged
    if found != rows:
        raise TransientError(f"{found} rows are staged, and workers reported {rows}; try again")


def drop_staging(connection: MysqlConnection, names: Sequence[str]) -> None:
    """Drop the staging tables *names* and forget them, and the tasks of attempts without any. Ends the transaction."""
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP TABLE IF EXISTS {stage_name(name)}")
            cursor.execute(f"DELETE FROM {_STAGING} WHERE name = %s", (name,))
    connection.commit()
    with connection.cursor() as cursor:
        # Looked for without locks: those of other attempts, and notes that are not committed yet, are not waited for.
        cursor.execute(
            f"SELECT DISTINCT attempt FROM {LEDGER_SCHEMA}.tasks WHERE attempt NOT IN (SELECT attempt FROM {_STAGING})"
        )
        ended = cursor.fetchall()
        connection.commit()
        for attempt_ in ended:
            cursor.execute(f"DELETE FROM {LEDGER_SCHEMA}.tasks WHERE attempt = %s", attempt_)
            connection.commit()


def _drop_dead_staging(connection: MysqlConnection, own: str) -> None:
    """Drop the staging tables that ended attempts left. One that a worker still holds is left for a later load."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT attempt, name FROM {_STAGING} WHERE attempt <> %s", (own,))
        found = cursor.fetchall()
        connection.commit()
        if not found:
            return
        cursor.execute("SET SESSION lock_wait_timeout = 2")
        for attempt_, name in found:
            with locks.locked(connection, _lock_of(attempt_), wait_s=0) as is_dead:
                if is_dead:
                    _drop_unless_held(connection, name)
        cursor.execute("SET SESSION lock_wait_timeout = 300")


def _drop_unless_held(connection: MysqlConnection, name: str) -> None:
    try:
        drop_staging(connection, [name])
    except Errors as error:
        if mysql_protocol.code_and_text(error)[0] != LOCK_TIMEOUT:
            raise
        connection.rollback()
        log.warning("staging table %s of an attempt that ended is still in use; a later load drops it", name)


def _drop_own_staging(connection: MysqlConnection, load: Load) -> None:
    """Drop the staging of this attempt if the connection still works; else the next attempt does."""
    try:
        connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT name FROM {_STAGING} WHERE attempt = %s", (load.attempt,))
            own = [name for (name,) in cursor.fetchall()]
        drop_staging(connection, own)
    except Errors as error:
        log.warning("staging of attempt %s is left for the next load to drop: %s", load.attempt, error)


def _lock_of(attempt_: str) -> str:
    return f"attempt {attempt_}"
