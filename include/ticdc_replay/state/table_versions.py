"""Definitions of tables that came over the wire with a version (Simple)."""

from collections.abc import Iterable

import msgspec
from sqlalchemy import select

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.limits import refused_types
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, upsert

_DEFINITIONS = msgspec.json.Decoder(TableDefinition | list[TableDefinition])


class KnownTableVersions(Subject):
    """The definitions that came with a version."""

    def record(self, pipeline: str, definitions: Iterable[TableDefinition]) -> None:
        """Keep *definitions*; those of the same versions that are known already are replaced."""
        by_version: dict[tuple[str, str, int], list[TableDefinition]] = {}
        for definition in definitions:
            name = definition.name
            by_version.setdefault((name.schema, name.table, definition.valid_from), []).append(definition)
        rows = [
            {
                "pipeline": pipeline,
                "schema": schema,
                "table": table,
                "version": version,
                # A list only where there are several: hardly ever.
                "definition": msgspec.json.encode(found if len(found) > 1 else found[0]).decode(),
            }
            for (schema, table, version), found in by_version.items()
        ]
        with self._database.writing() as connection:
            upsert(connection, tables.table_version, rows)

    def all(self, pipeline: str) -> list[TableDefinition]:
        """The definitions of *pipeline*, by table and version; those of one version as recorded.

        None with types of no table, which earlier versions of the library took.
        """
        columns = tables.table_version.c
        wanted = select(columns.definition).where(columns.pipeline == pipeline)
        found: list[TableDefinition] = []
        for row in self._all(wanted.order_by(columns.schema, columns.table, columns.version)):
            kept = _DEFINITIONS.decode(row.definition)
            found += kept if isinstance(kept, list) else [kept]
        return [definition for definition in found if refused_types(definition.columns) is None]
