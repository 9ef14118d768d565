"""Databases that the upstream dropped, noted for tables that the target gets later: one file for the pipeline.

A DROP DATABASE names no table, so only tables with entries get it when its window is loaded. A table that first comes
with an older window, loaded later, finds the note here, and gets the entry in the DROP's window that it would have had.
A newer run of that window replaces this entry as any other.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter

import msgspec

from ticdc_replay.changelog.files.index import Ddl
from ticdc_replay.domain import canonical
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import TableChanges
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.database_ddl import dropped_databases, drops_of
from ticdc_replay.targets.generations import Mark, wants_any, with_mark
from ticdc_replay.targets.parquet.entries import DdlByTable, TableEntry, marks_name, table_entry_name
from ticdc_replay.targets.parquet.lists import READERS, content_of, entry_in, marks_in


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a window, and re-drives of its quarantine, dropped: the last DROP of each database."""

    window: Window
    selection: tuple[str, ...]
    """Sorted."""
    generation: int
    run_hash: str
    input_hash: str
    ddl: tuple[Ddl, ...]
    dropped: dict[str, int]
    """When (TSO) by the name as the upstream compares names, ``""`` for all."""

    @classmethod
    def of(cls, load: Load) -> "Note":
        """That of *load*, maybe of nothing."""
        index, dropped = load.index, dropped_databases(load.index)
        return cls(
            window=index.window,
            selection=tuple(sorted(load.selection)),
            generation=load.generation,
            run_hash=index.redrives or index.run_hash,
            input_hash=index.input_hash,
            ddl=tuple(each for each in index.ddl if not each.table and each.commit_ts in dropped.values()),
            dropped=dropped,
        )

    @property
    def mark(self) -> Mark:
        """The mark of its load."""
        return Mark(self.window, self.selection, self.generation, self.run_hash)

    def entry(self, table: TableName, changes: tuple[TableChanges, ...], there: TableEntry | None) -> TableEntry:
        """The entry of *table*, with *changes* added to what is *there*."""
        ddl = DdlByTable(self.ddl).of(table, changes)
        emptied_ts = max(change.commit_ts for change in changes)
        if there is None:
            return TableEntry(
                run_hash=self.run_hash,
                input_hash=self.input_hash,
                window=self.window,
                table=table,
                changelog=(),
                fold=(),
                ddl=ddl,
                changes=changes,
                emptied_ts=emptied_ts,
                generation=self.generation,
            )
        return msgspec.structs.replace(
            there,
            ddl=tuple(sorted({*there.ddl, *ddl})),
            changes=tuple(sorted((*there.changes, *changes), key=attrgetter("commit_ts"))),
            emptied_ts=max(emptied_ts, there.emptied_ts),
        )


class DroppedDatabases:
    """What the loads of a pipeline, up to *load*, met of DROP DATABASE."""

    def __init__(self, store: ObjectStore, load: Load) -> None:
        """Notes the drops of the window of *load*, in place of those of an older run, before tables are looked up."""
        self._store = store
        self._name = f"{load.index.pipeline}/database_drops.json"
        own = Note.of(load)
        if own.dropped or self._notes():
            self._store.update(
                self._name, lambda found: canonical.encode(_with(_decoded(found), own, adds=bool(load.index.redrives)))
            )

    def record(self, load: Load, *, own: bool) -> None:
        """Record, in the entries of windows that dropped the database of a table of *load* at or after its start, that
        they did; in its *own* window once its entries are there.

        Until then readers see a whole entry. A DROP that another load has met since is found afterwards, or that load
        finds the entries.
        """
        for note in self._notes():
            if own or note.window != load.index.window:
                self._record(load, note)

    def _record(self, load: Load, note: Note) -> None:
        wanted = TablePatterns(note.selection)
        drops = {
            table: drops_of(table, note.dropped, load.index.window.from_ts)
            for table in load.tables
            if wanted.wants(table.schema, table.table)
        }
        drops = {table: changes for table, changes in drops.items() if changes}
        names = {table: table_entry_name(load, table, note.window) for table in drops}
        with ThreadPoolExecutor(READERS, thread_name_prefix="entries") as pool:
            found = dict(zip(names, pool.map(lambda name: content_of(self._store, name), names.values()), strict=True))
        lacking = [table for table in drops if _lacking(note, entry_in(found[table]), drops[table])]
        for table in self._announced(load, note, lacking):
            self._store.update(names[table], partial(_with_drops, note, table, drops[table]))

    def _announced(self, load: Load, note: Note, tables: list[TableName]) -> list[TableName]:
        """Those of *tables* that no newer run of the window of *note* is for, once its mark names them: a newer run
        that begins later replaces their entries."""
        announced: list[TableName] = []

        def marked(found: bytes | None) -> bytes:
            nonlocal announced
            marks = marks_in(found)
            newer = [mark for mark in marks if mark.generation > note.generation]
            announced = [table for table in tables if not any(wants_any(mark, [table]) for mark in newer)]
            if not announced and found is not None:
                return found
            return canonical.encode(
                with_mark(marks, msgspec.structs.replace(note.mark, tables=tuple(sorted(announced))))
            )

        if tables:
            self._store.update(marks_name(load, note.window), marked)
        return announced

    def _notes(self) -> tuple[Note, ...]:
        return _decoded(content_of(self._store, self._name))


def _with(notes: Iterable[Note], own: Note, *, adds: bool) -> tuple[Note, ...]:
    """*notes* with *own* in place of that of an older run of the window; what a re-drive *adds* to its run stays with it."""
    before = next((note for note in notes if (note.window, note.selection) == (own.window, own.selection)), None)
    if before is not None and (before.generation > own.generation or (adds and not own.dropped)):
        return tuple(notes)
    if before is not None and (before.run_hash, before.generation) == (own.run_hash, own.generation):
        names = {*before.dropped, *own.dropped}
        latest = {name: max(before.dropped.get(name, 0), own.dropped.get(name, 0)) for name in sorted(names)}
        ddl = sorted(each for each in {*before.ddl, *own.ddl} if each.commit_ts in latest.values())
        own = msgspec.structs.replace(before, ddl=tuple(ddl), dropped=latest)
    others = (note for note in notes if note is not before)
    return tuple(sorted((*others, own) if own.dropped else others, key=attrgetter("mark")))


def _lacking(note: Note, there: TableEntry | None, drops: tuple[TableChanges, ...]) -> tuple[TableChanges, ...]:
    """Those of *drops* that the entry *there* lacks; none if it is from another run, which knows its own."""
    if there is not None and there.generation != note.generation:
        return ()
    known = {entry.commit_ts for entry in there.changes} if there is not None else set()
    return tuple(entry for entry in drops if entry.commit_ts not in known)


def _with_drops(note: Note, table: TableName, drops: tuple[TableChanges, ...], found: bytes | None) -> bytes:
    there = entry_in(found)
    changes = _lacking(note, there, drops)
    if found is not None and not changes:
        return found
    return canonical.encode(note.entry(table, changes, there))


def _decoded(content: bytes | None) -> tuple[Note, ...]:
    return () if content is None else msgspec.json.decode(content, type=tuple[Note, ...])
