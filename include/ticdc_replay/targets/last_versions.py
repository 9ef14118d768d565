"""Which row of which file is the last version of its key: found before anything wide is read.

The keys of a table are divided into buckets by their hash. One task per bucket reads the narrow columns of all files of the
table and writes the positions of the winners; what reads the wide columns then takes these rows and no others. So a window is
folded exactly, whatever files and workers its rows are in, and nothing is exchanged but positions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.fold import is_put, last_versions, narrow, narrow_columns
from ticdc_replay.changelog.index import DataFile, TableVersion
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Execute, Load, StoreAddress
from ticdc_replay.targets.files import file_errors, make_parent

BUCKET_ROWS = 1_000_000
"""Row versions that one task compares at a time, about: some 60 bytes each and the key."""

_WINNERS = pa.schema([pa.field("file", pa.int32()), pa.field("position", pa.int64())])

Positions = npt.NDArray[np.int64]


class FoldFile(msgspec.Struct, frozen=True):
    """One data file of a group; ``number`` is its place among the group's files."""

    number: int
    version: TableVersion
    file: DataFile


class FoldGroup(msgspec.Struct, frozen=True):
    """The rows of a window that are folded together: those of one table whose keys have the same columns."""

    table: TableName
    handle_key: tuple[str, ...]
    files: tuple[FoldFile, ...]
    winners: tuple[str, ...]
    """Where the positions of the last versions are, one file per bucket, relative to the artefacts."""


class FindTask(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of the keys of one group."""

    table: TableName
    handle_key: tuple[str, ...]
    artifacts: StoreAddress
    files: tuple[str, ...]
    """Relative to the artefacts."""
    bucket: int
    buckets: int
    output: str


def fold_groups(load: Load, tables: Mapping[TableName, Sequence[TableVersion]]) -> list[FoldGroup]:
    """The groups of *tables*, each with the versions that are wanted; none for a table without key.

    Keys of other columns are keys of other rows: should a DDL change them within the window, each kind is a group.
    """
    groups: list[FoldGroup] = []
    outputs = 0
    for table, wanted in tables.items():
        by_key: dict[tuple[str, ...], list[TableVersion]] = {}
        for version in wanted:
            if version.schema.handle_key:
                by_key.setdefault(version.schema.handle_key, []).append(version)
        for handle_key, versions in sorted(by_key.items()):
            files = [(version, file) for version in versions for file in version.files]
            buckets = 1 + sum(file.rows for _, file in files) // BUCKET_ROWS
            names = tuple(f"{load.folder}/winners/{outputs + bucket:05d}.parquet" for bucket in range(buckets))
            numbered = tuple(FoldFile(number, *entry) for number, entry in enumerate(files))
            groups.append(FoldGroup(table, handle_key, numbered, names))
            outputs += buckets
    return groups


@contextmanager
def found_last_versions(load: Load, groups: Sequence[FoldGroup], execute: Execute) -> Iterator[None]:
    """Inside, the winners of *groups* are there to be read."""
    tasks = [
        FindTask(
            table=group.table,
            handle_key=group.handle_key,
            artifacts=load.artifacts,
            files=tuple(f"{load.changelog_root}/{entry.file.name}" for entry in group.files),
            bucket=bucket,
            buckets=len(group.winners),
            output=output,
        )
        for group in groups
        for bucket, output in enumerate(group.winners)
    ]
    try:
        execute(find_last_versions, tasks, "find the last version of each row")
        yield
    finally:
        store = load.artifacts.open()
        for task in tasks:
            store.delete(task.output)


def find_last_versions(task: FindTask) -> str:
    """Write the positions of the last versions of one bucket; the name of what was written. May run twice."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    parts = []
    for number, name in enumerate(task.files):
        with file_errors(f"read {name}"):
            parts += _narrow_parts(filesystem, f"{root}/{name}", number, task)
    try:
        versions = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise PermanentError(
            f"{task.table}: the type of the key changes within the window in a way that can't be compared ({error}); "
            "give the table's definition in the pipeline, or split the window at the change"
        ) from error
    winners = versions.select(_WINNERS.names).take(last_versions(versions))
    with file_errors(f"write {task.output}"):
        make_parent(filesystem, f"{root}/{task.output}")
        # Ordered by file: small row groups let the reader of one file skip those of others.
        pq.write_table(winners.cast(_WINNERS), f"{root}/{task.output}", row_group_size=50_000, filesystem=filesystem)
    return task.output


def read_winners(filesystem: Any, root: str, winners: Sequence[str], number: int) -> Positions:
    """The positions of the last versions in the group's file *number*, ascending."""
    found = [
        pq.read_table(f"{root}/{name}", filesystem=filesystem, filters=[("file", "=", number)], partitioning=None)
        for name in winners
    ]
    return np.sort(pa.concat_tables(found)["position"].to_numpy())


def winning_rows(batches: Iterator[pa.RecordBatch], positions: Positions) -> Iterator[pa.RecordBatch]:
    """The rows at *positions* (ascending) of what *batches*, those of one file, hold together."""
    start = 0
    for batch in batches:
        low, high = np.searchsorted(positions, [start, start + batch.num_rows])
        if high - low == batch.num_rows:
            yield batch
        elif high > low:
            yield batch.take(pa.array(positions[low:high] - start, pa.int64()))
        start += batch.num_rows


def _narrow_parts(filesystem: Any, path: str, number: int, task: FindTask) -> list[pa.Table]:
    parts = []
    start = 0
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        for batch in file.iter_batches(columns=narrow_columns(task.handle_key)):
            part = narrow(batch, task.handle_key, is_put(batch))
            end = start + batch.num_rows
            part = part.append_column("file", pa.array(np.full(batch.num_rows, number, dtype=np.int32)))
            part = part.append_column("position", pa.array(np.arange(start, end, dtype=np.int64)))
            parts.append(part.filter(_in_bucket(part["hash"], task)) if task.buckets > 1 else part)
            start = end
    return parts


def _in_bucket(hashes: pa.ChunkedArray, task: FindTask) -> pa.BooleanArray:
    text = pc.binary_slice(hashes.cast(pa.binary()), 0, 2).combine_chunks()
    first = np.frombuffer(text.cast(pa.binary(2)).buffers()[1], dtype=np.uint16)
    return pa.array(first % task.buckets == task.bucket)
