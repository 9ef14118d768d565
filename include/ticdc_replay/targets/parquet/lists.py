"""Replaces the lists of a window's files, so that an older run's list never follows a newer one's."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError, TransientError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark, refuse_superseded, superseded, with_mark
from ticdc_replay.targets.parquet.entries import TableEntry, known_tables, marks_name, table_entry_name
from ticdc_replay.targets.parquet.redriven import runs_in

READERS = 16
"""How many entries are asked for at once."""
_Answer = TypeVar("_Answer")


class Lists:
    """The lists of one load's window. What they hold when this is made is what the load builds on."""

    def __init__(self, store: ObjectStore, load: Load) -> None:
        self._store = store
        self._load = load
        self._announced: set[TableName] = set()
        others = [] if load.index.redrives else self._known_others()
        found = self._ask(lambda name: content_of(store, name), [*load.tables, *others])
        own = set(load.tables)
        self._before = {table: content for table, content in found.items() if content is not None or table in own}

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables whose entries were read: those of the load, and those that another run left an entry of."""
        return tuple(self._before)

    def have_the_run(self) -> bool:
        """Whether each of the tables has the rows of the load's run, or those of a newer one, in whose place none are put."""
        run = self._load.index.run_hash
        entries = [self.before(table) for table in self._before]
        if self._load.index.redrives:
            return all(run in runs_in(entry) for entry in entries)
        return all(
            entry is not None and (runs_in(entry)[0] == run or entry.generation > self._load.generation)
            for entry in entries
        )

    def before(self, table: TableName) -> TableEntry | None:
        """The entry of *table* when this was made; None where there was none."""
        return entry_in(self._before.get(table))

    def begin(self) -> None:
        """Leave the load's mark. Raises SupersededError if a newer run of the window, or of a source's, has begun with
        one of its tables."""

        own = msgspec.structs.replace(Mark.of(self._load), tables=self._load.tables)

        def marked(found: bytes | None) -> bytes:
            marks = marks_in(found)
            refuse_superseded(self._load, marks, self._before)
            self._announced = {table for mark in marks for table in mark.tables}
            return canonical.encode(with_mark(marks, own))

        self._store.update(marks_name(self._load, self._load.index.window), marked)
        self.look_again()

    def look_again(self) -> None:
        """Raise SupersededError where a newer run of the window, or of a source's, has begun with one of the tables."""
        for window in {self._load.index.window, *(source.window for source in self._load.sources)}:
            marks = marks_in(content_of(self._store, marks_name(self._load, window)))
            refuse_superseded(self._load, marks, self._before)

    def replaced(self) -> list[TableName]:
        """The tables without rows in the load whose entries it still replaces; none for a re-drive, which only adds.

        These have an entry of the window, or an earlier load may still write one: it then finds a newer entry.
        """
        if self._load.index.redrives:
            return []
        wanted, own = TablePatterns(self._load.selection), set(self._load.tables)
        announced = {table for table in self._announced - own if wanted.wants(table.schema, table.table)}
        there = self._ask(self._store.info, self._known_others())
        return sorted({*announced, *(table for table, found in there.items() if found is not None)})

    def replace(self, table: TableName, entry: TableEntry) -> None:
        """Make *entry* that of *table*. Raises SupersededError if a newer run has come, TransientError if a load of the
        same generation has changed the entry meanwhile: a repeat builds on that."""
        wanted = canonical.encode(entry)

        def replaced(found: bytes | None) -> bytes:
            there = entry_in(found)
            if found == wanted:
                return wanted
            if there is not None and there.generation > entry.generation:
                raise superseded(self._load, there.run_hash, entry.window)
            older = there is not None and there.generation < entry.generation
            if found != self._before.get(table) and not older:
                raise TransientError(
                    f"target {self._load.target}: another load has changed what window {entry.window} has of {table} while this "
                    "one wrote its files; try again"
                )
            return wanted

        self._store.update(table_entry_name(self._load, table), replaced)

    def _known_others(self) -> list[TableName]:
        """Tables that other runs may have left entries of the window of: a run for some tables leaves those of others alone."""
        own = set(self._load.tables)
        return [table for table in known_tables(self._store, self._load) if table not in own]

    def _ask(self, question: Callable[[str], _Answer], tables: Sequence[TableName]) -> dict[TableName, _Answer]:
        """What *question* says of the entry of each of *tables*; asks for many at once."""
        names = [table_entry_name(self._load, table) for table in tables]
        with ThreadPoolExecutor(READERS, thread_name_prefix="entries") as pool:
            return dict(zip(tables, pool.map(question, names), strict=True))


def content_of(store: ObjectStore, name: str) -> bytes | None:
    """What *name* holds; None where nothing is there."""
    try:
        return store.get(name)
    except ArtifactNotFoundError:
        return None


def entry_in(content: bytes | None) -> TableEntry | None:
    """The entry in *content*; None for none."""
    return None if content is None else msgspec.json.decode(content, type=TableEntry)


def marks_in(content: bytes | None) -> tuple[Mark, ...]:
    """The marks in *content*."""
    return () if content is None else msgspec.json.decode(content, type=tuple[Mark, ...])
