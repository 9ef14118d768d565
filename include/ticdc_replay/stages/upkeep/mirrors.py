"""What people do to the mirrors of a pipeline, between windows."""

from typing import Any

from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.publish import brought, last_load, record_unpublished
from ticdc_replay.stages.upkeep.floor_guards import still_to_come
from ticdc_replay.targets.base import AnyTarget, FloorRaised, Mirror, RebuildableTarget
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.shaped_load import forget_shape


def raise_floor(
    context: ReplayContext, target: str, table: TableName, floor_ts: int, *, holds_all_rows: bool = False
) -> FloorRaised:
    """Apply nothing below *floor_ts* (TSO) to the mirror of *table* in *target* any more.

    *holds_all_rows*: the mirror has the rows of all windows up to there, from a dump of the upstream. Otherwise all
    windows since the first loaded one must be loaded.

    Raises ConfigError if *target* is no mirror, PolicyStopError if a row below the floor may still come
    (``still_to_come``), and what ``Mirror.raise_floor`` raises.
    """
    mirror = opened_mirror(context, target)
    from_ts = mirror.floor_of(table)
    if not holds_all_rows and from_ts < floor_ts:
        stopped = mirror.stopped_loads(context.pipeline.name, table)
        lacking = still_to_come(context, target, table, Window(from_ts, floor_ts), stopped)
        if lacking:
            raise PolicyStopError(
                f"rows of {table} from below {describe(floor_ts)} may be still to come, and no load applies them once the floor "
                "is there:\n- "
                + "\n- ".join(lacking)
                + "\nBring them in this order, while the mirror has the form from before the DDL. Where the mirror was filled "
                "from a dump of the upstream and holds all rows up to this floor, say so: --holds-all-rows"
            )
    return mirror.raise_floor(context.pipeline.name, table, floor_ts)


def forget(context: ReplayContext, target: str, table: TableName) -> str:
    """Forget what was loaded of *table* into *target*, also by re-drives, and its coverage; the name of what held it.

    Entries of such re-drives are open again. Safe to repeat. Raises ConfigError if *target* has no ledger, and what
    ``RebuildableTarget.forget`` raises.
    """
    pipeline, rebuilt = context.pipeline.name, opened_target(context, target)
    if not isinstance(rebuilt, RebuildableTarget):
        raise ConfigError(f"{target} has no ledger, and nothing to forget: load its windows again with reload")
    rebuilt.require_gone(pipeline, table)
    # First of all what is shown: the ledger alone decides whether windows are loaded again.
    place = context.place_of(target)
    record_unpublished(context, place)
    context.state.coverage.forget(pipeline, place, table, _redrives_with(context, place, table))
    forgotten = rebuilt.forget(pipeline, table)
    forget_shape(context.artifacts, rebuilt.config, table)
    return forgotten


def _redrives_with(context: ReplayContext, place: str, table: TableName) -> list[str]:
    """The re-drives that have brought *table* into *place*."""
    state, pipeline = context.state, context.pipeline.name
    runs = [record.run_hash for record in state.coverage.all(pipeline) if record.place == place]
    redrives = [
        each.redrive_hash for run in runs for each in state.quarantine.redrives(pipeline, run) if each.place == place
    ]
    return [redrive for redrive in redrives if table in brought(last_load(context, redrive, place))]


def opened_mirror(context: ReplayContext, name: str) -> Mirror[Any]:
    """The mirror called *name*. Raises ConfigError if the pipeline has none such."""
    target = opened_target(context, name)
    if not isinstance(target, Mirror):
        mirrors = [target.name for target in context.pipeline.targets if target.is_mirror]
        raise ConfigError(f"{name} is not a mirror of the pipeline; its mirrors: {', '.join(mirrors) or 'none'}")
    return target


def opened_target(context: ReplayContext, name: str) -> AnyTarget:
    """The target called *name*. Raises ConfigError if the pipeline has none such."""
    section = next((target for target in context.pipeline.targets if target.name == name), None)
    if section is None:
        names = ", ".join(target.name for target in context.pipeline.targets)
        raise ConfigError(f"{name} is not a target of the pipeline; its targets: {names}")
    return open_target(section, context.connections)
