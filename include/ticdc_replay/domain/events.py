"""What a message says: rows, DDL, watermarks, bootstraps, and what could not be understood.

Cells stay as they came off the wire until a whole column is converted at once: an ``Image`` is a tuple of wire values
with a ``Shape``, which has the type and the wire form of each column. Codecs intern shapes, so that rows of one shape
share one object and can be grouped by identity.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import TableDefinition


class Operation(StrEnum):
    """What happened to a row. ``UPSERT`` if the wire does not distinguish insert and update."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    UPSERT = "upsert"


class WireColumn(NamedTuple):
    """One column as a protocol writes it.

    ``neutral`` turns a list of wire values (None for NULL) into the protocol-independent form, None kept as None:

    * integers, year, bit, enum (1-based index) and set (bit mask): int;
    * float, double: float; decimal: exact text; date, time, datetime, timestamp: MySQL's text;
      a timestamp is in the changefeed's time zone, or in UTC with a Z at its end;
    * character types, json, vector: str, or bytes where the text is not valid UTF-8; binary types: bytes.
    * enum and set of protocols that carry names: str.

    It raises ``ValueError`` when a value can't be of the column's type; the caller then finds the row by halving.

    ``ambiguous`` says which wire values that are doubtful (``RowEvent.lossy``) several values of the upstream may have become,
    so that they name no row: all, none, or those that it is true of.

    ``arrow``, where a column has it, turns the same wire values into an Arrow array of their neutral forms, text or bytes,
    without an object for each; None where a value needs a closer look, which is then ``neutral``'s to take.
    """

    name: str
    type: ColumnType
    is_handle_key: bool
    neutral: Callable[[Sequence[Any]], Sequence[Any]]
    arrow: Callable[[Sequence[Any]], Any] | None = None
    ambiguous: bool | Callable[[Any], bool] = True


class Shape:
    """The columns of an image, in wire order. Compared by identity; codecs intern equal ones. ``definition`` is the
    table's definition if the row names it (Simple): then nothing else defines the table."""

    __slots__ = ("columns", "definition", "handle_key", "handle_key_positions", "names")

    def __init__(self, columns: tuple[WireColumn, ...], definition: TableDefinition | None = None) -> None:
        self.columns = columns
        self.definition = definition
        self.names = tuple(column.name for column in columns)
        positions = [at for at, column in enumerate(columns) if column.is_handle_key]
        positions.sort(key=lambda at: columns[at].name)
        self.handle_key_positions = tuple(positions)
        """Positions of the handle-key columns, ordered by column name: the order of a row key's parts."""
        self.handle_key = tuple(columns[at].name for at in positions)

    def __repr__(self) -> str:
        return f"Shape({', '.join(f'{column.name} {column.type}' for column in self.columns)})"


class Image(NamedTuple):
    """One state of a row: wire values in the order of the shape's columns. A column not in the shape was not sent."""

    shape: Shape
    values: tuple[Any, ...]

    def key(self) -> tuple[Any, ...]:
        """The neutral values of the handle-key columns, in the order of their names; empty without handle key."""
        columns = self.shape.columns
        return tuple(columns[at].neutral((self.values[at],))[0] for at in self.shape.handle_key_positions)


class LargeMessage(StrEnum):
    """How TiCDC reduced a row event that was too large for Kafka."""

    CLAIM_CHECK = "claim_check"
    HANDLE_KEY_ONLY = "handle_key_only"


class Reference(msgspec.Struct, frozen=True):
    """A claim-check reference of a row event, taken from the small message. ``location`` is untrusted text."""

    location: str
    object_name: str
    """The base name of the location; empty when it does not match ``<uuid>.json``."""


SEARCH = 1
"""The version of the search for references, recorded with what was searched. Version 0 skipped messages of an earlier
protocol if the declared one has no claim checks."""


class RowEvent(NamedTuple):
    """One change of one row.

    ``ordinal`` counts the events of a message from 0. ``after`` is None for a delete, ``before`` None for an insert or
    where the wire has no old image. ``partial`` marks images that lack columns of the row (handle-key-only, unresolved
    claim check, key-only delete). ``large`` says why, when TiCDC reduced the message; after the claim-check object was
    fetched, ``partial`` is False and ``reference`` stays. ``before_unknown`` names columns whose old value the wire garbled
    (Open of the new architecture, updated-columns mode).
    ``fingerprint`` is a 128-bit hash of the event's own bytes: equal for copies that say the same.
    ``lossy`` names cells, as ``before.name`` and ``after.name``, whose exact value the protocol could not carry (Debezium).
    ``damage`` says why the row can't be the upstream's (its row checksum does not agree), "" for no reason.
    ``commit_ts`` is None where the protocol does not carry it (Canal-JSON and Avro without extension, deletes of Avro).
    """

    ordinal: int
    commit_ts: int | None
    schema: str
    table: str
    physical_table_id: int | None
    operation: Operation
    after: Image | None
    before: Image | None
    partial: bool
    large: LargeMessage | None
    reference: Reference | None
    before_unknown: tuple[str, ...]
    fingerprint: bytes
    lossy: tuple[str, ...] = ()
    damage: str = ""


class DdlEvent(NamedTuple):
    """One schema change. ``type`` is the wire's own code or text; ``table`` is "" for a database-level statement.

    ``definitions`` came with it (Simple), before and after the change. ``rounded``: the wire has only the time
    (Canal-JSON without extension), so ``commit_ts`` is the first TSO of that millisecond.
    """

    ordinal: int
    commit_ts: int
    schema: str
    table: str
    query: str
    type: int | str
    definitions: tuple[TableDefinition, ...] = ()
    rounded: bool = False


class WatermarkEvent(NamedTuple):
    """Every row with a commitTs at or below ``commit_ts`` (TSO) was sent to this partition at least once before."""

    ordinal: int
    commit_ts: int


class BootstrapEvent(NamedTuple):
    """A table's schema, sent without a change (Simple). The version that rows name is ``definition.valid_from``."""

    ordinal: int
    schema: str
    table: str
    definition: TableDefinition | None = None


class Undecodable(NamedTuple):
    """A message, or one event of it, that can't be understood: it goes to quarantine.

    ``ordinal`` is the event's position in its message, None for the whole message. ``reason`` is a stable code for
    grouping, ``detail`` the place in the bytes and the cause. Other fields are filled as far as possible.
    """

    ordinal: int | None
    reason: str
    detail: str
    commit_ts: int | None = None
    schema: str | None = None
    table: str | None = None
    reference: Reference | None = None


Event = RowEvent | DdlEvent | WatermarkEvent | BootstrapEvent | Undecodable
