"""What a codec may have to know of tables that its messages do not say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ticdc_replay.schemas.history import SchemaHistory


class UnusableAnswerError(ValueError):
    """What a registry answered for one id is no schema that may be used; other ids may be all right."""


class WriterSchemas(Protocol):
    """Schemas by the id that stands before every Avro message."""

    def text(self, schema_id: str) -> str | None:
        """The schema document of *schema_id* (decimal number, or UUID for AWS Glue); None where the registry has no such id.

        Raises TransientError while the registry is away, PermanentError when it refuses us, and UnusableAnswerError where its
        answer concerns this id alone and is no schema.
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
    """All that is known besides the messages. ``history`` follows from DDL and declared definitions, and holds versions."""

    history: SchemaHistory = field(default_factory=SchemaHistory)
    writer_schemas: WriterSchemas = field(default_factory=FixedWriterSchemas)
