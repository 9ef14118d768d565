"""The target: which files a load writes, and in which order they become the window's."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import get_args

import msgspec

from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.changelog.files.index import TableVersion
from ticdc_replay.domain import canonical
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import (
    Execute,
    FoundRow,
    HeldTable,
    Load,
    Loaded,
    StoreAddress,
    TableReport,
    Target,
    TargetColumn,
)
from ticdc_replay.targets.database_ddl import with_creations_of, with_ddl_of
from ticdc_replay.targets.ddl import changes_by_table
from ticdc_replay.targets.last_versions import fold_groups, found_last_versions
from ticdc_replay.targets.parquet.dropped_databases import DroppedDatabases
from ticdc_replay.targets.parquet.entries import (
    DdlByTable,
    EntryParts,
    Kind,
    ListedFile,
    RunEntry,
    file_name,
    known_tables,
    run_entry_name,
    table_folder,
)
from ticdc_replay.targets.parquet.files import CopyTask, FoldedFile, TakeTask, copy_file, take_last_versions
from ticdc_replay.targets.parquet.lists import Lists, content_of
from ticdc_replay.targets.parquet.redriven import runs_in, runs_of, with_rows_before
from ticdc_replay.targets.parquet.repeats import Repeats, without_repeats
from ticdc_replay.targets.parquet.section import ParquetTarget
from ticdc_replay.targets.shaped_load import require_unmoved


class ParquetFiles(Target[ParquetTarget]):
    """Writes windows as files."""

    def load(self, load: Load, execute: Execute) -> Loaded:
        target = StoreAddress(self.config.uri, self.connections.get(self.config.connection))
        store = target.open()
        kinds: tuple[Kind, ...] = (*self._kind("changelog"), *self._kind("fold"))
        dropped = DroppedDatabases(store, load)
        if load.index.ddl and not load.index.redrives:
            known = known_tables(store, load)
            load = with_creations_of(with_ddl_of(load, known), known)
        lists = Lists(store, load)
        runs = {table: runs_of(load, table, lists.before(table)) for table in load.tables if load.index.redrives}
        if not load.reload:
            done = _done(store, load)
            asked = (kinds, load.tables)
            if lists.have_the_run() and done and (done.kinds, tuple(each.table for each in done.tables)) == asked:
                reports = (msgspec.structs.replace(table, outcome="done_before") for table in done.tables)
                return Loaded(tuple(reports), other_runs=_other_runs(load, lists))
        lists.begin()
        left_out: Repeats = {}
        if runs:
            load = with_creations_of(with_ddl_of(with_rows_before(load, runs), ()), ())
            load, left_out = without_repeats(load, {run for table in runs.values() for run in table[1:]}, execute)
        dropped.record(load, own=False)
        copied: list[ListedFile] = []
        if self.config.changelog:
            copied = execute(copy_file, _copies(load, target, left_out), f"copy to {self.config.name}")
        taken = _fold(load, target, execute) if self.config.fold else []
        taken_of: defaultdict[TableName, list[FoldedFile]] = defaultdict(list)
        for file in taken:
            taken_of[file.table].append(file)
        by_table, ddl_by_table = changes_by_table(load.index.changes), DdlByTable(load.index.ddl)
        changes = {table: by_table.get(table, ()) for table in load.tables}
        ddl = {ddl for table, own in changes.items() for ddl in ddl_by_table.of(table, own)}
        entry = RunEntry(
            pipeline=load.index.pipeline,
            run_hash=load.index.run_hash,
            input_hash=load.index.input_hash,
            window=load.index.window,
            kinds=kinds,
            tables=tuple(self._report(load, table, target, taken_of[table]) for table in load.tables),
            changelog=tuple(sorted(copied, key=attrgetter("name"))),
            fold=tuple(
                sorted((ListedFile(file.name, file.rows) for file in taken if file.rows), key=attrgetter("name"))
            ),
            ddl=tuple(each for each in load.index.ddl if each in ddl),
            changes=tuple(dict.fromkeys(entry for own in changes.values() for entry in own)),
        )
        # The run's entry says that nothing is left to do, so it comes last: an attempt that broke before is done again.
        # Tables that another run of the window had, or is about to list, and this one does not, get an entry without files: what
        # that run left of them is not the window's any more, and a reader that has seen the entry's name still finds it.
        lists.look_again()
        require_unmoved(load, self.config, *load.tables)
        parts = EntryParts(entry)
        for table in (*load.tables, *lists.replaced()):
            lists.replace(table, parts.of(table, runs.get(table, ()), load.generation))
        dropped.record(load, own=True)
        store.put(run_entry_name(load), canonical.encode(entry))
        return Loaded(entry.tables)

    def holds(self, pipeline: str, table: TableName) -> bool:
        store = StoreAddress(self.config.uri, self.connections.get(self.config.connection)).open()
        folders = [table_folder(pipeline, kind, table) for kind in get_args(Kind)]
        return any(next(iter(store.list(f"{folder}/")), None) is not None for folder in folders)

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        """The files of a window are where its run says, with the names of the changelog's files."""
        kind: Kind = "changelog" if self.config.changelog else "fold"
        folder = f"{self.config.uri.rstrip('/')}/{table_folder(pipeline, kind, table)}"
        return FoundRow(
            where=folder,
            keeps="all" if self.config.changelog else "window",
            not_looked="the files of a window are below version=<version>/window=<from_ts>-<to_ts>/run=<run_hash> of this folder",
        )

    def _kind(self, kind: Kind) -> tuple[Kind, ...]:
        return (kind,) if getattr(self.config, kind) else ()

    def _report(self, load: Load, table: TableName, target: StoreAddress, taken: Sequence[FoldedFile]) -> TableReport:
        versions = load.index.versions_of(table)
        events = sum(version.rows for version in versions)
        keyless = any(not version.schema.handle_key for version in versions)
        kind: Kind = "fold" if self.config.fold and not self.config.changelog else "changelog"
        report = TableReport(
            table=table,
            outcome="loaded" if self.config.changelog or not keyless else "without_key",
            destination=target.uri + "/" + table_folder(load.index.pipeline, kind, table),
            fields=_fields(versions),
            events=events,
        )
        if keyless or not self.config.fold:
            return msgspec.structs.replace(report, keys=events, upserted=events)
        keys = sum(file.rows for file in taken)
        deletes = sum(file.deletes for file in taken)
        return msgspec.structs.replace(
            report, keys=keys, folded=events - keys, upserted=keys - deletes, tombstones=deletes
        )


def _done(store: ObjectStore, load: Load) -> RunEntry | None:
    found = content_of(store, run_entry_name(load))
    return None if found is None else msgspec.json.decode(found, type=RunEntry)


def _other_runs(load: Load, lists: Lists) -> tuple[HeldTable, ...]:
    held = {HeldTable(run, table) for table in lists.tables for run in runs_in(lists.before(table))}
    return tuple(sorted(each for each in held if each.run_hash != load.index.run_hash))


def _copies(load: Load, target: StoreAddress, left_out: Repeats) -> list[CopyTask]:
    return [
        CopyTask(
            load.artifacts,
            load.file_name(file, table=table),
            target,
            file_name(load, "changelog", version, file),
            file.rows,
            file.only,
            left_out.get(file, b""),
        )
        for table in load.tables
        for version in load.index.versions_of(table)
        for file in version.files
    ]


def _fold(load: Load, target: StoreAddress, execute: Execute) -> list[FoldedFile]:
    groups = fold_groups(load, {table: load.index.versions_of(table) for table in load.tables})
    tasks = [
        TakeTask(
            artifacts=load.artifacts,
            fold=group.fold,
            number=entry.number,
            target=target,
            name=file_name(load, "fold", entry.version, entry.file),
        )
        for group in groups
        for entry in group.files
    ]
    with found_last_versions(load, groups, execute):
        return execute(take_last_versions, tasks, "write the last version of each row")


def _fields(versions: Sequence[TableVersion]) -> tuple[TargetColumn, ...]:
    if not versions:
        return ()
    return tuple(TargetColumn(field.name, str(field.type)) for field in table_arrow_schema(versions[-1].schema))
