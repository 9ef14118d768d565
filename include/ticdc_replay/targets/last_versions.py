"""Which row of which file is the last version of its key: found before anything wide is read.

Keys are divided into buckets by their hash. One task per bucket reads the narrow columns of all files of a table and
writes the positions of the winners; whoever reads the wide columns takes only these rows. So a window is folded
exactly, wherever its rows are, and only positions are exchanged. For a small table each worker finds the positions
itself, which is cheaper.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.fold import (
    by_value,
    is_put,
    last_versions,
    narrow,
    narrow_columns,
    refuse_moved,
    zeros_alike,
)
from ticdc_replay.changelog.files.index import DataFile, TableVersion
from ticdc_replay.changelog.files.parts import batches_of, counted, groups_with, rows_where
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Execute, Load, StoreAddress
from ticdc_replay.targets.files import file_errors, make_parent

BUCKET_ROWS = 1_000_000
"""Row versions that one task compares at a time, about: some 60 bytes each and the key."""

_WINNERS = pa.schema([pa.field("file", pa.int32()), pa.field("position", pa.int64())])

Positions = npt.NDArray[np.int64]


class Fold(msgspec.Struct, frozen=True):
    """Files whose rows are folded together, as a worker needs it: names are relative to the artefacts."""

    table: TableName
    handle_key: tuple[str, ...]
    files: tuple[str, ...]
    winners: tuple[str, ...]
    """Where the positions of the last versions are, one file per bucket; none where each worker finds them by itself."""
    order: VersionOrder
    only: tuple[Window | None, ...] = ()
    """Which rows of each file count, as ``DataFile.only`` has it; none where all rows of all files do."""
    decimals: tuple[str, ...] | None = None
    """Set where one key may have been written in several ways, so that keys are compared by value: the decimals of the key."""
    signed: tuple[str, ...] = ()
    """The columns of the key that may hold -0, which is 0."""
    takes_all: bool = False
    """Whether every row counts, and none is compared: the target itself finds rows with one key."""

    def window_of(self, number: int) -> Window | None:
        """Which rows of file *number* count, by their commitTs."""
        return self.only[number] if self.only else None


class FoldFile(msgspec.Struct, frozen=True):
    """One data file; ``number`` is its place among the files of its fold."""

    number: int
    version: TableVersion
    file: DataFile


class FoldGroup(msgspec.Struct, frozen=True):
    """The rows of a window that are folded together: those of one table whose keys have the same columns."""

    fold: Fold
    files: tuple[FoldFile, ...]


class FindTask(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of the keys of one fold."""

    fold: Fold
    artifacts: StoreAddress
    bucket: int


def fold_groups(
    load: Load,
    tables: Mapping[TableName, Sequence[TableVersion]],
    small_rows: int = 0,
    *,
    all_rows_of: Collection[TableName] = (),
) -> list[FoldGroup]:
    """The groups of *tables*, each with its wanted versions; none for a table without key.

    Keys with other columns belong to other rows: if DDL changes them within the window, each kind is a group. For
    groups of up to *small_rows* row versions, each worker finds the last versions itself. Of *all_rows_of* every row counts.
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
            rows = sum(file.rows for _, file in files)
            buckets = 0 if rows <= small_rows or table in all_rows_of else 1 + rows // BUCKET_ROWS
            winners = tuple(f"{load.folder}/winners/{outputs + bucket:05d}.parquet" for bucket in range(buckets))
            names = tuple(load.file_name(file, table=table) for _, file in files)
            numbered = tuple(FoldFile(number, *entry) for number, entry in enumerate(files))
            only = tuple(file.only for _, file in files)
            fold = Fold(
                table,
                handle_key,
                names,
                winners,
                load.index.order,
                only if any(only) else (),
                _decimals(handle_key, versions),
                _signed(handle_key, versions),
                table in all_rows_of,
            )
            groups.append(FoldGroup(fold, numbered))
            outputs += buckets
    return groups


def _decimals(handle_key: Sequence[str], versions: Sequence[TableVersion]) -> tuple[str, ...] | None:
    """See ``Fold.decimals``: None where every key is written in one way, as by far most are."""
    columns = {name: [version.schema.column(name) for version in versions] for name in handle_key}
    types = {name: {column.type for column in found if column is not None} for name, found in columns.items()}
    unknown = any(each.base == "decimal" and each.length is None for found in types.values() for each in found)
    if not unknown and all(len(found) == 1 for found in types.values()):
        return None
    return tuple(name for name, found in types.items() if any(each.base == "decimal" for each in found))


def _signed(handle_key: Sequence[str], versions: Sequence[TableVersion]) -> tuple[str, ...]:
    columns = ((name, version.schema.column(name)) for name in handle_key for version in versions)
    found = (
        name for name, column in columns if column is not None and column.type.base in ("float", "double", "decimal")
    )
    return tuple(dict.fromkeys(found))


@contextmanager
def found_last_versions(load: Load, groups: Sequence[FoldGroup], execute: Execute) -> Iterator[None]:
    """Inside, the winners of *groups* can be read."""
    tasks = [
        FindTask(fold=group.fold, artifacts=load.artifacts, bucket=bucket)
        for group in groups
        for bucket in range(len(group.fold.winners))
    ]
    if not tasks:
        yield
        return
    try:
        execute(find_last_versions, tasks, "find the last version of each row")
        yield
    finally:
        store = load.artifacts.open()
        for task in tasks:
            store.delete(task.fold.winners[task.bucket])


def find_last_versions(task: FindTask) -> str:
    """Write the positions of the last versions of one bucket; the name of what was written. May run twice."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    winners = _winners(filesystem, root, task.fold, task.bucket)
    output = task.fold.winners[task.bucket]
    with file_errors(f"write {output}"):
        make_parent(filesystem, f"{root}/{output}")
        # Ordered by file: small row groups let the reader of one file skip those of others.
        pq.write_table(winners, f"{root}/{output}", row_group_size=50_000, filesystem=filesystem)
    return output


class LastVersions:
    """Finds the rows of a file that are last versions. Remembers what it had to compute itself."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._own: dict[Fold, pa.Table] = {}

    def positions(self, fold: Fold, number: int) -> Positions:
        """The positions of the last versions in file *number* of *fold*, ascending."""
        if fold.winners:
            with file_errors(f"read the last versions of {fold.table}"):
                found = pa.concat_tables(self._read(name, number) for name in fold.winners)
            return np.sort(found["position"].to_numpy())
        if fold not in self._own:
            self._own[fold] = _winners(self._filesystem, self._root, fold, 0)
        winners = self._own[fold]
        files = winners["file"].to_numpy()
        low, high = np.searchsorted(files, [number, number + 1])
        positions: Positions = winners["position"].to_numpy()[low:high]
        return positions

    def _read(self, name: str, number: int) -> pa.Table:
        return rows_where(self._filesystem, f"{self._root}/{name}", "file", number)


def winning_rows(
    file: pq.ParquetFile, positions: Positions, rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows at *positions* (ascending) of *file*, read by up to *rows* at a time; row groups without any are not read."""
    groups, positions = groups_with(file.metadata, positions)
    start = 0
    for batch in file.iter_batches(rows, row_groups=groups, columns=columns):
        low, high = np.searchsorted(positions, [start, start + batch.num_rows])
        if high - low == batch.num_rows:
            yield batch
        elif high > low:
            yield batch.take(pa.array(positions[low:high] - start, pa.int64()))
        start += batch.num_rows


def narrow_rows(file: pq.ParquetFile, fold: Fold, number: int) -> Iterator[pa.Table]:
    """What a fold compares of the rows that count in *file*, number *number* of *fold*, with file and position of each."""
    only = fold.window_of(number)
    for start, batch in batches_of(file, only, narrow_columns(fold.handle_key)):
        part = narrow(batch, fold.handle_key, is_put(batch), fold.order)
        if fold.decimals is not None:
            part = by_value(part, fold.decimals)
        elif fold.signed:
            part = zeros_alike(part, fold.signed)
        end = start + batch.num_rows
        part = part.append_column("file", pa.array(np.full(batch.num_rows, number, dtype=np.int32)))
        part = part.append_column("position", pa.array(np.arange(start, end, dtype=np.int64)))
        inside = counted(batch, only)
        yield part if inside is None else part.filter(inside)


def _winners(filesystem: Any, root: str, fold: Fold, bucket: int) -> pa.Table:
    """File and position of the last versions of one bucket, ascending."""
    buckets = max(1, len(fold.winners))
    parts = []
    for number, name in enumerate(fold.files):
        with file_errors(f"read {name}"), pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            for part in narrow_rows(file, fold, number):
                parts.append(part.filter(_in_bucket(part["hash"], bucket, buckets)) if buckets > 1 else part)
    try:
        versions = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise PermanentError(
            f"{fold.table}: the type of the key changes within the window in a way that can't be compared ({error}); "
            "give the table's definition in the pipeline (definitions) and repin the window, or split it at the change"
        ) from error
    if fold.order == "place":
        refuse_moved(versions, str(fold.table))
    return versions.select(_WINNERS.names).take(last_versions(versions)).cast(_WINNERS)


def _in_bucket(hashes: pa.ChunkedArray, bucket: int, buckets: int) -> pa.BooleanArray:
    text = pc.binary_slice(hashes.cast(pa.binary()), 0, 2).combine_chunks()
    first = np.frombuffer(text.cast(pa.binary(2)).buffers()[1], dtype=np.uint16)
    return pa.array(first % buckets == bucket)
