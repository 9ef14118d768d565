"""What the DDL of a window asks of one mirror table: which columns it adds, widens, drops and renames, and what stops the
load."""

from collections.abc import Iterator, Sequence

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.target_rules import Rules
from ticdc_replay.domain.tables import Column, TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.visible import visible
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    TableChanges,
    kind_of,
)
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.ddl import another_table_ts, stop_text, stops_always, stops_without_rows, words_of
from ticdc_replay.targets.mirror.planning.column_events import ColumnEvents, events_of
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.fills import fill_of
from ticdc_replay.targets.mirror.planning.tables import ColumnEvent

_SHOWN = 200
"""Characters of a fill that a message shows."""


class PlannedColumn(msgspec.Struct, frozen=True):
    """A column of the mirror: its name in the changelog, in the mirror and in staging, and its type."""

    source: str
    target: str
    staged: str
    type: str


class FormColumn(msgspec.Struct, frozen=True):
    """A column as the newest definition of the window has it, and when (TSO) that definition held. ``declared``: DDL or
    a definition gave the type, not only the wire. ``in_rows``: rows of the window have values of it."""

    target: str
    type: str
    commit_ts: int
    declared: bool = True
    in_rows: bool = False
    in_key: bool = False
    since: int = 0
    """When (TSO) it was added; 0 for ever, or for unknown."""


class Floor(msgspec.Struct, frozen=True):
    """The commitTs (TSO) from which a mirror reads rows, and DDL that changes columns. They differ after a TRUNCATE,
    which keeps the columns: older DDL may come with a later load."""

    rows: int
    form: int


class AddedColumn(msgspec.Struct, frozen=True):
    """An ADD COLUMN of the window: rows with a commitTs up to ``commit_ts`` (TSO) show ``fill``.

    ``fill`` is an SQL literal, None for NULL or if the server ``computed`` it. ``stops`` are lines that stop the load
    if there are such rows: for a computed column, or one that a policy forbids to add.
    """

    target: str
    type: str
    commit_ts: int
    fill: str | None
    computed: bool
    stops: tuple[str, ...]


class WidenedColumn(msgspec.Struct, frozen=True):
    """A MODIFY COLUMN after which the column holds more values. ``stops`` are its lines that stop the load if a policy
    forbids to follow it."""

    target: str
    type: str
    commit_ts: int
    stops: tuple[str, ...]


class MovedColumn(msgspec.Struct, frozen=True):
    """A DROP or RENAME of a column. ``stops`` are its lines that stop the load if it is one of the mirror's key."""

    event: ColumnEvent
    stops: tuple[str, ...]


def changes_since(index: ChangelogIndex, table: TableName, floor_ts: int) -> list[TableChanges]:
    """What the window's DDL did to *table*, but for what lies below *floor_ts* (TSO)."""
    return [entry for entry in index.changes if entry.table == table and not index.is_before(entry.commit_ts, floor_ts)]


class WindowDdl:
    """What DDL of the window of *load* does to one mirror; *columns* are those of the rows, *rules* those of the target.

    *handle_keys* are those of the rows. *events* are the dropped and renamed columns of all windows, *followed* those that
    the mirror knows already.
    """

    def __init__(
        self,
        load: Load,
        columns: tuple[PlannedColumn, ...],
        dialect: Dialect,
        rules: Rules,
        handle_keys: Sequence[tuple[str, ...]],
        events: ColumnEvents,
        followed: Sequence[ColumnEvent],
    ) -> None:
        self._load = load
        self._columns = columns
        self._dialect = dialect
        self._rules = rules
        self._key = {folded(name) for key in handle_keys for name in key}
        self._events = events
        self._followed = {event.key for event in followed}

    def stops(self, changes: list[TableChanges], floor_ts: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The lines of *changes* that stop the load, and of those after all rows of the window.

        Below *floor_ts* (TSO) only changes of columns and keys stop: no older rows are left. If one change of a
        statement stops, all that it did is listed: a floor above it leaves all of it to a person. Statements that only
        add or widen columns before the window's end are left to ``added`` and ``widened``: they may be followed.
        """
        index = self._load.index
        stops: tuple[list[str], list[str]] = ([], [])
        for entry in changes:
            is_last = index.order == "commit_ts" and entry.commit_ts == index.window.to_ts - 1
            is_below = index.is_before(entry.commit_ts, floor_ts)
            if any(
                (is_last or not isinstance(change, ColumnAdded | ColumnWidened))
                and not (is_below and not stops_without_rows(change))
                and self._stops(change, entry.commit_ts)
                for change in entry.changes
            ):
                stops[is_last].extend(self._lines(entry))
        return tuple(stops[0]), tuple(stops[1])

    def added(self, changes: list[TableChanges]) -> tuple[AddedColumn, ...]:
        """The columns that *changes* add."""
        added = {}
        for entry, change in _single(changes):
            if isinstance(change, ColumnAdded):
                column = self._planned(change.column, entry.commit_ts)
                if column is None:
                    continue
                fill, unknown = fill_of(change, column.type, self._dialect)
                stops = self._lines(entry) if self._stops(change, entry.commit_ts) else ()
                added[column.target] = AddedColumn(
                    column.target, column.type, entry.commit_ts, fill, unknown is not None, stops
                )
        return tuple(added.values())

    def unseen(self, changes: list[TableChanges]) -> tuple[str, ...]:
        """The columns that *changes* add with a default, and that are gone by DDL which no loaded window has shown, one line
        each: who has the default now is unknown."""
        lines = []
        for entry, change in _single(changes):
            if isinstance(change, ColumnAdded) and (change.fill is not None or not change.fill_known):
                now = self._events.now(change.column.name, entry.commit_ts)
                if now.unseen_ts:
                    lines.append(
                        f"{entry.table} at {describe(entry.commit_ts)}: the column {change.column.name} was added, and a DDL up "
                        f"to {describe(now.unseen_ts)} dropped or renamed it. Load the windows between them first"
                    )
        return tuple(lines)

    def widened(self, changes: list[TableChanges]) -> tuple[WidenedColumn, ...]:
        """The columns that *changes* widen."""
        widened = {}
        for entry, change in _single(changes):
            if isinstance(change, ColumnWidened):
                column = self._form(change.after, entry.commit_ts)
                if column is None:
                    continue
                stops = self._lines(entry) if self._stops(change, entry.commit_ts) else ()
                widened[column.target] = WidenedColumn(column.target, column.type, entry.commit_ts, stops)
        return tuple(widened.values())

    def form(self, changes: list[TableChanges]) -> tuple[FormColumn, ...]:
        """The columns as *changes* leave them that they add or widen, in their order."""
        form = {}
        for entry, change in _single(changes):
            if isinstance(change, ColumnAdded | ColumnWidened):
                after = change.column if isinstance(change, ColumnAdded) else change.after
                column = self._form(after, entry.commit_ts)
                if column is not None:
                    form[column.target] = column
        return tuple(form.values())

    def moved(self, changes: list[TableChanges]) -> tuple[MovedColumn, ...]:
        """The columns that *changes* drop and rename, in their order."""
        entries = {entry.commit_ts: entry for entry in changes}
        return tuple(
            MovedColumn(self._events.known(event), self._lines(entries[event.commit_ts]))
            for event in events_of(changes, [tuple(self._key)])
        )

    def _form(self, column: Column, commit_ts: int) -> FormColumn | None:
        planned = self._planned(column, commit_ts)
        if planned is None:
            return None
        since = self._events.since(column.name, column.since)
        return FormColumn(planned.target, self._type_of(column), commit_ts, since=since)

    def _stops(self, change: Change, commit_ts: int) -> bool:
        """Whether *change* stops the load wherever a mirror has rows that it concerns."""
        if isinstance(change, ColumnDropped | ColumnRenamed):
            if (commit_ts, folded(change.name)) in self._followed:
                return False
            if folded(change.name) in self._key:
                return True
        # Of a TRUNCATE or DROP: those that the mirror follows are no longer among the changes.
        if isinstance(change, BreakingChange) or stops_always(change, self._load.index.order):
            return True
        if self._rules[kind_of(change)].policy in self._load.stopping:
            return True
        if not isinstance(change, ColumnAdded):
            return False
        planned = self._planned(change.column, commit_ts)
        return planned is not None and fill_of(change, planned.type, self._dialect)[1] is not None

    def _lines(self, entry: TableChanges) -> tuple[str, ...]:
        """All that the statement of *entry* did to its table, with what a person does about it, one line each."""
        lines = []
        for change in entry.changes:
            rule, what, form = self._rules[kind_of(change)], words_of(change), ""
            if isinstance(change, ColumnAdded):
                column = self._planned(change.column, entry.commit_ts) or self._as_told(change.column)
                fill, unknown = fill_of(change, column.type, self._dialect)
                form = f": {column.target} {self._dialect.type_words(column.type)}"
                if unknown is not None:
                    rule, what = self._rules["column_computed"], unknown
                else:
                    form += f", with {_shown(fill)} in all rows"
            elif isinstance(change, ColumnWidened):
                told = self._planned(change.after, entry.commit_ts) or self._as_told(change.after)
                form = f": {told.target} {self._dialect.type_words(self._type_of(change.after))}"
            if rule.policy in self._load.stopping:
                what += f", and policies.{rule.policy} is stop"
            if rule.remedy:
                lines.append(stop_text(entry.table, entry.commit_ts, what, rule) + form)
        return tuple(lines)

    def _planned(self, column: Column, commit_ts: int) -> PlannedColumn | None:
        """The planned column that a DDL of *commit_ts* (TSO) means, None if a later one dropped it. It may spell the name in
        other letter case than the rows."""
        now = self._events.now(column.name, commit_ts)
        if now.name is None:
            return None
        for planned in self._columns:
            if folded(planned.source) == folded(now.name):
                return planned
        return self._as_told(msgspec.structs.replace(column, name=now.name))

    def _as_told(self, column: Column) -> PlannedColumn:
        return PlannedColumn(column.name, self._dialect.fit_column(column.name), "", self._type_of(column))

    def _type_of(self, column: Column) -> str:
        return self._dialect.type_of(column.type, in_key=folded(column.name) in self._key)


def _single(changes: list[TableChanges]) -> Iterator[tuple[TableChanges, Change]]:
    return ((entry, change) for entry in changes for change in entry.changes)


def first_floor(load: Load, table: TableName) -> Floor:
    """The commitTs (TSO) from which rows count for a mirror yet to be made: after the last DDL that left no row.

    That is TRUNCATE, DROP, and RENAME to another name. 0 if the window has none, or has rows by offset, which may be
    older. DDL that stops a load for an existing mirror also ends the form of one that does not exist.

    A DDL does not count if another one of the same commitTs brings rows to the name without row events, as ``RENAME a
    TO a_old, a_new TO a`` does: it stops as for an existing mirror. In a window by offset, which lies above or below a
    floor as a whole, neither does one before such a DDL.
    """
    index = load.index
    changes = changes_since(index, table, 0)
    moved = {entry.commit_ts for entry in changes if entry.moves_rows}
    emptied = [
        entry.commit_ts
        for entry in changes
        if entry.commit_ts not in moved
        and any(kind_of(change) in ("truncated", "dropped", "renamed_away") for change in entry.changes)
    ]
    if not emptied:
        return Floor(0, 0)
    if index.order == "place":
        floor_ts = 0 if load.index.versions_of(table) or any(ts > max(emptied) for ts in moved) else index.window.to_ts
        return Floor(floor_ts, floor_ts)
    other = [another_table_ts(changes, max(emptied))]
    other += [
        entry.commit_ts
        for entry in changes
        if entry.commit_ts <= max(emptied) and any(map(stops_without_rows, entry.changes))
    ]
    return Floor(max(emptied) + 1, max(other) + 1 if any(other) else 0)


def _shown(fill: str | None) -> str:
    """*fill*, a literal, for people; it can be copied where it is shown."""
    if fill is None:
        return "NULL"
    return fill if len(fill) <= _SHOWN and visible(fill) == fill else "the default that the DDL has"
