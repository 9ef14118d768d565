"""Applies staged rows to a mirror table, in one transaction.

Versions of one row are ordered by (commitTs, delete < put). A key is either in the mirror, with the commitTs of its
row, or in the tombstone table, with the commitTs of its delete: so an older version always meets the newer one. With
``deletes: soft`` a deleted row stays in the mirror, marked, with the commitTs of its delete, and there are no tombstones. A
version of equal commitTs overwrites, so a reload repairs. If not all rows carry a commitTs, their place in Kafka replaces it:
it orders rows of one partition, and a row found in another partition stops the load.
"""

from functools import partial

import msgspec

from ticdc_replay.domain.errors import PolicyStopError, TransientError
from ticdc_replay.domain.tables import folded
from ticdc_replay.targets.base import Load, TableReport, TargetColumn
from ticdc_replay.targets.mirror import base, dropped_databases, emptying, marks
from ticdc_replay.targets.mirror.marks import Marks
from ticdc_replay.targets.mirror.planning import differences, form, moved_columns
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeDefault,
    MirrorStep,
)
from ticdc_replay.targets.mirror.session import Merged, Session
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.shaped_load import require_unmoved


def commit_table(
    session: Session, load: Load, plan: TablePlan, staged: Staged, newer: Marks, config: MirrorSection
) -> TableReport:
    """Apply *staged* to the table of *plan*, after the DDL of the window, and write the ledger.

    If DDL at the window's end stops the load, the rows before it are applied and the window is not done; rows that such
    a load set aside, now below the floor, are reported again. Does nothing if the ledger has this window and run
    already. *newer* are the loads that were newer when this one began.

    Raises what ``marks.look_again`` and ``require_unmoved`` raise, and CommitStateUnknownError if the connection broke in the
    commit. Any other error leaves the table unchanged.
    """
    with session.translated(f"load {plan.target}"):
        session.begin_merge(plan.target)
        report = base.find_done(session, load, plan)
        if report is None:
            require_unmoved(load, config, plan.source)
            report = _apply(session, load, plan, staged, newer, config)
        session.drop_staging(staged.stages)
    session.commit_rows(plan.target)
    return report


def _apply(
    session: Session, load: Load, plan: TablePlan, staged: Staged, newer: Marks, config: MirrorSection
) -> TableReport:
    ledger, index = session.ledger, load.index
    marks.look_again(session, load, config, plan, newer)
    # Looked at again: another load or a person may have changed the table since this one began.
    observed = session.observe(plan.target)
    state = observed.state
    if state is not None:
        differences.refuse_others(plan.target, state, index.pipeline, config.same_upstream_as)
        differences.refuse_shaped(plan.target, state, index.pipeline)
        differences.refuse_other_deletes(plan.target, plan.source, state, plan.deleted_column)
        if base.floor_before(load, state).rows > max(plan.floor_ts, index.window.from_ts):
            raise TransientError(f"the floor of {plan.target} was raised while this load staged its rows; try again")
    else:
        dropped_databases.look_again(session, load, config, plan)
    if state is not None and not set(state.events) <= set(plan.events):
        raise TransientError(
            f"columns of {plan.target} were dropped or renamed while this load staged its rows; try again"
        )
    if state is not None and any(
        folded(name) in plan.kept and known.commit_ts > plan.kept[folded(name)] for name, known in state.columns.items()
    ):
        raise TransientError(f"a column of {plan.target} was added while this load staged its rows; try again")
    differences.refuse_lost(plan, observed)
    base.refuse(load, plan, observed)
    base.refuse_repeats(load, plan, staged)
    stops = differences.unfollowed_changes(plan, observed)
    stops += emptying.rows_before_creation(session, plan, observed)
    if stops:
        raise PolicyStopError("\n".join(stops))
    if plan.emptied is not None:  # what would stop the load after it is found before
        _, emptied = moved_columns.moves_to(plan, emptying.after_emptying(session, plan, observed))
        differences.steps_to(plan, emptied)
    told = emptying.empty(session, plan, observed)
    floor = base.floor_after(load, plan)
    if state is not None:
        observed = session.observe(plan.target)
        # The mirror has no rows any more that lack these columns. Before the floor: a load that breaks here does it again.
        for name in state.forgotten_by(floor.rows):
            if observed.found is not None and observed.found.column(name) is not None:
                session.change(plan.target, MirrorStep(ChangeDefault(name, None)))
        ledger.raise_floor(plan.target, floor.rows, floor.form)
        observed = session.observe(plan.target)
    moves, observed = moved_columns.moves_to(plan, observed)
    moved_columns.refuse_mixed(plan, moves, partial(session.has_rows_between, plan.target, plan.version_column))
    steps = differences.steps_to(plan, observed)
    made_meanwhile = state is not None and state.floor_ts < plan.floor_ts and plan.emptied is None
    if made_meanwhile and observed.found is not None:
        raise TransientError(f"{plan.target} was made by another load while this one staged its rows; try again")
    state = observed.state
    if state is None:
        ledger.add_table(
            plan.target,
            source=plan.source,
            pipeline=index.pipeline,
            tombstones=plan.tombstones,
            newest_ts=0,
            floor_ts=floor.rows,
            form_floor_ts=floor.form,
        )
        if plan.deleted_column is not None:
            ledger.note_deleted_column(plan.target, plan.deleted_column)
    if plan.source in load.shaped_tables:
        ledger.note_shape(plan.target, index.pipeline)
    if index.is_base:
        ledger.note_base(plan.target, index.run_hash)
    for move in moves:
        told += session.follow(plan.target, move)
    if plan.columns:
        session.create_schema(plan.target.schema)
    for step in steps:
        told += session.change(plan.target, step)
    for column in differences.new_columns(plan, state):  # also for a table that is made later
        ledger.note_added_column(plan.target, column.target, column.commit_ts, column.fill)
    ledger.note_form(plan.target, form.to_note(plan, state))
    ledger.raise_marks(
        plan.target, schema_ts=plan.schema_ts, whole_ts=plan.whole_ts, newest_ts=base.newest_after(load, staged)
    )
    if plan.topic_id is not None:
        ledger.note_topic(plan.target, plan.topic_id)
    found = session.find_table(plan.target)
    merged = Merged(staged)
    if staged.stages and found is not None:
        if plan.deleted_column is None:
            session.fit_tombstones(plan, found)
        if staged.is_direct:
            assert session.direct is not None, "rows were staged by it"
            told += session.direct.take(plan, staged, found, observed)
            merged = Merged(staged, upserted=staged.keys)
        else:
            newest_ts = state.newest_ts if state is not None else 0
            in_order = plan.order == "commit_ts" and staged.first_ts > newest_ts and not load.reload
            merged, gone = session.merge(load, plan, staged, found, in_order=in_order, observed=observed)
            staged = merged.staged
            told += gone
    report = TableReport(
        table=plan.source,
        outcome="stopped" if plan.last_stops else "loaded",
        destination=str(plan.target),
        fields=tuple(TargetColumn(column.name, column.type) for column in found.columns) if found is not None else (),
        events=staged.events,
        keys=staged.keys,
        folded=staged.events - plan.below_floor - staged.quarantined - staged.keys,
        upserted=merged.upserted,
        deleted=merged.deleted,
        tombstones=merged.tombstones,
        superseded=staged.keys - merged.upserted - merged.tombstones,
        quarantined=staged.quarantined,
        quarantine_files=staged.quarantine_files,
        below_floor=plan.below_floor,
        ddl=(*told, *(step.text for step in steps if step.text)),
        content=index.contents.get(str(plan.source), ""),
        commit=merged.commit,
    )
    if not load.reload:
        stopped = ledger.find_stopped(plan.target, index.window, index.run_hash)
        if stopped is not None:
            report = _with_set_aside(report, stopped)
    ledger.note_done(load, plan.target, report)
    return report


def _with_set_aside(report: TableReport, stopped: TableReport) -> TableReport:
    """*report* with what the load of the same changelog that was *stopped* had set aside, and this one did not look at."""
    carried = min(stopped.quarantined - report.quarantined, report.below_floor - stopped.below_floor)
    if carried <= 0:
        return report
    return msgspec.structs.replace(
        report,
        quarantined=report.quarantined + carried,
        quarantine_files=tuple(sorted({*stopped.quarantine_files, *report.quarantine_files})),
        below_floor=report.below_floor - carried,
    )
