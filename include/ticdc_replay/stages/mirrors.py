"""What a person tells the mirrors of a pipeline, between windows."""

from typing import Any

from ticdc_replay.changelog.reading import read_index
from ticdc_replay.changelog.set_aside import Entry
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.coverage import not_held
from ticdc_replay.stages.publish import brought, last_load
from ticdc_replay.stages.quarantine import Selection, active_runs
from ticdc_replay.stages.set_aside import set_aside, sets_aside
from ticdc_replay.targets.base import FloorRaised, Mirror
from ticdc_replay.targets.registry import open_target


def raise_floor(
    context: ReplayContext, target: str, table: TableName, floor_ts: int, *, holds_all_rows: bool = False
) -> FloorRaised:
    """Have nothing below *floor_ts* (TSO) applied to the mirror of *table* in *target* any more.

    *holds_all_rows* says that the mirror has the rows of all windows up to there, from a dump of the upstream. Otherwise they
    have to be loaded first: but for the last TSO, that of a DDL, and for windows from before the first that was loaded.

    Raises ConfigError where *target* is no mirror, PolicyStopError where a window below the floor is not loaded or has open
    entries in its quarantine that may be of *table*, and what ``Mirror.raise_floor`` raises.
    """
    mirror = _mirror(context, target)
    if not holds_all_rows:
        lacking = _still_to_come(context, target, table, mirror.floor_of(table), floor_ts)
        if lacking:
            raise PolicyStopError(
                f"rows of {table} from below {describe(floor_ts)} may be still to come, and no load applies them once the floor "
                "is there:\n- "
                + "\n- ".join(lacking)
                + "\nBring them in this order, while the mirror has the form from before the DDL. Where the mirror was filled "
                "from a dump of the upstream and holds all rows up to this floor, say so: --holds-all-rows"
            )
    return mirror.raise_floor(context.pipeline.name, table, floor_ts)


def _still_to_come(context: ReplayContext, target: str, table: TableName, from_ts: int, floor_ts: int) -> list[str]:
    """What of ``[from_ts, floor_ts)`` *target* may still get of *table*, one line each, with what to do."""
    records = [record for record in context.state.coverage(context.pipeline.name) if record.target == target]
    lines = [f"{window} is not loaded: load it" for window in not_held(records, table, from_ts, floor_ts - 1)]
    held = {record.run_hash for record in records}
    for run in sorted(active_runs(context, Selection()), key=lambda run: run.window):
        is_below = run.window.from_ts < floor_ts and from_ts < run.window.to_ts
        if run.run_hash not in held or not is_below or not sets_aside(run):
            continue
        entries = [
            entry
            for entry in set_aside(context, read_index(context.artifacts, run.run_hash)).open([target])
            if _may_be_of(entry, table) and (entry.commit_ts is None or from_ts <= entry.commit_ts < floor_ts)
        ]
        if entries:
            lines.append(
                f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} in the quarantine of window {run.window} "
                f"({entries[0].coordinates}: {entries[0].reason}): `ticdc-replay quarantine redrive <pipeline> "
                f"--run {run.run_hash[:12]}`, or accept as lost what can't come back"
            )
    return lines


def _may_be_of(entry: Entry, table: TableName) -> bool:
    """Whether a row of *table* may come out of *entry*, of which not all could be read."""
    read = ((entry.schema, table.schema), (entry.table, table.table))
    return all(name is None or folded(name) == folded(own) for name, own in read)


def forget(context: ReplayContext, target: str, table: TableName) -> str:
    """Forget what was loaded into the mirror of *table* in *target*, and that it covers any window; the mirror's name.

    What re-drives brought into it is forgotten, too: their entries are open again. Safe to repeat after it broke.

    Raises ConfigError where *target* is no mirror or the mirror is still there, and what ``Mirror.forget`` raises.
    """
    pipeline, mirror = context.pipeline.name, _mirror(context, target)
    mirror.require_gone(pipeline, table)
    # First of all what is shown: the ledger alone decides whether windows are loaded again.
    context.state.forget_coverage(pipeline, target, table, _redrives_with(context, target, table))
    return mirror.forget(pipeline, table)


def _redrives_with(context: ReplayContext, target: str, table: TableName) -> list[str]:
    """The re-drives that have brought *table* into *target*."""
    state, pipeline = context.state, context.pipeline.name
    runs = [record.run_hash for record in state.coverage(pipeline) if record.target == target]
    redrives = [each.redrive_hash for run in runs for each in state.redrives(pipeline, run) if each.target == target]
    return [redrive for redrive in redrives if table in brought(last_load(context, redrive, target))]


def _mirror(context: ReplayContext, name: str) -> Mirror[Any]:
    section = next((target for target in context.pipeline.targets if target.name == name), None)
    if section is None or not section.is_mirror:
        mirrors = [target.name for target in context.pipeline.targets if target.is_mirror]
        raise ConfigError(f"{name} is no mirror of the pipeline; its mirrors: {', '.join(mirrors) or 'none'}")
    target = open_target(section.model_dump(mode="json", by_alias=True), context.connections)
    assert isinstance(target, Mirror), "a section that is a mirror makes one"
    return target
