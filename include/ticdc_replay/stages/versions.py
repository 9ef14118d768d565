"""Definitions of tables that came over the wire with a version (Simple)."""

from collections.abc import Iterable

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.schemas.versions import TableVersions
from ticdc_replay.stages.context import ReplayContext


def record_versions(context: ReplayContext, definitions: Iterable[TableDefinition]) -> None:
    """Add *definitions* that came over the wire to what is known of the pipeline's tables; the first of a version stays."""
    name = context.pipeline.name
    known = TableVersions(context.state.table_versions(name))
    fresh = TableVersions(
        definition
        for definition in definitions
        if known.find(definition.name.schema, definition.name.table, definition.valid_from) is None
    )
    context.state.record_table_versions(name, fresh)
