"""What a person tells the mirrors of a pipeline, between windows."""

from typing import Any

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.targets.base import FloorRaised, Mirror
from ticdc_replay.targets.registry import open_target


def raise_floor(context: ReplayContext, target: str, table: TableName, floor_ts: int) -> FloorRaised:
    """Have nothing below *floor_ts* (TSO) applied to the mirror of *table* in *target* any more.

    Raises ConfigError where *target* is no mirror, and what ``Mirror.raise_floor`` raises.
    """
    return _mirror(context, target).raise_floor(context.pipeline.name, table, floor_ts)


def forget(context: ReplayContext, target: str, table: TableName) -> str:
    """Forget what was loaded into the mirror of *table* in *target*, and that it covers any window; the mirror's name.

    Raises ConfigError where *target* is no mirror or the mirror is still there, and what ``Mirror.forget`` raises.
    """
    name = _mirror(context, target).forget(context.pipeline.name, table)
    context.state.forget_coverage(context.pipeline.name, target, table)
    return name


def _mirror(context: ReplayContext, name: str) -> Mirror[Any]:
    section = next((target for target in context.pipeline.targets if target.name == name), None)
    if section is None or not section.is_mirror:
        mirrors = [target.name for target in context.pipeline.targets if target.is_mirror]
        raise ConfigError(f"{name} is no mirror of the pipeline; its mirrors: {', '.join(mirrors) or 'none'}")
    target = open_target(section.model_dump(mode="json", by_alias=True), context.connections)
    assert isinstance(target, Mirror), "a section that is a mirror makes one"
    return target
