"""The form of a mirror by the time of definitions: how a window fits a mirror that other windows have formed.

Windows come in any order, so neither the newest load nor the catalogue shows the upstream's form. Of two definitions
the newer one, by commitTs, gives a column its type, and the older one must fit. A column that the newer one lacks was
dropped in between. Only DDL that stops, or made another table or column of the name, and is not loaded, causes a conflict.
"""

from collections.abc import Iterator
from typing import Literal

from ticdc_replay.config.target_rules import REBUILD
from ticdc_replay.domain.tables import folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, KnownColumn, TableState
from ticdc_replay.targets.mirror.planning.window_ddl import FormColumn

Fit = Literal["unknown", "fits", "apart", "left out"]
"""``unknown``: the ledger has no definition to compare with. ``apart``: rows of both definitions can't share the mirror.
``left out``: the mirror stands for a newer definition, and the window has no value for the column."""


def fit_of(plan: TablePlan, column: FormColumn, state: TableState | None) -> Fit:
    """How *column*, one of the form of *plan*, fits the definition that the mirror stands for."""
    if state is None or not column.declared:
        return "unknown"
    needed = column.in_rows or any(added.target == column.target and added.fill is not None for added in plan.added)
    unneeded: Fit = "apart" if needed else "left out"
    known = state.columns.get(column.target)
    is_kept = folded(column.target) in plan.kept  # newer definitions lack it, and the mirror does not
    if is_kept and known is None:
        return "unknown"
    if known is None or (not is_kept and known.commit_ts < state.whole_ts and not known.in_rows and column.in_rows):
        # A newer definition lacks it, also if its ADD is known. Values from before would stay under the old name.
        return unneeded if column.commit_ts < state.whole_ts else "unknown"
    if column.since > known.commit_ts:
        return "apart"  # the one that the mirror has was dropped or renamed before
    if column.commit_ts < known.since:
        return unneeded
    if column.commit_ts < known.commit_ts:
        return "fits" if plan.dialect.holds(known.type, column.type) else unneeded
    if column.commit_ts > known.commit_ts:
        both = plan.dialect.wider(known.type, column.type)
        return "apart" if both is None else "fits"
    return "fits" if plan.dialect.holds(known.type, column.type) else "unknown"


def wanted(plan: TablePlan, state: TableState | None) -> tuple[FormColumn, ...]:
    """The columns that the mirror needs for the window."""
    return tuple(column for column in plan.form if fit_of(plan, column, state) != "left out")


def columns_to_make(plan: TablePlan, state: TableState | None) -> dict[str, str]:
    """The columns of a mirror to be made, by name, with their types: also those from DDL of other windows."""
    known = state.columns if state is not None else {}
    columns: dict[str, str] = {}
    for column in wanted(plan, state):
        other = known.get(column.target)
        newer = other is not None and other.commit_ts > column.commit_ts and plan.dialect.holds(other.type, column.type)
        columns[column.target] = other.type if newer and other is not None else column.type
    for name, other in known.items():
        if other.commit_ts > plan.whole_ts:
            columns.setdefault(name, other.type)
    return columns


def to_note(plan: TablePlan, state: TableState | None) -> dict[str, KnownColumn]:
    """What the ledger is to know of the columns of *plan*."""
    return {
        column.target: KnownColumn(column.type, column.commit_ts, column.in_rows, column.in_key, column.since)
        for column in wanted(plan, state)
        if column.declared
    }


def conflicts(plan: TablePlan, state: TableState | None, table: FoundTable | None) -> Iterator[str]:
    """What sets the definition of the window apart from that of the mirror, *table*, one line each."""
    if state is None:
        return
    for column in plan.form:
        if fit_of(plan, column, state) == "apart":
            recorded = state.columns.get(column.target)
            other = ("lacking", state.whole_ts) if recorded is None else (recorded.type, recorded.commit_ts)
            yield _line(plan, state, column.target, column.type, column.commit_ts, *other)
    if table is None or not plan.whole_ts or not plan.columns:
        return
    own_columns = {column.target for column in plan.form}
    for name, known in state.columns.items():
        is_kept = folded(name) in plan.kept
        if name not in own_columns and not is_kept and known.in_rows and known.commit_ts <= plan.whole_ts:
            yield _line(plan, state, name, "lacking", plan.whole_ts, known.type, known.commit_ts)
    key = sorted(column.target for column in plan.key)
    known_key = sorted(name for name, known in state.columns.items() if known.in_key)
    if state.whole_ts and known_key and known_key == sorted(table.primary_key) and known_key != key:
        texts = [f"({', '.join(names)})" for names in (key, known_key)]
        yield _line(plan, state, "the key", texts[0], plan.whole_ts, texts[1], state.whole_ts)


def is_explained(plan: TablePlan, state: TableState | None, name: str) -> bool:
    """Whether the mirror may have the column *name* that the window lacks: DDL added it later, rows have never had it, or the
    mirror keeps it."""
    if folded(name) in plan.kept:
        return True
    known = state.columns.get(name) if state is not None else None
    return known is not None and (known.commit_ts > plan.whole_ts or not known.in_rows)


def _line(plan: TablePlan, state: TableState, what: str, own: str, own_ts: int, other: str, other_ts: int) -> str:
    subject = what if what == "the key" else f"the column {what}"
    between = " and ".join(map(describe, sorted((own_ts, other_ts))))
    text = (
        f"{plan.source}: {subject} is {own} in this window and {other} in its mirror: it changed by a DDL between {between}. "
        "Load the windows between them first: the one with the DDL says what to do"
    )
    if own_ts < other_ts:
        text += f"; where it stops, {REBUILD}, and not before the mirror's newest row, {describe(state.newest_ts)}"
    return text
