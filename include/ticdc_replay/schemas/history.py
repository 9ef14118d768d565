"""How the definitions of tables changed over time: which one holds at a commitTs."""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.definition import TableDefinition


class Known(msgspec.Struct, frozen=True):
    """What is known of a table for a span of its history. ``virtual`` names the columns TiCDC does not send."""

    schema: TableSchema
    virtual: tuple[str, ...] = ()


class Epoch(msgspec.Struct, frozen=True):
    """From ``after`` (TSO, exclusive) on *known* holds for the table; None where the table is dropped or unknown."""

    after: int
    known: Known | None


class SchemaHistory:
    """Definitions of tables over time. A DDL of commitTs T holds for rows with commitTs > T (delivery semantics, 6).

    Names are matched in any letter case, as TiDB does.
    """

    def __init__(self, definitions: Iterable[TableDefinition] = ()) -> None:
        self._epochs: dict[tuple[str, str], list[Epoch]] = {}
        for definition in sorted(definitions, key=lambda definition: (definition.valid_from, definition.name)):
            known = Known(definition.schema(), definition.virtual())
            self._epochs.setdefault(_fold(definition.name), []).append(Epoch(definition.valid_from, known))
        self._spelled: dict[tuple[str, str], list[Epoch]] = {}

    @classmethod
    def from_definitions(cls, definitions: Iterable[TableDefinition]) -> "SchemaHistory":
        """A history that starts with *definitions*."""
        return cls(definitions)

    def known_at(self, schema: str, table: str, commit_ts: int) -> Known | None:
        """What is known of a table for a row of *commit_ts* (TSO); the same object for the same span. Cheap per row."""
        epochs = self._spelled.get((schema, table))
        if epochs is None:
            epochs = self._epochs.get((schema.casefold(), table.casefold()), [])
            self._spelled[schema, table] = epochs
        at = bisect_left(epochs, commit_ts, key=lambda epoch: epoch.after)
        return epochs[at - 1].known if at else None

    def schema_at(self, name: TableName, commit_ts: int) -> TableSchema | None:
        """The schema of the table *name* for rows of *commit_ts* (TSO); None where it is not known."""
        known = self.known_at(name.schema, name.table, commit_ts)
        return known.schema if known is not None else None


def _fold(name: TableName) -> tuple[str, str]:
    return name.schema.casefold(), name.table.casefold()
