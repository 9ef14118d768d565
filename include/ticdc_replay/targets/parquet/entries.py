"""The lists of files that say what the target holds, and where everything lies."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal
from urllib.parse import unquote

import msgspec

from ticdc_replay.changelog.files.index import DataFile, Ddl, TableVersion
from ticdc_replay.changelog.files.layout import escape
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import TableChanges
from ticdc_replay.schemas.ddl.reader import ParsedDdl, TableKey, key_of
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.ddl import changes_by_table

TEXT_OF_OTHERS = 2_000
"""Characters of a DDL in the entry of a table that its event does not name; the run's entry has all of it."""

Kind = Literal["changelog", "fold"]


class ListedFile(msgspec.Struct, frozen=True):
    """A file of the target, relative to its URI."""

    name: str
    rows: int


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The target's files and DDL of one table and window, from the load that ended last."""

    format: int = 1
    run_hash: str
    input_hash: str
    window: Window
    table: TableName
    changelog: tuple[ListedFile, ...]
    fold: tuple[ListedFile, ...]
    ddl: tuple[Ddl, ...]
    """The window's DDL of the table; one that renames it stands under the new name. Texts as ``TEXT_OF_OTHERS`` says."""
    changes: tuple[TableChanges, ...] = ()
    """Its effect on the table, which rows do not show."""
    emptied_ts: int = 0
    """The last TRUNCATE, DROP, CREATE or RENAME to another name of the window (TSO), or 0: no older row is left under
    this name upstream."""
    untold_ts: int = 0
    """The last DDL of the window (TSO), or 0, that moved or may have moved rows that no file of this name has."""
    runs: tuple[str, ...] = ()
    """The runs whose rows are in the files, where these are several: a run, and re-drives of its quarantine."""
    generation: int = 0
    """Of the run: an entry is never replaced by one with a smaller generation."""


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one run left in the target; equal for every repeat with the same options."""

    format: int = 1
    pipeline: str
    run_hash: str
    input_hash: str
    window: Window
    kinds: tuple[Kind, ...]
    """What was asked for."""
    tables: tuple[TableReport, ...]
    changelog: tuple[ListedFile, ...]
    fold: tuple[ListedFile, ...]
    ddl: tuple[Ddl, ...]
    changes: tuple[TableChanges, ...] = ()


class EntryParts:
    """A run's entry, table by table."""

    def __init__(self, run: RunEntry) -> None:
        self._run = run
        self._changes = changes_by_table(run.changes)
        self._ddl = DdlByTable(run.ddl)
        self._files: dict[str, list[ListedFile]] = defaultdict(list)
        for file in (*run.changelog, *run.fold):
            self._files[file.name.rsplit("/", _LEVELS)[0]].append(file)

    def of(self, table: TableName, runs: tuple[str, ...], generation: int) -> TableEntry:
        """The part of *table*, with the rows of *runs* where these are several."""
        run, changes = self._run, self._changes.get(table, ())
        return TableEntry(
            run_hash=run.run_hash,
            input_hash=run.input_hash,
            window=run.window,
            table=table,
            changelog=tuple(self._files.get(table_folder(run.pipeline, "changelog", table), ())),
            fold=tuple(self._files.get(table_folder(run.pipeline, "fold", table), ())),
            ddl=tuple(_shortened_for(table, ddl) for ddl in self._ddl.of(table, changes)),
            changes=changes,
            emptied_ts=max((entry.commit_ts for entry in changes if entry.ends_rows), default=0),
            untold_ts=max((entry.commit_ts for entry in changes if entry.moves_rows), default=0),
            runs=runs,
            generation=generation,
        )


def _shortened_for(table: TableName, ddl: Ddl) -> Ddl:
    """*ddl*, its text cut if its event is another table's: one DDL may name a thousand tables."""
    if len(ddl.query) <= TEXT_OF_OTHERS or (ddl.schema, ddl.table) == (table.schema, table.table):
        return ddl
    return msgspec.structs.replace(ddl, query=f"{ddl.query[:TEXT_OF_OTHERS]} … ({len(ddl.query)} characters)")


class DdlByTable:
    """DDL, table by table."""

    def __init__(self, ddl: Iterable[Ddl]) -> None:
        self._ddl = tuple(ddl)
        self._own: dict[TableName, list[int]] = defaultdict(list)
        self._at: dict[int, list[int]] = defaultdict(list)
        self._naming: dict[int, dict[TableKey, list[int]]] = {}
        """Of moments that were asked for: the DDL that names a table in its text; without schema, where it may be any."""
        self._of_databases: dict[int, dict[str, int]] = defaultdict(dict)
        for number, entry in enumerate(self._ddl):
            if entry.table:
                self._own[TableName(entry.schema, entry.table)].append(number)
                self._at[entry.commit_ts].append(number)
            else:
                self._of_databases[entry.commit_ts][folded(entry.schema)] = number

    def of(self, table: TableName, changes: Iterable[TableChanges]) -> tuple[Ddl, ...]:
        """The DDL of *table*.

        For a change whose moment has no DDL of this name, such as a RENAME to another one, all DDL that it may be:
        statements that name the table, and the last one of the database.
        """
        own = self._own.get(table, [])
        found = set(own)
        for commit_ts in {entry.commit_ts for entry in changes} - {self._ddl[number].commit_ts for number in own}:
            of_databases = self._of_databases.get(commit_ts, {})
            here = {of_databases[schema] for schema in (folded(table.schema), "") if schema in of_databases}
            naming, key = self._names_at(commit_ts), key_of(table)
            found |= {*naming.get(key, ()), *naming.get(("", key[1]), ()), *(here or of_databases.values())}
        return tuple(self._ddl[number] for number in sorted(found))

    def _names_at(self, commit_ts: int) -> dict[TableKey, list[int]]:
        if commit_ts not in self._naming:
            naming: dict[TableKey, list[int]] = defaultdict(list)
            for number in self._at.get(commit_ts, ()):
                ddl = ParsedDdl(self._ddl[number].event)
                for key in (*ddl.names, *(("", name) for name in ddl.taken)):
                    naming[key].append(number)
            self._naming[commit_ts] = naming
        return self._naming[commit_ts]


def run_entry_name(load: Load) -> str:
    """The name of the run's entry."""
    return f"{load.index.pipeline}/loads/{_window(load)}/run={load.index.run_hash}.json"


def marks_name(load: Load, window: Window) -> str:
    """The name of the list of loads of *window* that have begun."""
    return f"{load.index.pipeline}/generations/{_part(window)}.json"


def table_entry_name(load: Load, table: TableName, window: Window | None = None) -> str:
    """The name of the entry of *table* in *window*, that of *load* where none is given, whatever run loads it."""
    return f"{table_folder(load.index.pipeline, 'current', table)}/{_part(window or load.index.window)}.json"


def table_folder(pipeline: str, kind: Kind | Literal["current"], table: TableName) -> str:
    """The folder of all windows of *table*."""
    return f"{pipeline}/{kind}/schema={escape(table.schema)}/table={escape(table.table)}"


def known_tables(store: ObjectStore, load: Load) -> list[TableName]:
    """The tables of the load's selection with entries in the target, for any window. Lists only their folders, since
    each has one entry per window."""
    wanted = TablePatterns(load.selection)
    tables = (
        TableName(_named(of_schema), _named(of_table))
        for of_schema in store.folders(f"{load.index.pipeline}/current/")
        for of_table in store.folders(of_schema)
    )
    return [name for name in tables if wanted.wants(name.schema, name.table)]


def _named(folder: str) -> str:
    """The name in the last part of *folder*, ``…/schema=<name>/`` or ``…/table=<name>/``."""
    return unquote(folder.split("/")[-2].partition("=")[2])


_LEVELS = 4
"""Of a file's name below the folder of its table: version, window, run and the file; see ``file_name``."""


def file_name(load: Load, kind: Kind, version: TableVersion, source: DataFile) -> str:
    """The name of what is made of the changelog's file *source*, or of the rows of it that count."""
    folder = f"{table_folder(load.index.pipeline, kind, version.schema.name)}/version={version.version}"
    name = source.name.rpartition("/")[2]
    if source.only is not None:  # a changelog may take several parts of a file
        name = f"{name.removesuffix('.parquet')}-{source.only.from_ts}.parquet"
    return f"{folder}/{_window(load)}/run={load.index.run_hash}/{name}"


def _window(load: Load) -> str:
    return _part(load.index.window)


def _part(window: Window) -> str:
    return f"window={window.from_ts}-{window.to_ts}"
