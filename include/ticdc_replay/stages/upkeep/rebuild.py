"""Builds a mirror again out of changelogs: beside the old one, whose place it then takes. Kafka is not read.

What it takes is planned first (``rebuild_plan``). Each changelog is a load as any other, into the mirror beside
(``ReplaceableMirror.beside``), so that a rebuild which was killed goes on where it was. Loads into the old mirror go on
meanwhile: before the swap, whatever its ledger has and the new one lacks is loaded, too.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    ConfigError,
    PermanentError,
    PolicyStopError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import AbandonTask, CountDeletedTask, LoadJob, ReplaceTask, Series, WithdrawTask
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import Hold, holding_mirror
from ticdc_replay.stages.load.publish import coverage_of, last_load
from ticdc_replay.stages.set_aside import is_set_aside
from ticdc_replay.stages.upkeep import begun_rebuilds
from ticdc_replay.stages.upkeep.follow import ddl_at, follow_in
from ticdc_replay.stages.upkeep.mirror_jobs import Submit, needs_job, no_jobs, run_as_job
from ticdc_replay.stages.upkeep.rebuild_plan import (
    RebuildPlan,
    Source,
    plan_rebuild,
    replaceable,
    unrecorded_and_replaced,
)
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.targets.base import AppliedRun, LoadReport, Mirror, ReplaceableMirror, Replaced
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.shaped_load import begin_move, end_move, forget_shape, withdraw_move

log = logging.getLogger(__name__)

_ROUNDS = 10
"""How often windows are caught up that were loaded into the old mirror meanwhile."""
_LOADS_OF_A_DRIVER = 25
"""Into a lake: an error shows how far the loads came, and a repeat goes on there."""
Tell = Callable[[str], None]


class Rebuilt(msgspec.Struct, frozen=True):
    """A mirror that was built again."""

    table: str
    windows: int
    end_ts: int
    lost_indexes: tuple[str, ...]


def rebuild(
    context: ReplayContext,
    target: str,
    table: TableName,
    submit: Submit,
    tell: Tell,
    base: str | None = None,
    to_ts: int | None = None,
    *,
    without_deleted_rows: bool = False,
) -> Rebuilt:
    """Build the mirror of *table* in *target* again as ``plan_rebuild`` has it, and let it take the place of the old one.

    *submit* runs loads, *tell* shows progress. Until the swap the old mirror is as it was, and loads into it go on. Safe to
    repeat: what is loaded is not loaded again. Raises LeaseHeldError while another rebuild or a comparison of the mirror runs,
    and what ``plan_rebuild``, loads and ``ReplaceableMirror.replace`` raise; PolicyStopError also if the old mirror has windows
    that the new one can't have, or, but for *without_deleted_rows*, deleted rows (``deletes: soft``) from before its beginning.
    """
    mirror = replaceable(context, target)
    mirror.require_replaceable(context.pipeline.name, table)
    with holding_mirror(context.state.leases, mirror.config.place_of(table), "mirror rebuild") as hold:
        return _rebuild(context, mirror, target, table, hold, submit, tell, base, to_ts, without_deleted_rows)


def _rebuild(
    context: ReplayContext,
    mirror: ReplaceableMirror[Any],
    target: str,
    table: TableName,
    hold: Hold,
    submit: Submit,
    tell: Tell,
    base: str | None,
    to_ts: int | None,
    without_deleted_rows: bool,
) -> Rebuilt:
    """``rebuild``, while *hold* keeps others away."""
    also: set[str] = set()
    replaced_runs: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        plan = plan_rebuild(context, target, table, base, to_ts)
        plan = msgspec.structs.replace(plan, superseded=plan.superseded | replaced_runs)
        if _has_taken_over(context, mirror, target, table):  # in an attempt that broke after it, or by a load
            _clear(context, mirror, table, submit)
            return _end(context, mirror, target, plan)
        if not mirror.is_swapping(table):  # since an attempt that broke, and nothing is built before it has ended
            if not without_deleted_rows:
                _refuse_to_lose_deleted_rows(context, mirror, plan, submit)
            build_beside(context, mirror, target, plan, submit, tell, also)
        hold.verify()
        replaced = _replace(context, mirror, target, plan, submit)
        if not replaced.lacking:
            return _end(context, mirror, target, plan, replaced.lost)
        now = plan_rebuild(context, target, table, base, to_ts)
        known = now.superseded.union(source.run_hash for source in now.sources)
        replaced_runs |= unrecorded_and_replaced(context, mirror.config.place, table, replaced.lacking, known)
        unknown = [run for run in replaced.lacking if run.run_hash not in known | replaced_runs]
        if unknown:
            raise _held_only_by_the_old(context, mirror.config.place, table, unknown, to_ts)
        also |= {run.run_hash for run in replaced.lacking} - replaced_runs
        tell(f"{table}: {len(replaced.lacking)} windows were loaded meanwhile")
    raise TransientError(
        f"{table}: {_ROUNDS} times in a row windows were loaded while the rebuild caught up. Pause the pipeline's DAG, and "
        "run the command again: it goes on where it is"
    )


def build_beside(
    context: ReplayContext,
    mirror: ReplaceableMirror[Any],
    target: str,
    plan: RebuildPlan,
    submit: Submit,
    tell: Tell,
    also: Collection[str] = (),
    *,
    is_comparison: bool = False,
) -> None:
    """Bring what *plan* has into a mirror beside *mirror*, of *target*, which the caller holds. Safe to repeat. Runs of *also*
    are loaded although they seem to have nothing of the table. *is_comparison*: no rebuild needs it.

    Raises what loads raise, and ConfigError if a mirror beside was begun with another base.
    """
    if begun_rebuilds.of_table(context, target, plan.table) is None and mirror.applied_beside(plan.table):
        _remove(context, mirror, plan.table, submit)  # what an attempt to abandon it has left
    _require_same_beginning(mirror, plan)
    _end_replacing(context, mirror, target, plan.table)
    begun_rebuilds.note(context, target, plan.table, plan.begin_ts, is_comparison=is_comparison)
    tell(f"{plan.table}: from {plan.begins} to {describe(plan.end_ts)}, {len(plan.sources)} changelogs")
    _load(context, mirror, target, plan, submit, tell, also)


def abandon(context: ReplayContext, target: str, table: TableName, submit: Submit = no_jobs) -> bool:
    """Remove what a rebuild of *table* in *target* has left; whether there was anything. The mirror stays as it is. Of a lake a
    job does it, which *submit* runs.

    Raises PolicyStopError if the new mirror has taken the place of the old one: ``rebuild`` alone ends that. Raises
    LeaseHeldError while a rebuild or a comparison of the mirror runs."""
    place = replaceable(context, target).config.place_of(table)
    with holding_mirror(context.state.leases, place, "mirror rebuild --abandon"):
        return remove_beside(context, target, table, submit)


def remove_beside(context: ReplayContext, target: str, table: TableName, submit: Submit) -> bool:
    """``abandon``, while the caller holds the mirror."""
    mirror = replaceable(context, target)
    _withdraw_swap(context, mirror, table, submit)
    if _has_taken_over(context, mirror, target, table):
        raise PolicyStopError(
            f"{table}: the new mirror has taken the place of the old one. Run `ticdc-replay mirror rebuild` again, which "
            "ends that"
        )
    # Before anything beside is gone: a swap that has begun, and nothing beside, is a swap that was done.
    _end_replacing(context, mirror, target, table)
    # Before it too: where each statement counts at once, a ledger may be left without its table. The next rebuild removes it.
    begun_rebuilds.forget(context, target, table)
    return _remove(context, mirror, table, submit)


def _remove(context: ReplayContext, mirror: ReplaceableMirror[Any], table: TableName, submit: Submit) -> bool:
    begun = _clear(context, mirror, table, submit)
    forget_shape(context.artifacts, mirror.beside(table), table)
    return begun


def _withdraw_swap(context: ReplayContext, mirror: ReplaceableMirror[Any], table: TableName, submit: Submit) -> None:
    """Take back a swap that an attempt has decided, or end it."""
    if not needs_job(mirror.config):
        mirror.withdraw_swap(table)
    elif mirror.is_swapping(table):
        run_as_job(context, mirror.config, table, WithdrawTask(), type(None), submit)


def _clear(context: ReplayContext, mirror: ReplaceableMirror[Any], table: TableName, submit: Submit) -> bool:
    """Remove all that is beside; whether there was a mirror."""
    if needs_job(mirror.config):
        return run_as_job(context, mirror.config, table, AbandonTask(), bool, submit)
    return mirror.abandon(table)


def _end_replacing(context: ReplayContext, mirror: ReplaceableMirror[Any], target: str, table: TableName) -> None:
    """Note that the old mirror stays as it is: no swap is decided, and none was done."""
    withdraw_move(context.artifacts, mirror.config, table)
    begun_rebuilds.end_replacing(context, target, table)


def _has_taken_over(context: ReplayContext, mirror: ReplaceableMirror[Any], target: str, table: TableName) -> bool:
    """Whether the mirror of *table* is the rebuilt one, and ``_end`` was not done. MySQL ends a swap when it is asked."""
    begun = begun_rebuilds.of_table(context, target, table)
    return (
        begun is not None
        and begun.is_replacing
        and not mirror.is_swapping(table)
        and not mirror.applied_beside(table)
        and bool(mirror.applied(table))
    )


def _refuse_to_lose_deleted_rows(
    context: ReplayContext, mirror: ReplaceableMirror[Any], plan: RebuildPlan, submit: Submit
) -> None:
    """Raise PolicyStopError if the old mirror keeps deleted rows that nothing of *plan* has."""
    table = plan.table
    if mirror.config.deletes != "soft":
        return
    if needs_job(mirror.config):
        count = run_as_job(context, mirror.config, table, CountDeletedTask(before_ts=plan.begin_ts), int, submit)
    else:
        count = mirror.deleted_before(table, plan.begin_ts)
    if count:
        raise PolicyStopError(
            f"{table} keeps deleted rows (`deletes: soft`), and {count:,} of them were deleted before {plan.begins}: a rebuild "
            "from there does not have them. Begin with an older base (--dump-base), or let them go: --without-deleted-rows"
        )


def _replace(
    context: ReplayContext, mirror: ReplaceableMirror[Any], target: str, plan: RebuildPlan, submit: Submit
) -> Replaced:
    """Let the mirror beside take the place of the old one. What has to be known if this is killed is noted before."""
    table = plan.table
    if mirror.is_swapping(table) or mirror.applied_beside(table):
        begun_rebuilds.note(context, target, table, plan.begin_ts, is_replacing=True)
        begin_move(context.artifacts, mirror.beside(table), mirror.config, table)
    needed = tuple(sorted({source.run_hash for source in plan.sources if source.is_named}))
    try:
        if needs_job(mirror.config):
            task = ReplaceTask(superseded=tuple(sorted(plan.superseded)), needed=needed)
            replaced = run_as_job(context, mirror.config, table, task, Replaced, submit)
        else:
            replaced = mirror.replace(context.pipeline.name, table, plan.superseded, needed)
    except PermanentError:
        if not mirror.is_swapping(table) and mirror.applied_beside(table):
            _end_replacing(context, mirror, target, table)
        raise
    if replaced.lacking:
        _end_replacing(context, mirror, target, table)
    return replaced


def _end(
    context: ReplayContext,
    mirror: ReplaceableMirror[Any],
    target: str,
    plan: RebuildPlan,
    lost: tuple[str, ...] = (),
) -> Rebuilt:
    """Do what is left once the new mirror has taken the place of the old one. Safe to repeat."""
    table = plan.table
    end_move(context.artifacts, mirror.beside(table), mirror.config, table)
    applied = {(run.window, run.run_hash): run for run in mirror.applied(table)}
    _record(context, mirror.config, plan, applied)
    begun_rebuilds.forget(context, target, table)
    return Rebuilt(str(table), len(plan.sources), plan.end_ts, lost)


def _load(
    context: ReplayContext,
    mirror: ReplaceableMirror[Any],
    target: str,
    plan: RebuildPlan,
    submit: Submit,
    tell: Tell,
    also: Collection[str],
) -> None:
    """Bring what is still lacking of *plan* into the mirror beside."""
    section = mirror.beside(plan.table)
    done = _held_beside(mirror, plan.table)
    needed = [source for source in plan.sources if source.is_needed or source.run_hash in also]
    left = [source for source in needed if source.run not in done]
    while left:
        if needs_job(section):
            if _load_together(context, target, plan.table, section, left, submit, tell):
                return
            done = _held_beside(mirror, plan.table)
            left = [source for source in left if source.run not in done]
        source, *left = left
        uri = jobspec.put(context.artifacts, _load_job(context, source.run_hash, target, plan.table, section))
        try:
            _submit_following(context, section, plan.table, source, submit, uri)
        except PolicyStopError as error:
            raise PolicyStopError(
                f"the rebuild of {plan.table} stopped in window {source.window}; the old mirror is as it was:\n{error}\n"
                "A rebuild goes past a DDL only if the old mirror has followed it. Dump the upstream at or after it, run "
                "`ticdc-replay mirror seed --only-base`; then run `ticdc-replay mirror rebuild --abandon`, and rebuild with the "
                "--dump-base that it printed"
            ) from error
        tell(f"{plan.table}: {len(needed) - len(left)} of {len(needed)}, {source.window}")


def _held_beside(mirror: ReplaceableMirror[Any], table: TableName) -> set[tuple[Window, str]]:
    """The windows, each with the run, that the mirror beside has."""
    return {(run.window, run.run_hash) for run in mirror.applied_beside(table)}


def _load_together(
    context: ReplayContext,
    target: str,
    table: TableName,
    section: TargetSection,
    sources: Sequence[Source],
    submit: Submit,
    tell: Tell,
) -> bool:
    """Load *sources*, many by one driver, as each takes a while to start; False once a DDL has stopped one of them."""
    for first in range(0, len(sources), _LOADS_OF_A_DRIVER):
        batch = sources[first : first + _LOADS_OF_A_DRIVER]
        jobs = [_load_job(context, source.run_hash, target, table, section) for source in batch]
        try:
            submit(jobspec.put(context.artifacts, Series(jobs=tuple(jobs)) if len(jobs) > 1 else jobs[0]))
        except PolicyStopError as error:
            log.info("%s: a load was stopped, and is tried by itself: %s", table, error)
            return False
        tell(f"{table}: {first + len(batch)} of {len(sources)}, {batch[-1].window}")
    return True


def _submit_following(
    context: ReplayContext, section: TargetSection, table: TableName, source: Source, submit: Submit, uri: str
) -> None:
    """Run the load; if a DDL at the window's end stops it after all rows, let the mirror beside follow that, and run it again.
    The old mirror has followed it: else the window would not be loaded."""
    try:
        submit(uri)
    except PolicyStopError:
        beside = open_target(section, context.connections)
        assert isinstance(beside, Mirror), "a mirror beside another one"
        stopped = {(load.window, load.run_hash) for load in beside.stopped_loads(context.pipeline.name, table)}
        if (source.window, source.run_hash) not in stopped:
            raise
        index = read_index(context.artifacts, source.run_hash)
        ddl = ddl_at(context, beside, index, table, source.window.to_ts - 1)
        if ddl.tables != [table]:  # the rows that come with a RENAME are not in the changelogs of this name
            raise
        follow_in(context, beside, ddl, submit, dry_run=False)
        submit(uri)


def _load_job(context: ReplayContext, run_hash: str, target: str, table: TableName, section: TargetSection) -> LoadJob:
    """The load of *run_hash*, of *table* alone, into the target of *section*."""
    written = write_load_job(context, run_hash, target, (str(table),))
    job = jobspec.read(context.artifacts, written.uri)
    assert isinstance(job, LoadJob), "a load was written"
    return msgspec.structs.replace(job, target=section.model_dump(mode="json", by_alias=True))


def _record(
    context: ReplayContext,
    section: TargetSection,
    plan: RebuildPlan,
    applied: dict[tuple[Window, str], AppliedRun],
) -> None:
    """Let reports and coverage have what the new mirror has of the runs of *plan*."""
    pipeline, place, table = context.pipeline.name, section.place, plan.table
    known = {record.run_hash: record for record in context.state.coverage.all(pipeline) if record.place == place}
    records = []
    for source in plan.sources:
        run = applied.get((source.window, source.run_hash))
        index = read_index(context.artifacts, source.run_hash)
        if run is not None:
            before, report = _keep_report(context, section, index, run)
        if index.redrives is not None:
            continue
        lacking = is_set_aside(context, index, place)
        record = known.get(source.run_hash)
        if record is None:
            report = last_load(context, source.run_hash, place)
            record = coverage_of(report, "proven", set_aside=lacking)  # of a base: windows have their coverage
        others = [covered for covered in record.tables if covered.table != table]
        if run is not None:
            own = coverage_of(report, record.grade, set_aside=lacking)
            others += [covered for covered in own.tables if covered.table == table]
            if record.attempt == before:  # else a load that is not published yet is newer
                record = msgspec.structs.replace(record, attempt=report.attempt)
        records.append(msgspec.structs.replace(record, tables=tuple(sorted(others))))
    context.state.coverage.record(records)


def _keep_report(
    context: ReplayContext, section: TargetSection, index: ChangelogIndex, run: AppliedRun
) -> tuple[str, LoadReport]:
    """Keep a report of the load of *run* into the target of *section*: its last one, with what the new mirror has. The attempt
    of the last one, empty if there is none, and the new report."""
    try:
        last = last_load(context, run.run_hash, section.place)
    except ArtifactNotFoundError:  # a base that was loaded into no other mirror of the target
        last = LoadReport(
            pipeline=index.pipeline,
            run_hash=index.run_hash,
            input_hash=index.input_hash,
            window=index.window,
            target=section.name,
            type=section.type,
            place=section.place,
            attempt="",
            selection=(str(run.report.table),),
            tables=(),
        )
    tables = [each for each in last.tables if each.table != run.report.table]
    files = {*last.quarantine_files, *run.report.quarantine_files}
    report = msgspec.structs.replace(
        last,
        target=section.name,
        attempt=uuid4().hex[:16],
        tables=tuple(sorted([*tables, run.report], key=lambda each: each.table)),
        quarantine_files=tuple(sorted(files)),
    )
    context.artifacts.put_once(report.name, canonical.encode(report))
    return last.attempt, report


def _require_same_beginning(mirror: ReplaceableMirror[Any], plan: RebuildPlan) -> None:
    begun = {(run.window, run.run_hash) for run in mirror.applied_beside(plan.table)}
    first = next((source for source in plan.sources if source.is_named), None)
    if begun and (first is None or (first.window, first.run_hash) not in begun):
        raise ConfigError(
            f"{plan.table}: a rebuild has begun with another base than {plan.begins}, or has lost it. Name that one by "
            "--dump-base, or remove what is left: ticdc-replay mirror rebuild --abandon"
        )


def _held_only_by_the_old(
    context: ReplayContext, place: str, table: TableName, runs: Iterable[AppliedRun], to_ts: int | None
) -> TicdcReplayError:
    """The error for *runs* that the old mirror has, and that are not part of the plan: it passes once they are published."""
    pipeline = context.pipeline.name
    covered = {record.run_hash for record in context.state.coverage.all(pipeline) if record.place == place}
    stays, passes = [], []
    for run in runs:
        name = f"{run.window} (run {run.run_hash[:12]})"
        try:
            index = read_index(context.artifacts, run.run_hash)
        except ArtifactNotFoundError:
            stays.append(f"{name}: its changelog was removed. Load the window again, with a new run")
            continue
        redrives = context.state.quarantine.redrives(pipeline, index.redrives) if index.redrives is not None else []
        is_published = run.run_hash in covered or any(
            (each.redrive_hash, each.place) == (run.run_hash, place) for each in redrives
        )
        if not is_published:
            passes.append(name)
        elif to_ts is not None and run.window.to_ts > to_ts:
            stays.append(f"{name} ends after --to. Give a later one, or leave it out")
        elif index.redrives is not None:
            stays.append(
                f"{name} brought what the newer run of the window has in quarantine. Re-drive that, or accept its loss"
            )
        else:
            stays.append(f"{name} is not of the tables that are selected now. Load the window again, with a new run")
    head = f"the old mirror of {table} has windows that the new one lacks, so it stays:\n- "
    if stays:
        return PolicyStopError(
            head + "\n- ".join([*stays, *passes]) + "\nThen run the command again, which goes on where it is"
        )
    return TransientError(
        head
        + "\n- ".join(passes)
        + "\nTheir loads are done, and their runs have not ended. Run the command again once they have; if one was killed, start "
        "it again, which ends it"
    )
