"""Lets a mirror follow a TRUNCATE or DROP of its table: older rows go, and no older window brings them back."""

import msgspec

from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeType,
    ColumnMove,
    MirrorStep,
    Observed,
    RemoveColumn,
    TableState,
    events_above,
)
from ticdc_replay.targets.mirror.session import Session


def rows_before_creation(session: Session, plan: TablePlan, observed: Observed) -> list[str]:
    """Errors if the mirror has rows from before the table's CREATE TABLE in the window; else empty."""
    if plan.created_ts is None or plan.order == "place" or observed.state is None or observed.empty:
        return []
    gone_to = plan.emptied.commit_ts if plan.emptied is not None else -1
    if not session.has_rows_between(plan.target, plan.version_column, gone_to, plan.created_ts):
        return []
    return [
        f"{plan.source} at {describe(plan.created_ts)}: a table of this name, in whatever letter case, was created, though its "
        "mirror has rows from before; the DROP or RENAME that ended the older table was not seen: load the window that has it, "
        "or delete the rows up to this commitTs"
    ]


def after_emptying(session: Session, plan: TablePlan, observed: Observed) -> Observed:
    """The mirror as ``empty`` will leave it."""
    if plan.emptied is None or not _can_empty(plan, observed):
        return observed
    left_empty = _is_left_empty(session, plan)
    if _is_dropped(plan, observed, left_empty):
        return Observed(None, _after_raising(plan, observed.state), lambda: True)
    gone, narrowed = _of_another_table(plan, observed)
    found = observed.found and msgspec.structs.replace(
        observed.found,
        columns=tuple(
            msgspec.structs.replace(column, type=narrowed.get(column.name, column.type))
            for column in observed.found.columns
            if column.name not in gone
        ),
    )
    return Observed(found, _after_raising(plan, observed.state), lambda: left_empty)


def _after_raising(plan: TablePlan, state: TableState | None) -> TableState | None:
    """What ``ledger.raise_floor`` will leave of *state*."""
    return state and msgspec.structs.replace(
        state,
        added_columns={name: each for name, each in state.added_columns.items() if each.commit_ts >= plan.floor_ts},
        columns={name: each for name, each in state.columns.items() if each.commit_ts >= plan.form_floor_ts},
        whole_ts=state.whole_ts if state.whole_ts >= plan.form_floor_ts else 0,
        events=events_above(state.events, plan.form_floor_ts),
    )


def empty(session: Session, plan: TablePlan, observed: Observed) -> list[str]:
    """Let the mirror follow the TRUNCATE or DROP of the window: no older row or tombstone is left; what was done.

    The table is dropped if the upstream dropped it and it has no newer rows, so that the next one is made from scratch.
    """
    if plan.emptied is None or not _can_empty(plan, observed):
        return []
    left_empty = _is_left_empty(session, plan)
    if _is_dropped(plan, observed, left_empty):
        session.drop_mirror(plan)
        for event in observed.state.events if observed.state is not None else ():
            if event.keeps:  # another table may take the name
                session.ledger.note_column_event(plan.target, ColumnMove(event.dropped, None, None))
        return [f"DROP TABLE {plan.target}"]
    session.clear_tombstones(plan.target, plan.tombstones, plan.version_column, plan.floor_ts)
    if left_empty:
        session.truncate(plan.target, plan.version_column, plan.floor_ts)
        return [f"TRUNCATE {plan.target}", *_leave_columns(session, plan, observed)]
    removed = session.delete_below(plan.target, plan.version_column, plan.floor_ts)
    text = f"DELETE of {removed} rows up to {plan.emptied.commit_ts} from {plan.target}, which has newer ones"
    return [text, *_leave_columns(session, plan, observed)]


def _of_another_table(plan: TablePlan, observed: Observed) -> tuple[list[str], dict[str, str]]:
    """Leftovers in the mirror from the table that had the name before: columns that are gone, types that are narrower
    now. Only if newer windows gave the definition of the new table."""
    found, state, emptied = observed.found, observed.state, plan.emptied
    if found is None or state is None or emptied is None or not 0 < emptied.form_ts < state.whole_ts:
        return [], {}
    known = {column: state.columns[column.name] for column in found.columns if column.name in state.columns}
    gone = [column.name for column, each in known.items() if each.commit_ts <= emptied.form_ts]
    narrowed = {
        column.name: each.type
        for column, each in known.items()
        if plan.dialect.narrows
        and column.name not in gone
        and column.type != each.type
        and plan.dialect.holds(column.type, each.type)
    }
    return gone, narrowed


def _leave_columns(session: Session, plan: TablePlan, observed: Observed) -> list[str]:
    """Remove columns and types of the older table from the mirror; returns what was done."""
    gone, narrowed = _of_another_table(plan, observed)
    steps = [MirrorStep(RemoveColumn(name), f"DROP COLUMN {name}") for name in gone]
    steps += [MirrorStep(ChangeType(*each), "ALTER COLUMN {} TYPE {}".format(*each)) for each in narrowed.items()]
    for step in steps:
        session.change(plan.target, step)
    return [step.text for step in steps]


def _is_left_empty(session: Session, plan: TablePlan) -> bool:
    """Whether what empties the table in the window leaves no row in its mirror, which exists."""
    return not session.has_rows_from(plan.target, plan.version_column, plan.floor_ts)


def _can_empty(plan: TablePlan, observed: Observed) -> bool:
    """Whether the mirror is one that loads have made, of this table; for another one ``steps_to`` lists the differences."""
    found, state = observed.found, observed.state
    version = found.column(plan.version_column) if found is not None and found.is_table else None
    return version is not None and version.type == "bigint" and state is not None and state.source == plan.source


def _is_dropped(plan: TablePlan, observed: Observed, left_empty: bool) -> bool:
    """Whether the mirror goes. Not where newer windows were loaded before this one: they have followed later DDL."""
    state, emptied = observed.state, plan.emptied
    return (
        state is not None and emptied is not None and emptied.dropped and left_empty and state.newest_ts < plan.floor_ts
    )
