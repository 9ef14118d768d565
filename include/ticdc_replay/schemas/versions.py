"""Table definitions by version: what rows of Simple refer to instead of saying their columns' types."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName


class TableVersions:
    """Table definitions by (schema, table, version), as rows of Simple name them; immutable.

    The version of a definition is its ``valid_from``. Names count in their exact spelling, as the wire repeats them. Of several
    definitions of one version the first counts: TiCDC may send the columns in another order later (errata, 1).
    """

    def __init__(self, definitions: Iterable[TableDefinition] = ()) -> None:
        self._definitions: dict[tuple[str, str, int], TableDefinition] = {}
        for definition in definitions:
            name = definition.name
            self._definitions.setdefault((name.schema, name.table, definition.valid_from), definition)

    def find(self, schema: str, table: str, version: int) -> TableDefinition | None:
        """The definition that rows of *version* have, None where it is not known."""
        return self._definitions.get((schema, table, version))

    def with_definitions(self, definitions: Iterable[TableDefinition]) -> "TableVersions":
        """These and *definitions*."""
        return TableVersions([*self._definitions.values(), *definitions])

    def __iter__(self) -> Iterator[TableDefinition]:
        """In the order of table and version."""
        return (self._definitions[key] for key in sorted(self._definitions))

    def __bool__(self) -> bool:
        return bool(self._definitions)


class MissingVersion(NamedTuple):
    """A version that rows name and nobody has defined yet."""

    name: TableName
    version: int
