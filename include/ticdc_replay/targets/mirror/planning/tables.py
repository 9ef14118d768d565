"""A table of a mirror's database: its name, what is found of it, and the steps that change it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec

from ticdc_replay.domain.tables import TableName, folded


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
    cascades: tuple[str, ...] = ()
    """Foreign keys that change other rows if a row of this table is deleted, where a load deletes rows to replace them."""

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
    since: int = 0
    """When (TSO) it was added; 0 for ever, or for unknown."""


class ColumnEvent(msgspec.Struct, frozen=True):
    """A DROP or RENAME of a column. Names are the upstream's; ``to`` is None for a DROP after which the mirror lacks the column,
    and its own name for one after which the mirror keeps it.

    ``number`` orders the changes of a statement. The column had its name since ``since`` (TSO; 0 for ever, or for unknown).
    """

    commit_ts: int
    number: int
    name: str
    to: str | None
    since: int

    @property
    def key(self) -> tuple[int, str]:
        """What distinguishes it from other events, also if another decode knows more of the column."""
        return self.commit_ts, folded(self.name)

    @property
    def keeps(self) -> bool:
        """Whether it is a DROP after which the mirror keeps the column: NULL in rows from after it."""
        return self.to == self.name

    def is_in(self, events: Iterable["ColumnEvent"]) -> bool:
        """Whether a mirror that knows *events* has followed it. A column that is kept may still go."""
        return any(event.key == self.key and (event.to == self.to or not event.keeps) for event in events)

    @property
    def dropped(self) -> "ColumnEvent":
        """The DROP, if the mirror does not keep the column any more: its name has come to another one."""
        return msgspec.structs.replace(self, to=None)


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
    events: tuple[ColumnEvent, ...] = ()
    """The dropped and renamed columns of its upstream, by commitTs; from below ``form_floor_ts`` only those that it keeps."""
    is_being_dropped: bool = False
    """Whether a DROP that leaves no row is followed, and an attempt may have broken after it had dropped the table."""
    base: str = ""
    """The run of the base whose load has begun, where its rows come in a later commit than its floor; empty elsewhere."""
    deleted_column: str | None = None
    """The column that marks deleted rows, which stay; None where they go, and in lakes."""
    shaped_by: str | None = None
    """The pipeline that loads it with a `shape`; no other one may load it. None for a table as the upstream's."""

    @property
    def needs_table(self) -> bool:
        """Whether it has rows, so that a table that is missing was lost."""
        return self.newest_ts >= max(self.floor_ts, 1) and not self.is_being_dropped

    def forgotten_by(self, floor_ts: int) -> list[str]:
        """The columns whose fills ``Ledger.raise_floor`` forgets: no row without them will come. Of rows ordered by place
        none, since older rows may come after the DDL's commitTs."""
        if self.topic_id is not None:
            return []
        floor_ts = max(self.floor_ts, floor_ts)
        return [name for name, added in self.added_columns.items() if added.commit_ts < floor_ts]

    def after(self, move: "ColumnMove") -> "TableState":
        """What it is once *move* is noted."""
        if move.event.is_in(self.events):
            return self
        events = with_event(self.events, move.event)
        return msgspec.structs.replace(
            self,
            columns=move.columns(self.columns, events),
            added_columns=move.added(self.added_columns),
            events=events,
        )


def with_event(events: Iterable[ColumnEvent], event: ColumnEvent) -> tuple[ColumnEvent, ...]:
    """*events* and *event*, in their order; in place of the one that kept its column."""
    others = (each for each in events if each.key != event.key)
    return tuple(sorted((*others, event), key=lambda each: (each.commit_ts, each.number, each.name)))


def events_above(events: Iterable[ColumnEvent], form_floor_ts: int) -> tuple[ColumnEvent, ...]:
    """Those of *events* that a mirror with this floor remembers. A column that it keeps stays explained."""
    return tuple(event for event in events if event.commit_ts >= form_floor_ts or event.keeps)


def kept_since(events: Iterable[ColumnEvent], fit: Callable[[str], str]) -> dict[str, int]:
    """The columns that a mirror keeps although the upstream dropped them, by their folded names in the mirror (*fit* gives
    these), with the commitTs (TSO) up to which rows have values of their own."""
    return {folded(fit(event.name)): event.commit_ts for event in events if event.keeps}


def first_since(events: Sequence[ColumnEvent], name: str, since: int) -> int:
    """When (TSO) the column was added that is called *name* since *since*; 0 for ever, or for unknown. *events* are in order."""
    for event in reversed(events):
        if event.to is not None and event.commit_ts == since and folded(event.to) == folded(name):
            name, since = event.name, event.since
    return since


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
    """Make a table of *columns*, a version that every row has, and a primary key, if it has one; with a *deleted_column* also
    that, a boolean that is never NULL."""

    columns: tuple[ColumnDefinition, ...]
    version_column: str
    key: tuple[str, ...]
    deleted_column: str | None = None


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


class RenameColumn(msgspec.Struct, frozen=True):
    """Give a column another name."""

    column: str
    to: str


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


Action = MakeTable | CreateIndex | MakeColumn | ChangeType | RemoveColumn | RenameColumn | ChangeDefault | FillColumn


class MirrorStep(msgspec.Struct, frozen=True):
    """One change of a mirror table; ``text`` says it to people, "" where it is no change worth a report."""

    action: Action
    text: str = ""


Dated = TypeVar("Dated", KnownColumn, RecordedColumn)


class ColumnMove(msgspec.Struct, frozen=True):
    """What an event does to the mirror: *column* goes, or is called *to* from now on. Both are names in the mirror; *column*
    is None if later events show that the mirror has it no longer."""

    event: ColumnEvent
    column: str | None
    to: str | None
    step: MirrorStep | None = None
    """What is to be done to the mirror; None if it has the column no longer, or never had it."""
    fills: tuple[MirrorStep, ...] = ()
    """What is to be done before it: for rows that lack ``to``, which the mirror has from windows after the event."""
    stays: bool = False
    """Whether the mirror has a newer column of the name, of which is not known that it is another one."""

    def columns(self, known: Mapping[str, KnownColumn], events: Sequence[ColumnEvent]) -> dict[str, KnownColumn]:
        """*known*, the columns of the mirror, after the event, which is one of *events*. A newer column of the name stays."""
        after, event = dict(known), self.event
        moved = self._moved(after)
        if self.stays and self.column in after:
            after[self.column] = msgspec.structs.replace(after[self.column], since=event.commit_ts)
        if self.to is None:
            return after
        self._bury(after)
        other = after.get(self.to)
        if other is None:
            if moved is not None:
                after[self.to] = moved
        elif other.since == event.commit_ts:  # of a window from after the event, which knows it by the event
            since = first_since(events, event.name, event.since)  # events before this one may be known already
            after[self.to] = msgspec.structs.replace(other, since=since)
        return after

    def added(self, known: Mapping[str, RecordedColumn]) -> dict[str, RecordedColumn]:
        """*known*, the fills of added columns, after the event."""
        after = dict(known)
        moved = self._moved(after)
        if self.to is not None:
            self._bury(after)
            if moved is not None:
                after.setdefault(self.to, moved)
        return after

    def _bury(self, known: dict[str, Dated]) -> None:
        """Take out what *known* has of another column ``to``, which ended before this one took the name."""
        if self.to is not None and self.to in known and known[self.to].commit_ts < self.event.commit_ts:
            del known[self.to]

    def _moved(self, known: dict[str, Dated]) -> Dated | None:
        """What *known* has of the column, which is taken out; None if that is of a newer column."""
        if self.column is None or self.column not in known or known[self.column].commit_ts >= self.event.commit_ts:
            return None
        return known.pop(self.column)
