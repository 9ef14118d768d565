"""A table of a mirror's database: its name, what is found of it, and the steps that change it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ticdc_replay.domain.tables import TableName


class Relation(msgspec.Struct, frozen=True):
    """A table by schema and name. Its text is for people and for locks; a database quotes the name for its statements."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.table}"'


class FoundColumn(msgspec.Struct, frozen=True):
    """One column. ``loose``: its collation takes different texts as equal."""

    name: str
    type: str
    not_null: bool
    generated: bool
    loose: bool


class FoundTable(msgspec.Struct, frozen=True):
    """What exists under a name. ``is_table``: rows can be loaded into it, so it is no view or the like."""

    is_table: bool
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    other_unique: dict[str, tuple[str, ...]]
    """Unique indexes beside the primary key, by name."""

    def column(self, name: str) -> FoundColumn | None:
        """The column called *name*, or None."""
        return next((column for column in self.columns if column.name == name), None)


class RecordedColumn(msgspec.Struct, frozen=True):
    """An ADD COLUMN that was followed: its commitTs (TSO), and what older rows show as an SQL literal, None for NULL."""

    commit_ts: int
    fill: str | None


class KnownColumn(msgspec.Struct, frozen=True):
    """A column of the form that the mirror stands for; ``window_ddl.FormColumn`` has the same of a window."""

    type: str
    commit_ts: int
    in_rows: bool
    in_key: bool


class TableState(msgspec.Struct, frozen=True):
    """What the ledger knows of one mirror table. Timestamps are TSO."""

    source: TableName
    pipeline: str
    floor_ts: int
    newest_ts: int
    schema_ts: int
    tombstones: Relation
    topic_id: str | None
    added_columns: dict[str, RecordedColumn]
    columns: dict[str, KnownColumn]
    whole_ts: int
    form_floor_ts: int
    is_being_dropped: bool = False
    """Whether a DROP that leaves no row is followed, and an attempt may have broken after it had dropped the table."""

    @property
    def needs_table(self) -> bool:
        """Whether it has rows, so that a table that is missing was lost."""
        return self.newest_ts >= max(self.floor_ts, 1) and not self.is_being_dropped


@dataclass(frozen=True)
class Observed:
    """A mirror table as it is: what the catalogue and the ledger have of it."""

    found: FoundTable | None
    state: TableState | None
    is_empty: Callable[[], bool]
    """Looks whether it has no row, which takes a query."""

    @cached_property
    def empty(self) -> bool:
        """Whether it has no row, or had none when this was asked first."""
        return self.is_empty()


class ColumnDefinition(msgspec.Struct, frozen=True):
    """A column to make. ``default`` is an SQL literal, what rows that lack the column show; None for NULL."""

    name: str
    type: str
    default: str | None = None


class MakeTable(msgspec.Struct, frozen=True):
    """Make a table of *columns*, a version that every row has, and a primary key."""

    columns: tuple[ColumnDefinition, ...]
    version_column: str
    key: tuple[str, ...]


class CreateIndex(msgspec.Struct, frozen=True):
    """Make an index that is not unique, in place of a secondary unique key."""

    columns: tuple[str, ...]


class MakeColumn(msgspec.Struct, frozen=True):
    """Add a column; rows that are there show its default."""

    column: ColumnDefinition


class ChangeType(msgspec.Struct, frozen=True):
    """Give a column a type that holds all of its values."""

    column: str
    type: str


class RemoveColumn(msgspec.Struct, frozen=True):
    """Drop a column."""

    column: str


class ChangeDefault(msgspec.Struct, frozen=True):
    """Have a column show another SQL literal in rows that lack it; NULL where it is None."""

    column: str
    default: str | None


class FillColumn(msgspec.Struct, frozen=True):
    """Put an SQL literal where a column is NULL, in rows with a version up to ``until`` in their ``version_column``."""

    column: str
    fill: str
    version_column: str
    until: int


Action = MakeTable | CreateIndex | MakeColumn | ChangeType | RemoveColumn | ChangeDefault | FillColumn


class MirrorStep(msgspec.Struct, frozen=True):
    """One change of a mirror table; ``text`` says it to people, "" where it is no change worth a report."""

    action: Action
    text: str = ""
