"""Histories of table definitions, made and asked in short."""

from collections.abc import Iterable

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory


def history_of(definitions: Iterable[TableDefinition]) -> SchemaHistory:
    """A history in which each of *definitions* holds after its ``valid_from``."""
    return SchemaHistory(Epoch(definition.name, definition.valid_from, definition) for definition in definitions)


def schema_at(history: SchemaHistory, name: TableName, commit_ts: int) -> TableSchema | None:
    """The schema of the table *name* for rows of *commit_ts* (TSO); None where it is not known."""
    known = history.known_at(name.schema, name.table, commit_ts)
    return known.schema if known is not None else None
