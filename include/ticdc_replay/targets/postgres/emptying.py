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
from ticdc_replay.targets.postgres.types import holds

Connection = psycopg.Connection[Any]


def after_emptying(connection: Connection, plan: TablePlan, observed: Observed) -> Observed:
    """The mirror as ``empty`` will leave it."""
    if plan.emptied is None or not _can_empty(plan, observed):
        return observed
    left_empty = _is_left_empty(connection, plan)
    if _is_dropped(plan, observed, left_empty):
        return Observed(None, _after_raising(plan, observed.state), True)
    gone, narrowed = _of_another_table(plan, observed)
    found = observed.found and msgspec.structs.replace(
        observed.found,
        columns=tuple(
            msgspec.structs.replace(column, type=narrowed.get(column.name, column.type))
            for column in observed.found.columns
            if column.name not in gone
        ),
    )
    return Observed(found, _after_raising(plan, observed.state), left_empty)


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
        return [f"TRUNCATE {plan.target}", *_leave_columns(connection, plan, observed)]
    removed = connection.execute(
        sql.SQL("DELETE FROM {} WHERE {} < {}").format(
            plan.target.sql, sql.Identifier(plan.version_column), sql.Literal(plan.floor_ts)
        )
    ).rowcount
    text = f"DELETE of {removed} rows up to {plan.emptied.commit_ts} from {plan.target}, which has newer ones"
    return [text, *_leave_columns(connection, plan, observed)]


def _of_another_table(plan: TablePlan, observed: Observed) -> tuple[list[str], dict[str, str]]:
    """What the mirror has of the table that the name stood for before: columns that are gone, types that are narrower now.

    Only where the definition of the new one is known from newer windows.
    """
    found, state, emptied = observed.found, observed.state, plan.emptied
    if found is None or state is None or emptied is None or not 0 < emptied.form_ts < state.whole_ts:
        return [], {}
    known = {column: state.columns[column.name] for column in found.columns if column.name in state.columns}
    gone = [column.name for column, each in known.items() if each.commit_ts <= emptied.form_ts]
    narrowed = {
        column.name: each.type
        for column, each in known.items()
        if column.name not in gone and column.type != each.type and holds(column.type, each.type)
    }
    return gone, narrowed


def _leave_columns(connection: Connection, plan: TablePlan, observed: Observed) -> list[str]:
    """Take the columns and types of the older table from the mirror; what was done, for people."""
    gone, narrowed = _of_another_table(plan, observed)
    for name in gone:
        connection.execute(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(plan.target.sql, sql.Identifier(name)))
    for name, type_name in narrowed.items():
        connection.execute(
            sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(
                plan.target.sql, sql.Identifier(name), mirror_table.type_sql(type_name)
            )
        )
    dropped = [f"DROP COLUMN {name}" for name in gone]
    return dropped + [f"ALTER COLUMN {name} TYPE {type_name}" for name, type_name in narrowed.items()]


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
