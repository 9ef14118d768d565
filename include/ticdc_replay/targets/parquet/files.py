"""The tasks that write the target's files. A repeat replaces a file by the same rows, in one step."""

from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, copy_files

from ticdc_replay.changelog.files.parts import batch_rows, batches_of, counted
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import file_errors, whole_file
from ticdc_replay.targets.last_versions import Fold, LastVersions, winning_rows
from ticdc_replay.targets.parquet.entries import ListedFile
from ticdc_replay.targets.parquet.repeats import staying


class CopyTask(msgspec.Struct, frozen=True):
    """One file of the changelog, and its name in the target."""

    artifacts: StoreAddress
    source: str
    target: StoreAddress
    name: str
    rows: int
    only: Window | None = None
    """Which rows of it are copied, by their commitTs; all where it is None."""
    left_out: bytes = b""
    """The positions (int64, ascending) of rows that are not copied: they stand in another file, too."""


class TakeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the changelog, and where its last versions go."""

    artifacts: StoreAddress
    fold: Fold
    number: int
    """The file's place in the fold."""
    target: StoreAddress
    name: str


class FoldedFile(msgspec.Struct, frozen=True):
    """What one file of the fold holds; nothing is written where ``rows`` is 0."""

    table: TableName
    name: str
    rows: int
    deletes: int


def copy_file(task: CopyTask) -> ListedFile:
    """Copy one file of the changelog, or the rows of it that count."""
    source, root = task.artifacts.open().arrow_filesystem()
    target, target_root = task.target.open().arrow_filesystem()
    with (
        file_errors(f"copy {task.source} to {task.target.uri}/{task.name}"),
        whole_file(target, f"{target_root}/{task.name}") as path,
    ):
        if task.only is None and not task.left_out:
            copy_files(
                f"{root}/{task.source}", path, source_filesystem=source, destination_filesystem=LocalFileSystem()
            )
        else:
            _copy_rows(source, f"{root}/{task.source}", task, path)
    return ListedFile(task.name, task.rows)


def take_last_versions(task: TakeTask) -> FoldedFile:
    """Write the last versions of one data file."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    target, target_root = task.target.open().arrow_filesystem()
    table, source = task.fold.table, task.fold.files[task.number]
    positions = LastVersions(filesystem, root).positions(task.fold, task.number)
    if len(positions) == 0:
        return FoldedFile(table, task.name, 0, 0)
    deletes = 0
    with (
        file_errors(f"fold {source} into {task.target.uri}/{task.name}"),
        whole_file(target, f"{target_root}/{task.name}") as path,
        pq.ParquetFile(f"{root}/{source}", filesystem=filesystem) as file,
        pq.ParquetWriter(path, file.schema_arrow, compression="zstd", compression_level=1) as writer,
    ):
        for rows in winning_rows(file, positions, batch_rows(file.metadata)):
            deletes += pc.sum(pc.equal(rows["_op"], "delete"), min_count=0).as_py()
            writer.write_batch(rows)
    return FoldedFile(table, task.name, len(positions), deletes)


def _copy_rows(filesystem: Any, source: str, task: CopyTask, path: str) -> None:
    left_out = np.frombuffer(task.left_out, np.int64)
    with (
        pq.ParquetFile(source, filesystem=filesystem) as file,
        pq.ParquetWriter(path, file.schema_arrow, compression="zstd", compression_level=1) as writer,
    ):
        for start, batch in batches_of(file, task.only, rows=batch_rows(file.metadata)):
            inside, stays = counted(batch, task.only), staying(batch, start, left_out)
            rows = batch.filter(stays if inside is None else pc.and_(inside, stays))
            if rows.num_rows:
                writer.write_batch(rows)
