"""What a message of Simple says, whichever way it is encoded."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ticdc_replay.codecs.simple.schema import TableSchema
from ticdc_replay.domain.events import Operation

OPERATIONS = {"INSERT": Operation.INSERT, "UPDATE": Operation.UPDATE, "DELETE": Operation.DELETE}
"""Types of messages that are rows (protocols: simple, section 2)."""


class Checksum(NamedTuple):
    """The sums of the new and the old image, 0 where there is none, and whether TiCDC itself found them wrong."""

    current: int
    previous: int
    corrupted: bool


class Row(NamedTuple):
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


class Ddl(NamedTuple):
    """A schema change. Without schema for statements on databases."""

    type: str
    sql: str
    commit_ts: int
    schema: TableSchema | None
    old_schema: TableSchema | None


class Bootstrap(NamedTuple):
    """A table's schema."""

    schema: TableSchema


class Watermark(NamedTuple):
    """A resolved-ts (TSO)."""

    commit_ts: int


Message = Row | Ddl | Bootstrap | Watermark
