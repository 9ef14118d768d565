"""Brings a mirror table to the form of a plan: makes it, adds and widens columns, or reports what does not fit."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.mirror.planning import form
from ticdc_replay.targets.mirror.planning.table_plan import PlannedPiece, TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeDefault,
    ChangeType,
    ColumnDefinition,
    CreateIndex,
    FillColumn,
    FoundColumn,
    FoundTable,
    MakeColumn,
    MakeTable,
    MirrorStep,
    Observed,
    Relation,
    TableState,
)
from ticdc_replay.targets.mirror.planning.window_ddl import AddedColumn, FormColumn, WidenedColumn

HISTORY_COLUMNS = frozenset({"_op", "_commit_time", "_absent", "_ddl"})
"""Columns that every history has, beside those of its upstream's table."""


def unfollowed_changes(plan: TablePlan, observed: Observed) -> list[str]:
    """The changes of the window that a mirror can't or, by policy, may not follow, one line each."""
    lines = [*plan.stops]
    known = observed.state.events if observed.state is not None else ()
    key = observed.found.primary_key if observed.found is not None else ()
    for moved in plan.moved:
        if not moved.event.is_in(known) and plan.dialect.fit_column(moved.event.name) in key:
            lines += moved.stops
    for column in new_columns(plan, observed.state):
        older_rows = plan.created_ts is None or any(column.target not in _targets(plan, piece) for piece in plan.pieces)
        if older_rows if column.computed else observed.found is not None:
            lines += column.stops
    if observed.found is not None:
        for widened in plan.widened:
            if not _has_followed(plan, widened, observed.found, observed.state):
                lines += widened.stops
    return list(dict.fromkeys(lines))


def _has_followed(plan: TablePlan, widened: WidenedColumn, found: FoundTable, state: TableState | None) -> bool:
    column = found.column(widened.target)
    return (
        state is not None
        and state.schema_ts >= widened.commit_ts
        and column is not None
        and plan.dialect.holds(column.type, widened.type)
    )


def steps_to(plan: TablePlan, observed: Observed) -> list[MirrorStep]:
    """The steps that give the mirror table the form of *plan*, in order; none if it fits or there is nothing to hold.

    *observed* is the mirror after ``moved_columns.moves_to``.

    Raises TargetMismatchError with every difference that no DDL explains, and PolicyStopError if DDL of windows that
    were not loaded separates the definitions of the window and the mirror.
    """
    if plan.conflicts:
        raise _mismatch(plan, list(plan.conflicts))
    apart = [*plan.unseen, *form.conflicts(plan, observed.state, observed.found)]
    if apart:
        raise PolicyStopError("\n".join(apart))
    if observed.found is not None:
        return _alter(plan, observed, observed.found)
    return list(_create(plan, observed.state)) if plan.columns else []


def _alter(plan: TablePlan, observed: Observed, table: FoundTable) -> list[MirrorStep]:
    differences = list(_differences(plan, table, observed.state))
    if observed.state is None and not observed.empty:
        differences.append(
            f"it has rows that no load has brought, of unknown age; say up to which commitTs they are "
            f"complete: ticdc-replay mirror floor <pipeline> {plan.source} --at <TSO or time> "
            "--holds-all-rows"
        )
    steps: list[MirrorStep] = []
    for column in form.wanted(plan, observed.state):
        found = table.column(column.target)
        if found is None:
            if folded(column.target) in plan.kept:
                steps += _add_kept(plan, column, observed.state)
            elif _may_add(plan, column, observed):
                steps.append(_add_column(plan, column, observed.state))
            else:
                differences.append(f"column {column.target} {column.type} is missing")
        elif not plan.dialect.holds(found.type, column.type):
            if _may_widen(plan, column, observed.state) and plan.dialect.holds(column.type, found.type):
                steps.append(
                    MirrorStep(
                        ChangeType(column.target, column.type), f"ALTER COLUMN {column.target} TYPE {column.type}"
                    )
                )
            elif not _is_newer_in_mirror(column, found, observed.state):
                differences.append(f"column {column.target} is {found.type}, {column.type} is needed")
    if plan.order == "place":
        differences += _unfillable(plan, observed.state, table)
    if differences:
        raise _mismatch(plan, differences)
    return [*steps, *_fill_older_rows(plan, observed, table)]


def build_again(source: TableName) -> str:
    """How a person has the mirror of *source* filled anew. Its windows alone do not bring what a base load did."""
    return (
        f"build the mirror again: `ticdc-replay mirror rebuild <pipeline> {source}`. If that is refused, drop the table, run "
        f"`ticdc-replay mirror forget <pipeline> {source}`, seed it if a base load has filled it, and load its windows again"
    )


def refuse_lost(plan: TablePlan, observed: Observed) -> None:
    """Raise TargetMismatchError if the mirror table had rows and no longer exists. Not if all of them are below the
    floor, as after a DROP TABLE that somebody followed."""
    state = observed.state
    if observed.found is None and state is not None and state.needs_table:
        raise TargetMismatchError(
            f"target table {plan.target}, with rows up to {describe(state.newest_ts)}, was dropped: {build_again(plan.source)}. "
            "If `ticdc-replay mirror follow` broke while it renamed tables, run it again instead"
        )


def refuse_history(plan: TablePlan, observed: Observed) -> None:
    """Raise TargetMismatchError if the table is a history, which a load in another mode has made: its windows and rows are no
    mirror's."""
    if observed.found is None:
        return
    known = {
        *(column.target for column in plan.columns),
        *(observed.state.columns if observed.state is not None else ()),
    }
    if {column.name for column in observed.found.columns} - known >= HISTORY_COLUMNS:
        raise TargetMismatchError(
            f"target table {plan.target} is a history of {plan.source}: give the target back its `mode`, or give it another "
            f"`schema`; or drop the table, run `ticdc-replay mirror forget <pipeline> {plan.source}`, and load its windows again"
        )


def refuse_others(target: Relation, state: TableState, pipeline: str, same_upstream: Collection[str]) -> None:
    """Raise TargetMismatchError if *target* is another pipeline's mirror, not declared to have the same upstream."""
    if state.pipeline != pipeline and state.pipeline not in same_upstream:
        raise TargetMismatchError(
            f"target table {target} is a mirror of pipeline {state.pipeline}. Give this target another `schema`; or, where "
            f"both pipelines replay the same upstream cluster, name {state.pipeline} in `same_upstream_as` of the target"
        )


def refuse_shaped(target: Relation, state: TableState, pipeline: str) -> None:
    """Raise TargetMismatchError if another pipeline loads *target* with a shape: only its artefacts record what is masked."""
    if state.shaped_by is not None and state.shaped_by != pipeline:
        raise TargetMismatchError(
            f"target table {target} has a `shape`, by which pipeline {state.shaped_by} loads it. No other pipeline can load it, "
            "not even with the same one: give this target another `schema`, or leave the table out here; or drop the table and "
            "run `ticdc-replay mirror forget`, and this pipeline loads it alone"
        )


def one_name(source: TableName) -> str:
    """What a person does where a database takes the name of *source*, which it mirrors, for that of another table."""
    return (
        "to this database they are one name. Load a window that ends where the name changes its letter case, drop the mirror, "
        f"run `ticdc-replay mirror forget <pipeline> {source}`, and load the windows of the new spelling"
    )


def refuse_other_deletes(target: Relation, source: TableName, state: TableState, deleted_column: str | None) -> None:
    """Raise TargetMismatchError if *target* keeps deleted rows in another way than in *deleted_column*, None for not at all:
    what it has of deletes is in rows, or in its tombstones."""
    if state.deleted_column != deleted_column:

        def words(column: str | None) -> str:
            return "`deletes: hard`" if column is None else f"`deletes: soft` with `deleted_column: {column}`"

        raise TargetMismatchError(
            f"target table {target} was made with {words(state.deleted_column)}, and the target has {words(deleted_column)}: "
            f"give that back, or {build_again(source)}"
        )


def _mismatch(plan: TablePlan, differences: list[str]) -> TargetMismatchError:
    return TargetMismatchError(
        f"target table {plan.target} does not fit {plan.source}:\n- "
        + "\n- ".join(differences)
        + "\nCorrect the table and raise its floor_ts where older rows must no longer be applied to it, give the table's "
        "definition in the pipeline (definitions) and pin the window again (repin) if only the wire gave its types, or "
        f"{build_again(plan.source)}"
    )


def default_of(plan: TablePlan, state: TableState | None, target: str) -> str | None:
    """What rows that lack the column *target* show, as an SQL literal; None for NULL, or without a loaded DDL."""
    for column in new_columns(plan, state):
        if column.target == target:
            return column.fill
    recorded = state.added_columns.get(target) if state is not None else None
    return recorded.fill if recorded is not None else None


class KeptColumn(NamedTuple):
    """A column of the mirror that the upstream has dropped: rows up to ``until_ts`` (TSO) have values of their own, or show
    ``fill``, an SQL literal (None for NULL), if they lack the column; later rows have NULL."""

    name: str
    until_ts: int
    fill: str | None


def kept_columns(plan: TablePlan, found: FoundTable, state: TableState | None) -> list[KeptColumn]:
    """The columns of the mirror *found* that it keeps."""
    return [
        KeptColumn(column.name, plan.kept[folded(column.name)], default_of(plan, state, column.name))
        for column in found.columns
        if folded(column.name) in plan.kept
    ]


def new_columns(plan: TablePlan, state: TableState | None) -> Iterator[AddedColumn]:
    """The ADD COLUMNs of the window that the mirror has not followed yet."""
    for column in plan.added:
        recorded = state.added_columns.get(column.target) if state is not None else None
        if recorded is None or recorded.commit_ts < column.commit_ts:
            yield column


def _targets(plan: TablePlan, piece: PlannedPiece) -> set[str]:
    staged = {column.staged for column in piece.columns}
    return {column.target for column in plan.columns if column.staged in staged}


def _is_older(plan: TablePlan, state: TableState | None) -> bool:
    """Whether the mirror has followed DDL that came after the newest rows of the window."""
    return state is not None and plan.moment < state.schema_ts


def _is_newer_in_mirror(column: FormColumn, found: FoundColumn, state: TableState | None) -> bool:
    known = state.columns.get(column.target) if state is not None else None
    return known is not None and known.commit_ts > column.commit_ts and found.type == known.type


def _may_add(plan: TablePlan, column: FormColumn, observed: Observed) -> bool:
    """A column is added where a DDL of this window or, for a mirror that loads have made, of another window explains it."""
    if any(added.target == column.target for added in plan.added):
        return True
    return observed.state is not None and (observed.empty or plan.schema_ts > 0)


def _may_widen(plan: TablePlan, column: FormColumn, state: TableState | None) -> bool:
    known = state.columns.get(column.target) if state is not None else None
    if known is not None and column.declared:
        return column.commit_ts > known.commit_ts
    if any(widened.target == column.target for widened in plan.widened):
        return True
    return state is not None and plan.schema_ts > 0 and not _is_older(plan, state)


def _differences(plan: TablePlan, found: FoundTable, state: TableState | None) -> Iterator[str]:
    if not found.is_table:
        yield "an index, a view or the like has its name: rename that (the key of a table t is called t_pkey)"
        return
    if state is not None and state.source != plan.source:
        yield f"it is the mirror of {state.source}"
    version = found.column(plan.version_column)
    if version is None or (version.type, version.not_null) != ("bigint", True):
        has = "missing" if version is None else version.type + (" NOT NULL" if version.not_null else "")
        yield f"column {plan.version_column} is {has}; bigint NOT NULL is needed"
    if plan.deleted_column is not None:
        deleted = found.column(plan.deleted_column)
        if deleted is None or (deleted.type, deleted.not_null) != (plan.dialect.boolean, True):
            has = "missing" if deleted is None else deleted.type + (" NOT NULL" if deleted.not_null else "")
            yield f"column {plan.deleted_column} is {has}; boolean NOT NULL is needed, false in rows that are not deleted"
    if state is not None and None not in (state.topic_id, plan.topic_id) and state.topic_id != plan.topic_id:
        yield (
            f"its rows are ordered by their place in the topic with id {state.topic_id}, and those of the window are of the "
            f"topic with id {plan.topic_id}: was the topic recreated, or the table sent to another one? Bring the table up to "
            f"date from the upstream, set {plan.version_column} to 0 in all its rows, empty {plan.tombstones}, and set "
            "topic_id to NULL and floor_ts to the window's start in _ticdc_replay.tables"
        )
    for name in found.cascades:
        yield (
            f"the foreign key {name} deletes or changes rows whenever a load replaces a row, by a DELETE and an INSERT: drop it, "
            "or make it NO ACTION and DEFERRABLE INITIALLY DEFERRED"
        )
    if not plan.columns:
        return
    key = [column.target for column in plan.key]
    if sorted(found.primary_key) != sorted(key):
        has = ", ".join(found.primary_key) or "none"
        yield f"the primary key is {has}; rows are identified by {', '.join(key)}"
    for name, columns in found.other_unique.items():
        yield (
            f"the unique index {name} ({', '.join(map(str, columns))}) can't stay unique while windows load in any order: "
            "make it an ordinary index"
        )
    wanted = {column.target for column in form.wanted(plan, state)}
    for column in found.columns:
        if column.name in wanted and column.generated:
            yield f"column {column.name} is generated"
        if column.name in wanted and column.loose:
            yield f"column {column.name} has a collation that takes different texts as equal"
        if column.name in wanted or column.name in (plan.version_column, plan.deleted_column):
            continue
        if not form.is_explained(plan, state, column.name) and not _is_older(plan, state):
            yield f"column {column.name} is not in the rows of the window"


def _create(plan: TablePlan, state: TableState | None) -> Iterator[MirrorStep]:
    columns = tuple(
        ColumnDefinition(name, type_name, default_of(plan, state, name))
        for name, type_name in form.columns_to_make(plan, state).items()
    )
    key = tuple(column.target for column in plan.key)
    make = MakeTable(columns, plan.version_column, key, plan.deleted_column)
    yield MirrorStep(make, f"CREATE TABLE {plan.target}")
    for unique in plan.unique_keys:
        yield MirrorStep(CreateIndex(unique))


def _add_column(plan: TablePlan, column: FormColumn, state: TableState | None) -> MirrorStep:
    default = default_of(plan, state, column.target)
    is_known = any(added.target == column.target for added in plan.added) or (
        state is not None and column.target in state.added_columns
    )
    text = f"ADD COLUMN {column.target} {column.type}" + (f" DEFAULT {default}" if default is not None else "")
    if not is_known and plan.schema_ts >= plan.floor_ts:
        text += "; what older rows show is filled in when the window of its DDL is loaded"
    return MirrorStep(MakeColumn(ColumnDefinition(column.target, column.type, default)), text)


def _add_kept(plan: TablePlan, column: FormColumn, state: TableState | None) -> Iterator[MirrorStep]:
    """Make a column that the upstream has dropped, for rows from before: rows from after its DROP show no default."""
    yield MirrorStep(
        MakeColumn(ColumnDefinition(column.target, column.type)), f"ADD COLUMN {column.target} {column.type}, kept"
    )
    recorded = state.added_columns.get(column.target) if state is not None else None
    added = next((each for each in new_columns(plan, state) if each.target == column.target), recorded)
    if added is not None and added.fill is not None:
        yield from _fill(plan, column.target, added.fill, added.commit_ts)


def _fill(plan: TablePlan, column: str, fill: str, until_ts: int) -> Iterator[MirrorStep]:
    yield MirrorStep(
        FillColumn(column, fill, plan.version_column, until_ts), f"UPDATE {column} = {fill} in rows up to {until_ts}"
    )
    yield MirrorStep(ChangeDefault(column, fill))


def _unfillable(plan: TablePlan, state: TableState | None, table: FoundTable) -> Iterator[str]:
    """As ``_fill_older_rows``, if nothing shows which rows are older than the DDL."""
    for column in new_columns(plan, state):
        if table.column(column.target) is not None and column.fill is not None:
            yield (
                f"column {column.target} came with a later window, and without commitTs nothing shows which rows are from before "
                f"its DDL and show {column.fill}: fill them by hand, then write the column down in _ticdc_replay.added_columns "
                f"with commit_ts {column.commit_ts}"
            )


def _fill_older_rows(plan: TablePlan, observed: Observed, table: FoundTable) -> Iterator[MirrorStep]:
    """For columns that a later window has brought before their DDL was loaded."""
    for column in new_columns(plan, observed.state):
        if table.column(column.target) is None or column.fill is None:
            continue
        yield from _fill(plan, column.target, column.fill, column.commit_ts)
