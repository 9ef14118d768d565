"""Columns that DDL dropped or renamed: what the column of an older definition is in the mirror.

Windows come in any order, so rows of an older definition may come after the DDL that dropped or renamed their columns.
The ledger keeps such DDL. A column of a definition is followed through all of it that came after the definition held.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile, TableVersion
from ticdc_replay.domain.tables import Column, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    TableChanges,
    TableCreated,
)
from ticdc_replay.targets.mirror.planning.tables import ColumnEvent, first_since


class Now(NamedTuple):
    """What became of a column: its name in the newest definition, or None if it was dropped."""

    name: str | None
    unseen_ts: int = 0
    """If not 0, the column is gone by a DDL up to this commitTs (TSO), which no loaded window has shown."""


class ColumnEvents:
    """All that is known of dropped and renamed columns of one table."""

    def __init__(self, events: Iterable[ColumnEvent]) -> None:
        known = {event.key: event for event in events}
        self._events = tuple(sorted(known.values(), key=lambda event: (event.commit_ts, event.number)))

    def now(self, name: str, held_ts: int) -> Now:
        """What became of the column *name* of a definition that held at *held_ts* (TSO), after the DDL of this commitTs."""
        is_kept = False
        for event in self._events:
            if event.commit_ts <= held_ts:
                continue
            if is_kept and folded(name) in (folded(event.name), folded(event.to or "")):
                return Now(None)  # of another column: the upstream dropped this one before
            if folded(event.name) == folded(name):
                if event.since > held_ts:
                    return Now(None, event.since)
                if event.to is None:
                    return Now(None)
                name, held_ts, is_kept = event.to, event.commit_ts, event.keeps
            elif event.to is not None and folded(event.to) == folded(name):
                return Now(None, event.commit_ts)
        return Now(name)

    def known(self, event: ColumnEvent) -> ColumnEvent:
        """*event*, which is one of them, as they have it."""
        return next(each for each in self._events if each.key == event.key)

    def since(self, name: str, since: int) -> int:
        """When (TSO) the column was added that is called *name* since *since*; 0 for ever, or for unknown."""
        return first_since(self._events, name, since)

    def left(self, name: str, until_ts: int) -> int:
        """When (TSO), up to *until_ts*, a column called *name* was last dropped or renamed; 0 for never."""
        times = (event.commit_ts for event in self._events if folded(event.name) == folded(name))
        return max((each for each in times if each <= until_ts), default=0)

    def times_of(self, version: TableVersion) -> set[int]:
        """The commitTs (TSO) of the events that may be of a column of *version*."""
        own = {folded(column.name) for column in version.schema.columns}
        return {
            event.commit_ts
            for event in self._events
            if folded(event.name) in own or (event.to is not None and folded(event.to) in own)
        }


def events_of(
    changes: Iterable[TableChanges], handle_keys: Iterable[Sequence[str]], *, keeps: bool = False
) -> tuple[ColumnEvent, ...]:
    """The events of *changes*, without those of columns in one of *handle_keys*: they stop a load. *keeps*: the mirror keeps
    dropped columns."""
    key = {folded(name) for names in handle_keys for name in names}
    return tuple(
        ColumnEvent(
            entry.commit_ts,
            number,
            change.name,
            change.to if isinstance(change, ColumnRenamed) else change.name if keeps else None,
            change.since,
        )
        for entry in changes
        for number, change in enumerate(entry.changes)
        if isinstance(change, ColumnDropped | ColumnRenamed) and folded(change.name) not in key
    )


class NameUse(NamedTuple):
    """That the upstream's table has a column called ``name`` at ``ts`` (TSO)."""

    name: str
    ts: int


def settled(events: Iterable[ColumnEvent], uses: Iterable[NameUse]) -> tuple[ColumnEvent, ...]:
    """*events*, of which those keep a column no more whose name *uses* show at another one: the upstream had dropped it."""
    newest: dict[str, int] = {}
    for use in uses:
        newest[folded(use.name)] = max(newest.get(folded(use.name), 0), use.ts)
    return tuple(
        event.dropped if event.keeps and newest.get(folded(event.name), 0) > event.commit_ts else event
        for event in events
    )


class MappedVersion(NamedTuple):
    """Rows of one definition: as the changelog has them, and with the names that their columns have in the mirror."""

    version: TableVersion
    now: TableVersion
    sources: dict[str, str]
    """Names of ``now`` → names of ``version``."""
    unseen: tuple[str, ...]
    """Columns that are gone by a DDL which no loaded window has shown, one line each."""


def mapped(
    index: ChangelogIndex, version: TableVersion, events: ColumnEvents, changes: Sequence[TableChanges]
) -> list[MappedVersion]:
    """*version* as *events* leave its columns; in parts, if some of its rows came before an event and others after it.

    A definition that is undone, as by DROP and ADD of one column, is the version of both its rows. *changes* are those of
    the window.
    """
    return [_mapped(index, part, events, changes) for part in _parts(index, version, events, changes)]


def uses_of(
    index: ChangelogIndex,
    versions: Iterable[TableVersion],
    events: Sequence[ColumnEvent],
    changes: Sequence[TableChanges],
) -> Iterator[NameUse]:
    """Where *versions* and *changes* of the window, and the *events* of all windows, show that a column has a name."""
    known = ColumnEvents(events)
    for version in versions:
        for part in _parts(index, version, known, changes):
            yield from (NameUse(column.name, held_ts(index, part)) for column in version.schema.columns)
    for event in events:
        yield NameUse(event.name, event.commit_ts)
        if event.to is not None and not event.keeps:
            yield NameUse(event.to, event.commit_ts + 1)
    for entry in changes:
        for change in entry.changes:
            if isinstance(change, ColumnAdded):
                yield NameUse(change.column.name, entry.commit_ts + 1)
            elif isinstance(change, TableCreated) and change.schema is not None:
                yield from (NameUse(column.name, entry.commit_ts + 1) for column in change.schema.columns)


def held_ts(index: ChangelogIndex, version: TableVersion) -> int:
    """When (TSO) the definition *version* certainly held: at its last row, or from its DDL on if that is all that is known."""
    last_row = index.extent_of(version)[1] - 1 if version.files and index.order == "commit_ts" else 0
    return max(version.schema.valid_from, last_row)


def _mapped(
    index: ChangelogIndex, version: TableVersion, events: ColumnEvents, changes: Sequence[TableChanges]
) -> MappedVersion:
    held = held_ts(index, version)
    arrived = _arrivals(changes, held)
    columns: list[Column] = []
    sources: dict[str, str] = {}
    unseen: list[str] = []
    for column in version.schema.columns:
        now = events.now(column.name, held)
        if now.unseen_ts:
            unseen.append(
                f"{version.schema.name}: the column {column.name} at {describe(held)} is not the one of this name at "
                f"{describe(now.unseen_ts)}: a DDL dropped or renamed it. Load the windows between them first"
            )
        elif now.name is not None:
            since = events.since(column.name, max(column.since, arrived.get(folded(column.name), 0)))
            columns.append(msgspec.structs.replace(column, name=now.name, since=since))
            sources[now.name] = column.name
    names = {folded(source): name for name, source in sources.items()}
    unique_keys = tuple(
        tuple(sorted(names[folded(each)] for each in key))
        for key in version.schema.unique_keys
        if all(folded(each) in names for each in key)
    )
    schema = msgspec.structs.replace(version.schema, columns=tuple(columns), unique_keys=unique_keys)
    return MappedVersion(version, msgspec.structs.replace(version, schema=schema), sources, tuple(unseen))


def _arrivals(changes: Sequence[TableChanges], until_ts: int) -> dict[str, int]:
    """When (TSO) columns came, of those that *changes* have brought up to *until_ts*, by folded name."""
    arrived: dict[str, int] = {}
    for entry in changes:
        for change in entry.changes if entry.commit_ts <= until_ts else ():
            if isinstance(change, ColumnAdded):
                arrived[folded(change.column.name)] = entry.commit_ts
            elif isinstance(change, ColumnRenamed):
                arrived[folded(change.to)] = entry.commit_ts
    return arrived


def _parts(
    index: ChangelogIndex, version: TableVersion, events: ColumnEvents, changes: Sequence[TableChanges]
) -> list[TableVersion]:
    """*version*, divided at the events that some of its rows came before; without parts in which it did not hold."""
    first, last = index.extent_of(version)
    cuts = sorted(cut for cut in events.times_of(version) if first <= cut < last)
    if not version.files or not cuts:
        return [version]
    bounds = [first, *(cut + 1 for cut in cuts), last + 1]
    parts = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        found = (file for file in version.files if file.min_commit_ts < end and file.max_commit_ts >= start)
        files = tuple(_part(file, start, end) for file in found)
        if not files or _is_gone(version, events, changes, start, end):  # the definition did not hold in between
            continue
        schema = version.schema
        if number:
            schema = msgspec.structs.replace(schema, valid_from=max(schema.valid_from, start - 1))
        name, rows = f"{version.version}-{number}", sum(file.rows for file in files)
        parts.append(TableVersion(schema, name, version.declared, files, rows))
    return parts


def _is_gone(
    version: TableVersion, events: ColumnEvents, changes: Sequence[TableChanges], start: int, end: int
) -> bool:
    """Whether *version* can't have rows from *start* to *end* (exclusive): *changes*, which are all of the window, took one
    of its columns away since its first row, and brought none of the name again.

    The part of a file's first or last row has rows, whatever DDL is known.
    """
    if any(start <= row_ts < end for file in version.files for row_ts in (file.min_commit_ts, file.max_commit_ts)):
        return False
    first = min(file.min_commit_ts for file in version.files)
    for column in version.schema.columns:
        left_ts = events.left(column.name, start - 1)
        if left_ts >= first and not any(
            left_ts <= entry.commit_ts < end - 1 and any(_may_bring(change, column.name) for change in entry.changes)
            for entry in changes
        ):
            return True
    return False


def _may_bring(change: Change, name: str) -> bool:
    """Whether after *change* the table may have a column called *name* that it lacked before."""
    if isinstance(change, ColumnAdded):
        return folded(change.column.name) == folded(name)
    if isinstance(change, ColumnRenamed):
        return folded(change.to) == folded(name)
    return isinstance(change, BreakingChange | TableCreated)


def _part(file: DataFile, start: int, end: int) -> DataFile:
    """What of *file* has a commitTs from *start* to *end* (exclusive). How many rows that are is not known: the last part
    of a file counts them all, so that the sum is right."""
    first, last = max(start, file.min_commit_ts), min(end - 1, file.max_commit_ts)
    if (first, last) == (file.min_commit_ts, file.max_commit_ts):
        return file
    rows = file.rows if last == file.max_commit_ts else 0
    return msgspec.structs.replace(
        file, rows=rows, min_commit_ts=first, max_commit_ts=last, only=Window(first, last + 1)
    )
