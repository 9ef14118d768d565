"""What a codec may have to know of tables that its messages do not say."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.history import SchemaHistory


class TableVersions:
    """Table definitions by (schema, table, version), as rows of Simple name them; immutable.

    The version of a definition is its ``valid_from``. Names count in their exact spelling, as the wire repeats them.
    """

    def __init__(self, definitions: Iterable[TableDefinition] = ()) -> None:
        self._definitions = {
            (definition.name.schema, definition.name.table, definition.valid_from): definition
            for definition in definitions
        }

    def find(self, schema: str, table: str, version: int) -> TableDefinition | None:
        """The definition that rows of *version* have, None where it is not known."""
        return self._definitions.get((schema, table, version))

    def with_definitions(self, definitions: Iterable[TableDefinition]) -> "TableVersions":
        """These and *definitions*."""
        return TableVersions([*self._definitions.values(), *definitions])

    def __iter__(self) -> Iterator[TableDefinition]:
        return iter(self._definitions.values())


class MissingVersion(NamedTuple):
    """A version that rows name and nobody has defined yet."""

    name: TableName
    version: int


class WriterSchemas(Protocol):
    """Schemas by the id that stands before every Avro message."""

    def text(self, schema_id: str) -> str | None:
        """The schema document of *schema_id* (decimal number, or UUID for AWS Glue); None where the registry has no such id.

        Raises TransientError while the registry is away, PermanentError when it refuses us.
        """
        ...


class FixedWriterSchemas:
    """Writer schemas that are known beforehand, by id."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})

    def text(self, schema_id: str) -> str | None:
        """The schema document of *schema_id*, None where it is not known."""
        return self._texts.get(schema_id)


@dataclass(frozen=True, slots=True)
class SchemaLookup:
    """All that is known besides the messages. ``history`` follows from DDL and declared definitions."""

    history: SchemaHistory = field(default_factory=SchemaHistory)
    versions: TableVersions = field(default_factory=TableVersions)
    writer_schemas: WriterSchemas = field(default_factory=FixedWriterSchemas)
