"""What a message of Simple says, whichever way it is encoded."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ticdc_replay.codecs.simple.schema import SentTableSchema, database_of, definition_of
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Operation

OPERATIONS = {"INSERT": Operation.INSERT, "UPDATE": Operation.UPDATE, "DELETE": Operation.DELETE}
"""Types of messages that are rows."""


class Checksum(msgspec.Struct, gc=False):
    """The sums of the new and the old image, 0 where there is none, and whether TiCDC itself found them wrong."""

    version: int
    corrupted: bool
    current: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
    previous: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class RowMessage(NamedTuple):
    """A row. Cells are by name, in the encoding's own form; an image is None where the member is absent.

    ``claim_check`` is None where the member is absent: an empty location is one that names no object.
    ``location`` is that of the timestamps, None where no cell is one. ``lossy`` names cells as ``before.x`` and ``after.x``.
    """

    schema: str
    table: str
    table_id: int
    operation: Operation
    commit_ts: int
    version: int
    claim_check: str | None
    handle_key_only: bool
    checksum: Checksum | None
    data: dict[str, Any] | None
    old: dict[str, Any] | None
    location: str | None
    lossy: tuple[str, ...] = ()


SeenRow = tuple[int, int, Checksum | None, tuple[Any, ...] | None, tuple[Any, ...] | None]
"""What a message of a known form adds to it: commitTs (TSO), physical table id, sums, the cells of the new and old image."""
ReadRow = Callable[[bytes], SeenRow | None]
"""Reads messages of one form; None for any other."""


def ddl_event(
    type_: str, sql: str, commit_ts: int, schema: SentTableSchema | None, old_schema: SentTableSchema | None
) -> DdlEvent:
    """A schema change, with the definitions of the table before and after it; statements on databases have none."""
    name, table = (database_of(sql), "") if schema is None else (schema.schema, schema.table)
    found = (definition_of(wire) for wire in (old_schema, schema) if wire is not None)
    # A view's definition has no column of a known type.
    definitions = tuple(definition for definition in found if definition.columns)
    return DdlEvent(0, commit_ts, name, table, sql, type_, definitions)


def bootstrap_event(schema: SentTableSchema) -> BootstrapEvent:
    """A table's schema, sent without a change."""
    return BootstrapEvent(0, schema.schema, schema.table, definition_of(schema))
