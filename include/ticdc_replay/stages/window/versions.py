"""Definitions of tables that came over the wire with a version (Simple)."""

from collections.abc import Iterable

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.schemas.versions import TableVersions
from ticdc_replay.stages.context import ReplayContext


def record_versions(context: ReplayContext, definitions: Iterable[TableDefinition]) -> None:
    """Add *definitions* that came over the wire to what is known of the pipeline's tables, as ``TableVersions`` does."""
    name = context.pipeline.name
    known = context.state.table_versions.all(name)
    everything = list(TableVersions(known).with_definitions(definitions))
    before = set(known)
    fresh = {(each.name, each.valid_from) for each in everything if each not in before}
    context.state.table_versions.record(name, (each for each in everything if (each.name, each.valid_from) in fresh))
