"""What the DROPs and RENAMEs of a window do to the columns of a mirror that is there, or partly made so by a broken load."""

from collections.abc import Callable, Iterable

import msgspec

from ticdc_replay.config.target_rules import REBUILD
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.mirror.planning.column_events import ColumnEvents
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeDefault,
    ColumnEvent,
    ColumnMove,
    FillColumn,
    FoundTable,
    MirrorStep,
    Observed,
    RemoveColumn,
    RenameColumn,
    TableState,
    first_since,
)


def moves_to(plan: TablePlan, observed: Observed) -> tuple[list[ColumnMove], Observed]:
    """What the mirror has to follow of *plan* that it does not know yet, in order, and the mirror after it.

    Raises PolicyStopError if DDL of windows that were not loaded lies between a DROP or RENAME and what the mirror has.
    """
    moves: list[ColumnMove] = []
    state, found = observed.state, observed.found
    known = state.events if state is not None else ()
    later = ColumnEvents(known)
    everything = ColumnEvents((*plan.events, *(each.event for each in plan.moved)))
    arrived: set[tuple[int, str, str]] = set()
    for event in (each.event for each in plan.moved if not each.event.is_in(known)):
        to = None
        if event.to is not None:
            now = later.now(event.to, event.commit_ts)
            # If another column takes the name later, perhaps this window shows what became of this one.
            if now.unseen_ts or (now.name is not None and _is_newer(plan.dialect.fit_column(now.name), event, state)):
                now = everything.now(event.to, event.commit_ts)
            if now.unseen_ts:
                raise _apart(plan, event, event.to, now.unseen_ts)
            to = None if now.name is None else plan.dialect.fit_column(now.name)
        is_there = later.now(event.name, event.commit_ts).name is not None
        column = _name_in(found, plan.dialect.fit_column(event.name)) if is_there else None
        if to is not None and (event.since, folded(event.name), to) in arrived:
            column = to  # an event of this window has brought it to its last name
        if event.keeps and column is not None:
            to = column  # as the mirror spells it
        names = {each.name for each in found.columns} if found is not None else set()
        was_kept = any(each.key == event.key and each.keeps for each in known)
        step = None
        if column in names and column != to and (was_kept or _is_older(column, event, state)):
            step = _step(column, to)
        if step is not None and was_kept and state is not None and event.commit_ts < state.form_floor_ts:
            raise _kept_below_floor(plan, event, column)
        is_concerned = step is not None or (event.keeps and column in names)
        if is_concerned and column is not None and _ended_before(column, event, state):
            raise _apart(plan, event, column, event.since)
        if to in names - {column} and (step is not None or _is_older(to, event, state)):
            if step is None or not _came_by(to, event, state):
                raise _apart(plan, event, to, event.commit_ts)
            if state is None or column not in state.columns or state.columns[column].in_rows:
                raise PolicyStopError(
                    f"{plan.source} at {describe(event.commit_ts)}: the column {event.name} was renamed, and its mirror has "
                    f"values in both {column} and {to}: {REBUILD}"
                )
            # All values came by the new name.
            step = MirrorStep(RemoveColumn(column), f"DROP COLUMN {column}")
        stays = step is None and column in names - {to} and _may_be_older(column, event, state)
        move = ColumnMove(event, column, to, step, stays=stays)
        if to is not None and event.to is not None:
            arrived.add((event.commit_ts, folded(event.to), to))
        after_move = state and state.after(move)
        if state is not None and after_move is not None and to in names:
            move = msgspec.structs.replace(move, fills=_fills(plan, to, state, after_move))
        moves.append(move)
        state = after_move
        found = found and after(found, move)
    return moves, Observed(found, state, lambda: observed.empty)


def refuse_mixed(plan: TablePlan, moves: Iterable[ColumnMove], has_rows_between: Callable[[int, int], bool]) -> None:
    """Raise PolicyStopError if one of *moves* leaves values of its column in a newer one of the name. *has_rows_between*
    two versions (both exclusive) looks at the mirror."""
    lines = [
        f"{plan.source} at {describe(move.event.commit_ts)}: the column {move.event.name} was {_what(move.event)}, and its "
        f"mirror has rows from before and later ones, with values of both in {move.column}: {REBUILD}, and not before the "
        "mirror's newest row"
        for move in moves
        if move.stays and has_rows_between(plan.next_floor_ts - 1, move.event.commit_ts + 1)
    ]
    if lines:
        raise PolicyStopError("\n".join(lines))


def _fills(plan: TablePlan, column: str, before: TableState, state: TableState) -> tuple[MirrorStep, ...]:
    """For a *column* of the mirror whose ADD was known by another name: rows from before it lack what they show."""
    added = state.added_columns.get(column)
    if added is None or added.fill is None or added == before.added_columns.get(column):
        return ()
    text = f"UPDATE {column} = {added.fill} in rows up to {added.commit_ts}"
    fill = FillColumn(column, added.fill, plan.version_column, added.commit_ts)
    return MirrorStep(fill, text), MirrorStep(ChangeDefault(column, added.fill))


def _step(column: str, to: str | None) -> MirrorStep:
    if to is None:
        return MirrorStep(RemoveColumn(column), f"DROP COLUMN {column}")
    return MirrorStep(RenameColumn(column, to), f"RENAME COLUMN {column} TO {to}")


def after(found: FoundTable, move: ColumnMove) -> FoundTable:
    """*found* once the step of *move* is done."""
    columns = found.columns
    match move.step.action if move.step is not None else None:
        case RemoveColumn(gone):
            columns = tuple(column for column in columns if column.name != gone)
        case RenameColumn(name, to):
            columns = tuple(
                msgspec.structs.replace(column, name=to) if column.name == name else column for column in columns
            )
    return msgspec.structs.replace(found, columns=columns)


def _name_in(found: FoundTable | None, name: str) -> str:
    """*name* as the mirror spells it: DDL of a table of unknown definition may do so in another letter case."""
    names = [column.name for column in found.columns] if found is not None else []
    return next((each for each in names if folded(each) == folded(name)), name) if name not in names else name


def _is_older(column: str, event: ColumnEvent, state: TableState | None) -> bool:
    """Whether *column* of the mirror is the one of *event*, not one that has the name by later DDL."""
    known = state.columns.get(column) if state is not None else None
    newest_ts = known.commit_ts if known is not None else state.newest_ts - 1 if state is not None else 0
    return newest_ts < event.commit_ts


def _is_newer(column: str, event: ColumnEvent, state: TableState | None) -> bool:
    """Whether *column* of the mirror is one that took the name after the one of *event*."""
    known = state.columns.get(column) if state is not None else None
    return known is not None and known.since > event.commit_ts


def _came_by(column: str, event: ColumnEvent, state: TableState | None) -> bool:
    """Whether *column* of the mirror is the one that *event* gave its name, of a window from after it."""
    known = state.columns.get(column) if state is not None else None
    return known is not None and known.since == event.commit_ts


def _ended_before(column: str | None, event: ColumnEvent, state: TableState | None) -> bool:
    """Whether *column* of the mirror is another one, which ended before the one of *event* took the name."""
    known = state.columns.get(column) if state is not None and column is not None else None
    if known is None or state is None:
        return False
    return known.commit_ts < first_since(state.events, event.name, event.since)


def _may_be_older(column: str | None, event: ColumnEvent, state: TableState | None) -> bool:
    """Whether *column* of the mirror, of a definition from after *event*, may be the one that *event* took away."""
    known = state.columns.get(column) if state is not None and column is not None else None
    return known is None or known.since < event.commit_ts


def _what(event: ColumnEvent) -> str:
    return "dropped" if event.to is None else "renamed"


def _kept_below_floor(plan: TablePlan, event: ColumnEvent, column: str | None) -> PolicyStopError:
    """A person may have brought another table to this name since: then the column is not the one that was kept."""
    return PolicyStopError(
        f"{plan.source}: the upstream has another column {event.name} than the one that {plan.target} keeps since it was dropped "
        f"at {describe(event.commit_ts)}, below the mirror's floor. Drop the column {column} of the mirror and load again; if it "
        "is the other column already, as after a RENAME TABLE by hand, delete the entry in column_events of the ledger instead"
    )


def _apart(plan: TablePlan, event: ColumnEvent, name: str, unseen_ts: int) -> PolicyStopError:
    return PolicyStopError(
        f"{plan.source} at {describe(event.commit_ts)}: the column {event.name} was {_what(event)}, and the mirror's column "
        f"{name} is another one, of a DDL that is not loaded, up to {describe(unseen_ts)}. Load the windows between them first; "
        f"where these ask for this one, {REBUILD}"
    )
