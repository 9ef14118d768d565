"""Lets mirrors follow a DDL that stopped a load, once everything from before it is loaded."""

from typing import Any

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import FollowTask
from ticdc_replay.schemas.changes import BreakingChange
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import holds
from ticdc_replay.stages.upkeep.floor_guards import still_to_come
from ticdc_replay.stages.upkeep.mirror_jobs import Submit, needs_job, no_jobs, run_as_job
from ticdc_replay.stages.upkeep.mirrors import opened_mirror
from ticdc_replay.targets.base import Followed, Mirror, StoppingDdl
from ticdc_replay.targets.database_ddl import ddl_of
from ticdc_replay.targets.shaped_load import refuse_renames, renaming_shapes, shape_in, without_unclear_texts


def stopping_ddl(context: ReplayContext, target: str, table: TableName, at: int | None = None) -> StoppingDdl:
    """The DDL of commitTs *at* (TSO) that stopped a load of *table* into *target* after all rows of its window; without *at*
    the first one that the mirror has not followed.

    Raises ConfigError if *target* is no mirror, or if no load was stopped so, ArtifactNotFoundError if the changelog of the
    load was removed, and TransientError if the target is away.
    """
    mirror = opened_mirror(context, target)
    floor_ts = mirror.floor_of(table)
    stopped = {load.window.to_ts - 1: load.run_hash for load in mirror.stopped_loads(context.pipeline.name, table)}
    ends = {end: run for end, run in stopped.items() if end == at or (at is None and end >= floor_ts)}
    if not ends:
        raise ConfigError(
            _not_stopped(context, target, table, max(stopped) if stopped and at is None else at, floor_ts)
        )
    commit_ts = min(ends)
    index = read_index(context.artifacts, ends[commit_ts])
    return ddl_at(context, mirror, index, table, commit_ts)


def ddl_at(
    context: ReplayContext, mirror: Mirror[Any], index: ChangelogIndex, table: TableName, commit_ts: int
) -> StoppingDdl:
    """The DDL of *table* at *commit_ts* (TSO) in the changelog *index*, as *mirror* is to have it: also one that drops its
    database, or spells its name in another letter case. Raises PolicyStopError for a RENAME to a name with another shape."""
    index = without_unclear_texts(mirror.config, index)
    changes, own = [], ddl_of(index, table, commit_ts)
    refuse_renames(mirror.config, own, context.pipeline.tables)
    for entry in own:
        shape = shape_in(context.artifacts, mirror.config, context.connections, index, entry.table)
        changes.append(entry if shape is None else shape.changes(entry))
    return StoppingDdl(table, commit_ts, tuple(changes), tuple(context.pipeline.tables))


def how_to_follow(context: ReplayContext, target: str, ddl: StoppingDdl, submit: Submit = no_jobs) -> Followed:
    """What ``follow`` would do; nothing is changed. Raises what it raises."""
    mirror = opened_mirror(context, target)
    _refuse_missing_rows(context, target, mirror, ddl)
    return follow_in(context, mirror, ddl, submit, dry_run=True)


def follow(context: ReplayContext, target: str, ddl: StoppingDdl, submit: Submit = no_jobs) -> Followed:
    """Do to the mirrors in *target* what *ddl* did upstream, and raise their floors to just above it. Safe to repeat, also
    after an attempt that broke anywhere. Tables in a lake are changed in a job that *submit* runs.

    Raises PolicyStopError if rows from before the DDL may still come (``still_to_come``), and what ``Mirror.follow`` raises.
    """
    mirror = opened_mirror(context, target)
    _refuse_missing_rows(context, target, mirror, ddl)
    renames = {
        entry.table: change.other
        for entry in ddl.changes
        for change in entry.changes
        if isinstance(change, BreakingChange) and change.kind == "renamed_away" and change.other is not None
    }
    if renames:
        follow_in(context, mirror, ddl, submit, dry_run=True)  # raises what is refused
    with renaming_shapes(context.artifacts, mirror.config, renames):
        return follow_in(context, mirror, ddl, submit, dry_run=False)


def follow_in(
    context: ReplayContext, mirror: Mirror[Any], ddl: StoppingDdl, submit: Submit, *, dry_run: bool
) -> Followed:
    """Have *mirror* follow *ddl*, or with *dry_run* say how, here or in a job that *submit* runs. Raises what ``Mirror.follow``
    raises."""
    if needs_job(mirror.config):
        changes = msgspec.json.encode(ddl.changes).decode()
        task = FollowTask(commit_ts=ddl.commit_ts, changes=changes, selection=ddl.selection, dry_run=dry_run)
        return run_as_job(context, mirror.config, ddl.table, task, Followed, submit)
    return (mirror.how_to_follow if dry_run else mirror.follow)(context.pipeline.name, ddl)


def _refuse_missing_rows(context: ReplayContext, target: str, mirror: Mirror[Any], ddl: StoppingDdl) -> None:
    """Raise PolicyStopError if a mirror whose rows stay may still get some from before *ddl*."""
    lines = []
    for table in ddl.tables:
        from_ts = mirror.floor_of(table)
        if from_ts <= ddl.commit_ts:
            stopped = mirror.stopped_loads(context.pipeline.name, table)
            span = Window(from_ts, ddl.commit_ts + 1)
            lines += [f"{table}: {line}" for line in still_to_come(context, target, table, span, stopped)]
    if lines:
        raise PolicyStopError(
            f"rows from before the DDL of {ddl.table} at {describe(ddl.commit_ts)} may be still to come, and no load applies "
            "them once it is followed:\n- " + "\n- ".join(lines) + "\nBring them in this order, then follow the DDL"
        )


def _not_stopped(context: ReplayContext, target: str, table: TableName, at: int | None, floor_ts: int) -> str:
    if at is not None and at < floor_ts:
        return f"{table}: the floor of its mirror, {describe(floor_ts)}, is above that DDL: it is followed already"
    until, end = (str(at), str(at + 1)) if at is not None else ("<TSO>", "<TSO + 1>")
    ends = [
        record.window.to_ts
        for record in context.state.coverage.all(context.pipeline.name)
        if record.place == context.place_of(target)
        and holds(record, table)
        and (at is None or record.window.to_ts <= at)
    ]
    begin = max(ends) if ends else "<start of the first window>"
    file = context.loaded.path
    return (
        f"{table}: no load into its mirror was stopped "
        + (f"by a DDL at {describe(at)}" if at is not None else "by a DDL")
        + " at its window's end, so rows from before the DDL may be missing. Load them first, with the commitTs that the stop "
        f"names:\n1. ticdc-replay run {file} --from {begin} --to {until}\n"
        f"2. ticdc-replay run {file} --from {until} --to {end}, which stops after the rows of that commitTs\n"
        f"3. ticdc-replay mirror follow {file} {table}"
    )
