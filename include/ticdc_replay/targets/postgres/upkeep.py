"""What a person tells a mirror: from when on rows count, or that it is to be built anew."""

from contextlib import closing
from typing import Any

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import FloorRaised, StoppedLoad
from ticdc_replay.targets.postgres import dropped_databases, emptying, ledger, mirror_table
from ticdc_replay.targets.postgres.catalog import FoundTable, find_table
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA, Relation, fit, tombstone_table
from ticdc_replay.targets.postgres.plan import target_of
from ticdc_replay.targets.postgres.section import PostgresTarget, is_reserved_schema
from ticdc_replay.targets.postgres.settings import PostgresSettings

Connection = psycopg.Connection[Any]


def floor_of(settings: PostgresSettings, config: PostgresTarget, table: TableName) -> int:
    """The floor (TSO) of the mirror of *table*; 0 where it has none."""
    target = _target(config, table)
    with translated(f"look up the floor of {target}", settings.conn_id), closing(settings.connect()) as connection:
        ledger.create(connection)
        state = ledger.state_of(connection, target)
        connection.commit()
    return state.floor_ts if state is not None else 0


def stopped_loads(
    settings: PostgresSettings, config: PostgresTarget, pipeline: str, table: TableName
) -> tuple[StoppedLoad, ...]:
    """The loads of *pipeline* into the mirror of *table* that DDL at their window's end stopped, oldest first."""
    target = _target(config, table)
    with translated(f"look up the loads of {target}", settings.conn_id), closing(settings.connect()) as connection:
        ledger.create(connection)
        found = ledger.stopped_loads(connection, target, pipeline)
        connection.commit()
    return found


def raise_floor(
    settings: PostgresSettings, config: PostgresTarget, pipeline: str, table: TableName, floor_ts: int
) -> FloorRaised:
    """Apply nothing below *floor_ts* (TSO) to the mirror of *table* any more, whether or not the mirror exists already.

    A floor is never lowered; one of a new mirror is not below a DROP of its database that loads have met. Raises TransientError
    when the database is away, TargetMismatchError for another pipeline's mirror.
    """
    target = _target(config, table)
    with translated(f"raise the floor of {target}", settings.conn_id), closing(settings.connect()) as connection:
        ledger.create(connection)
        ledger.lock_table(connection, target)
        state = ledger.state_of(connection, target)
        dropped_ts = 0
        if state is None:
            dropped_ts = dropped_databases.floor_of_new(connection, pipeline, config, table)
            ledger.add_table(
                connection,
                target,
                source=table,
                pipeline=pipeline,
                tombstones=_tombstones(target),
                newest_ts=_newest_ts(connection, target, config),
                floor_ts=max(floor_ts, dropped_ts),
                form_floor_ts=max(floor_ts, dropped_ts),
            )
        else:
            mirror_table.refuse_others(target, state, pipeline, config.same_upstream_as)
            ledger.raise_floor(connection, target, floor_ts, floor_ts)
            emptying.clear_tombstones(connection, state.tombstones, fit(config.commit_ts_column), floor_ts)
        connection.commit()
    if state is None:
        return FloorRaised(str(target), dropped_ts, max(floor_ts, dropped_ts))
    return FloorRaised(str(target), state.floor_ts, max(state.floor_ts, floor_ts), state.newest_ts)


def require_gone(settings: PostgresSettings, config: PostgresTarget, pipeline: str, table: TableName) -> None:
    """Raise what ``forget`` raises where it can't forget the mirror of *table*; what is known of the mirror stays."""
    target = _target(config, table)
    with translated(f"look for {target}", settings.conn_id), closing(settings.connect()) as connection:
        ledger.create(connection)
        connection.commit()
        _require_gone(connection, config, pipeline, target)


def forget(settings: PostgresSettings, config: PostgresTarget, pipeline: str, table: TableName) -> str:
    """Forget what was loaded into the mirror of *table*, which must be gone, so that its windows can be loaded again.

    The mirror's name. Raises ConfigError where the table is still there, and what ``raise_floor`` raises.
    """
    target = _target(config, table)
    with translated(f"forget {target}", settings.conn_id), closing(settings.connect()) as connection:
        ledger.create(connection)
        ledger.lock_table(connection, target)
        _require_gone(connection, config, pipeline, target)
        ledger.forget(connection, target, _tombstones(target))
        dropped_databases.forget(connection, config, table)
        connection.commit()
    return str(target)


def _require_gone(connection: Connection, config: PostgresTarget, pipeline: str, target: Relation) -> None:
    state = ledger.state_of(connection, target)
    if find_table(connection, target) is not None:
        raise ConfigError(f"{target} is still there: drop it first, then forget it")
    if state is not None:
        mirror_table.refuse_others(target, state, pipeline, config.same_upstream_as)


def _tombstones(target: Relation) -> Relation:
    return Relation(LEDGER_SCHEMA, tombstone_table(target.schema, target.table))


def _newest_ts(connection: Connection, target: Relation, config: PostgresTarget) -> int:
    """The newest commitTs (TSO) in a table that somebody has filled; 0 where there is none."""
    found: FoundTable | None = find_table(connection, target)
    name = fit(config.commit_ts_column)
    if found is None or found.column(name) is None:
        return 0
    query = sql.SQL("SELECT max({}) FROM {}").format(sql.Identifier(name), target.sql)
    row = connection.execute(query).fetchone()
    return row[0] if row is not None and row[0] is not None else 0


def _target(config: PostgresTarget, table: TableName) -> Relation:
    target = target_of(config, table)
    if is_reserved_schema(target.schema):
        raise PermanentError(
            f"{table}: the schema {target.schema} is reserved in PostgreSQL, so the table has no mirror"
        )
    return target
