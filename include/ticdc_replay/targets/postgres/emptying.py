"""Has a mirror follow a TRUNCATE or DROP of its table: what was there before it goes, and comes back with no older window."""

from typing import Any

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.targets.postgres import mirror_table
from ticdc_replay.targets.postgres.catalog import find_table
from ticdc_replay.targets.postgres.identifiers import Relation
from ticdc_replay.targets.postgres.ledger import TableState
from ticdc_replay.targets.postgres.mirror_table import Observed
from ticdc_replay.targets.postgres.plan import TablePlan

Connection = psycopg.Connection[Any]


def after_emptying(connection: Connection, plan: TablePlan, observed: Observed) -> Observed:
    """The mirror as ``empty`` will leave it."""
    if plan.emptied is None or not _can_empty(plan, observed):
        return observed
    left_empty = _is_left_empty(connection, plan)
    if _is_dropped(plan, observed, left_empty):
        return Observed(None, _after_raising(plan, observed.state), True)
    return Observed(observed.found, _after_raising(plan, observed.state), left_empty)


def _after_raising(plan: TablePlan, state: TableState | None) -> TableState | None:
    """What ``ledger.raise_floor`` will leave of *state*."""
    return state and msgspec.structs.replace(
        state,
        added_columns={name: each for name, each in state.added_columns.items() if each.commit_ts >= plan.floor_ts},
        columns={name: each for name, each in state.columns.items() if each.commit_ts >= plan.form_floor_ts},
        whole_ts=state.whole_ts if state.whole_ts >= plan.form_floor_ts else 0,
    )


def empty(connection: Connection, plan: TablePlan, observed: Observed) -> list[str]:
    """Have the mirror follow the TRUNCATE or DROP of the window: no row or tombstone from before it is left.

    What was done, for people. The table itself goes where it was dropped upstream and has no newer rows, so that it is made anew
    as the next one of that name is.
    """
    if plan.emptied is None or not _can_empty(plan, observed):
        return []
    left_empty = _is_left_empty(connection, plan)
    if _is_dropped(plan, observed, left_empty):
        for relation in (plan.target, mirror_table.tombstones(plan)):
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(relation.sql))
        return [f"DROP TABLE {plan.target}"]
    clear_tombstones(connection, mirror_table.tombstones(plan), plan.version_column, plan.floor_ts)
    if left_empty:
        connection.execute(sql.SQL("TRUNCATE {}").format(plan.target.sql))
        return [f"TRUNCATE {plan.target}"]
    removed = connection.execute(
        sql.SQL("DELETE FROM {} WHERE {} < {}").format(
            plan.target.sql, sql.Identifier(plan.version_column), sql.Literal(plan.floor_ts)
        )
    ).rowcount
    return [f"DELETE of {removed} rows up to {plan.emptied.commit_ts} from {plan.target}, which has newer ones"]


def clear_tombstones(connection: Connection, relation: Relation, version_column: str, floor_ts: int) -> None:
    """Drop the tombstones below *floor_ts* (TSO), of no use any more; the whole table where no other is left."""
    found = find_table(connection, relation)
    if found is None or found.column(version_column) is None:
        return
    version, floor = sql.Identifier(version_column), sql.Literal(floor_ts)
    connection.execute(sql.SQL("DELETE FROM {} WHERE {} < {}").format(relation.sql, version, floor))
    row = connection.execute(sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(relation.sql)).fetchone()
    if row is not None and row[0]:
        connection.execute(sql.SQL("DROP TABLE {}").format(relation.sql))


def _is_left_empty(connection: Connection, plan: TablePlan) -> bool:
    """Whether what empties the table in the window leaves no row in its mirror, which exists."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} >= {})").format(
        plan.target.sql, sql.Identifier(plan.version_column), sql.Literal(plan.floor_ts)
    )
    row = connection.execute(query).fetchone()
    return row is not None and not row[0]


def _can_empty(plan: TablePlan, observed: Observed) -> bool:
    """Whether the mirror is one that loads have made, of this table; of another one ``steps_to`` tells the differences."""
    found, state = observed.found, observed.state
    version = found.column(plan.version_column) if found is not None and found.is_table else None
    return version is not None and version.type == "bigint" and state is not None and state.source == plan.source


def _is_dropped(plan: TablePlan, observed: Observed, left_empty: bool) -> bool:
    """Whether the mirror goes. Not where newer windows were loaded before this one: they have followed later DDL."""
    state, emptied = observed.state, plan.emptied
    return (
        state is not None and emptied is not None and emptied.dropped and left_empty and state.newest_ts < plan.floor_ts
    )
