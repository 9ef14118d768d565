"""A window's changelog and its fold as Parquet below a URI, for lakes and engines that read files.

    <uri>/<pipeline>/changelog/schema=…/table=…/version=…/window=<from>-<to>/run=<run_hash>/<file>.parquet
    <uri>/<pipeline>/fold/schema=…/table=…/version=…/window=<from>-<to>/run=<run_hash>/<file>.parquet
    <uri>/<pipeline>/loads/window=<from>-<to>/run=<run_hash>.json

Both hold rows in the changelog's layout. The fold has the last version of each row of the window, deletes included (``_op``
delete): what brings a table from its state before the window to its state after it. Tables without key have no fold.

Names and content of the files follow from the changelog alone, so a repeat writes the same files again; the JSON file is
written once, last, and lists them: a window without it is not loaded.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.index import Ddl, TableVersion
from ticdc_replay.changelog.layout import escape
from ticdc_replay.changelog.types import table_arrow_schema
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Execute, Field, Load, Loaded, StoreAddress, TableReport, Target
from ticdc_replay.targets.config import ParquetTarget
from ticdc_replay.targets.files import batch_rows, file_errors, make_parent
from ticdc_replay.targets.last_versions import (
    Fold,
    FoldFile,
    FoldGroup,
    LastVersions,
    fold_groups,
    found_last_versions,
    winning_rows,
)

COPY_BYTES = 16 * 1024 * 1024


class WrittenFile(msgspec.Struct, frozen=True):
    """A file of the target, relative to its URI."""

    name: str
    rows: int


class WindowManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a window left in the target; equal for every repeat."""

    format: int = 1
    pipeline: str
    run_hash: str
    input_hash: str
    window: Window
    tables: tuple[TableReport, ...]
    changelog: tuple[WrittenFile, ...]
    fold: tuple[WrittenFile, ...]
    ddl: tuple[Ddl, ...]
    """The window's DDL of these tables, which rows do not tell."""


class CopyTask(msgspec.Struct, frozen=True):
    """One file of the changelog, and its name in the target."""

    artifacts: StoreAddress
    source: str
    target: StoreAddress
    name: str
    rows: int


class TakeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the changelog, and where its last versions go."""

    artifacts: StoreAddress
    fold: Fold
    number: int
    """The file's place in the fold."""
    target: StoreAddress
    name: str


class Taken(msgspec.Struct, frozen=True):
    """What one file of the fold holds; nothing is written where ``rows`` is 0."""

    table: TableName
    name: str
    rows: int
    deletes: int


class ParquetFiles(Target[ParquetTarget]):
    """Writes windows as files."""

    type: ClassVar[str] = "parquet"

    def load(self, load: Load, execute: Execute) -> Loaded:
        target = StoreAddress(self.config.uri, self.connections.get(self.config.connection))
        store = target.open()
        name = f"{load.index.pipeline}/loads/{_window(load)}/run={load.index.run_hash}.json"
        if not load.reload:
            try:
                done = msgspec.json.decode(store.get(name), type=WindowManifest)
            except ArtifactNotFoundError:
                pass
            else:
                return Loaded(tuple(msgspec.structs.replace(table, outcome="done_before") for table in done.tables))
        copied: list[WrittenFile] = []
        if self.config.changelog:
            copied = execute(copy_file, _copies(load, target), f"copy to {self.config.name}")
        taken = _fold(load, target, execute) if self.config.fold else []
        manifest = WindowManifest(
            pipeline=load.index.pipeline,
            run_hash=load.index.run_hash,
            input_hash=load.index.input_hash,
            window=load.index.window,
            tables=tuple(self._report(load, table, target, taken) for table in load.tables),
            changelog=tuple(sorted(copied, key=_name)),
            fold=tuple(sorted((WrittenFile(file.name, file.rows) for file in taken if file.rows), key=_name)),
            ddl=tuple(ddl for ddl in load.index.ddl if TableName(ddl.schema, ddl.table) in load.tables),
        )
        store.put_once(name, canonical.encode(manifest))
        return Loaded(manifest.tables)

    def _report(self, load: Load, table: TableName, target: StoreAddress, taken: Sequence[Taken]) -> TableReport:
        versions = load.versions(table)
        events = sum(version.rows for version in versions)
        keyless = any(not version.schema.handle_key for version in versions)
        kind = "fold" if self.config.fold and not self.config.changelog else "changelog"
        report = TableReport(
            table=table,
            outcome="loaded" if self.config.changelog or not keyless else "without_key",
            destination=target.uri + "/" + _table_folder(load, kind, table),
            fields=_fields(versions),
            events=events,
        )
        if keyless or not self.config.fold:
            return msgspec.structs.replace(report, keys=events, upserted=events)
        keys = sum(file.rows for file in taken if file.table == table)
        deletes = sum(file.deletes for file in taken if file.table == table)
        return msgspec.structs.replace(
            report, keys=keys, folded=events - keys, upserted=keys - deletes, tombstones=deletes
        )


def copy_file(task: CopyTask) -> WrittenFile:
    """Copy one file of the changelog; a repeat replaces it by the same bytes."""
    source, root = task.artifacts.open().arrow_filesystem()
    target, target_root = task.target.open().arrow_filesystem()
    with file_errors(f"copy {task.source} to {task.target.uri}/{task.name}"):
        make_parent(target, f"{target_root}/{task.name}")
        with (
            source.open_input_stream(f"{root}/{task.source}") as reader,
            target.open_output_stream(f"{target_root}/{task.name}") as writer,
        ):
            while chunk := reader.read(COPY_BYTES):
                writer.write(chunk)
    return WrittenFile(task.name, task.rows)


def _copies(load: Load, target: StoreAddress) -> list[CopyTask]:
    return [
        CopyTask(
            load.artifacts,
            f"{load.changelog_root}/{file.name}",
            target,
            f"{_folder(load, 'changelog', version)}/{file.name.rpartition('/')[2]}",
            file.rows,
        )
        for table in load.tables
        for version in load.versions(table)
        for file in version.files
    ]


def take_last_versions(task: TakeTask) -> Taken:
    """Write the last versions of one data file. A repeat writes the same bytes under the same name."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    target, target_root = task.target.open().arrow_filesystem()
    table, source, path = task.fold.table, task.fold.files[task.number], f"{target_root}/{task.name}"
    positions = LastVersions(filesystem, root).positions(task.fold, task.number)
    if len(positions) == 0:
        return Taken(table, task.name, 0, 0)
    deletes = 0
    with file_errors(f"fold {source} into {task.target.uri}/{task.name}"):
        make_parent(target, path)
        options = {"filesystem": target, "compression": "zstd", "compression_level": 1}
        with (
            pq.ParquetFile(f"{root}/{source}", filesystem=filesystem) as file,
            pq.ParquetWriter(path, file.schema_arrow, **options) as writer,
        ):
            for rows in winning_rows(file.iter_batches(batch_rows(file.metadata)), positions):
                deletes += pc.sum(pc.equal(rows["_op"], "delete"), min_count=0).as_py()
                writer.write_batch(rows)
    return Taken(table, task.name, len(positions), deletes)


def _fold(load: Load, target: StoreAddress, execute: Execute) -> list[Taken]:
    groups = fold_groups(load, {table: load.versions(table) for table in load.tables})
    with found_last_versions(load, groups, execute):
        return execute(
            take_last_versions,
            [_take_task(load, target, group, entry) for group in groups for entry in group.files],
            "write the last version of each row",
        )


def _take_task(load: Load, target: StoreAddress, group: FoldGroup, entry: FoldFile) -> TakeTask:
    return TakeTask(
        artifacts=load.artifacts,
        fold=group.fold,
        number=entry.number,
        target=target,
        name=f"{_folder(load, 'fold', entry.version)}/{entry.file.name.rpartition('/')[2]}",
    )


def _window(load: Load) -> str:
    return f"window={load.index.window.from_ts}-{load.index.window.to_ts}"


def _table_folder(load: Load, kind: str, table: TableName) -> str:
    return f"{load.index.pipeline}/{kind}/schema={escape(table.schema)}/table={escape(table.table)}"


def _folder(load: Load, kind: str, version: TableVersion) -> str:
    table = _table_folder(load, kind, version.schema.name)
    return f"{table}/version={version.version}/{_window(load)}/run={load.index.run_hash}"


def _fields(versions: Sequence[TableVersion]) -> tuple[Field, ...]:
    if not versions:
        return ()
    return tuple(Field(field.name, str(field.type)) for field in table_arrow_schema(versions[-1].schema))


def _name(file: WrittenFile) -> str:
    return file.name
