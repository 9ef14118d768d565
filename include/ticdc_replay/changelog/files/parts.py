"""Reading the rows of a data file whose commitTs is in a window: a changelog may take a part of another one's file."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.domain.window import Window

BATCH_BYTES = 64 * 1024 * 1024
"""Rows that are held at a time: uncompressed size in Parquet, about."""
BATCH_ROWS = 100_000
_COMMIT_TS = "_commit_ts"


def batch_rows(metadata: Any) -> int:
    """How many rows of the Parquet file with *metadata* make a batch of about ``BATCH_BYTES``."""
    size: int = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    per_row: int = max(1, size // max(1, metadata.num_rows))
    return max(1, min(BATCH_ROWS, BATCH_BYTES // per_row))


def batches_of(
    file: pq.ParquetFile, only: Window | None, columns: Sequence[str] | None = None, rows: int = 65_536
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of up to *rows* rows of *file*, each with the position of its first row in it.

    Row groups whose statistics show that no row of theirs is in *only* are not read; what is read may hold other rows, too.
    """
    for groups, start in _runs(file.metadata, groups_in(file.metadata, only)):
        at = start
        for batch in file.iter_batches(rows, row_groups=groups, columns=columns):
            yield at, batch
            at += batch.num_rows


def counted(batch: pa.RecordBatch, only: Window | None) -> pa.BooleanArray | None:
    """Which rows of *batch* have their commitTs in *only*; None where all do."""
    if only is None:
        return None
    times = batch[_COMMIT_TS]
    inside = pc.and_(pc.greater_equal(times, only.from_ts), pc.less(times, only.to_ts))
    return None if pc.all(inside).as_py() else inside


def rows_of(
    file: pq.ParquetFile, only: Window | None, columns: Sequence[str] | None = None, rows: int = 65_536
) -> Iterator[pa.RecordBatch]:
    """The rows of *file* whose commitTs is in *only*, all where it is None; *columns* must have ``_commit_ts`` otherwise."""
    for _, batch in batches_of(file, only, columns, rows):
        inside = counted(batch, only)
        found = batch if inside is None else batch.filter(inside)
        if found.num_rows:
            yield found


def rows_where(
    filesystem: Any, path: str, column: str, value: str | int, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of the Parquet file at *path* whose *column* is *value*; row groups that can't have any are not read.

    As ``read_table`` with a filter, but that loads pandas where it is installed, which takes a second.
    """
    wanted = None if columns is None else list(dict.fromkeys([*columns, column]))
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        at = [file.schema.column(leaf).path for leaf in range(len(file.schema))].index(column)
        bounds = [file.metadata.row_group(group).column(at).statistics for group in range(file.num_row_groups)]
        groups = [
            group
            for group, each in enumerate(bounds)
            if each is None or not each.has_min_max or each.min <= value <= each.max
        ]
        batches = [
            batch.filter(pc.equal(batch[column], value))
            for batch in file.iter_batches(row_groups=groups, columns=wanted)
        ]
        table = pa.Table.from_batches(batches, file.read_row_groups([], wanted).schema)
    return table if columns is None else table.select(columns)


def lies_in(file: DataFile, window: Window) -> bool:
    """Whether all rows of *file* have their commitTs in *window*."""
    return file.only is None and window.from_ts <= file.min_commit_ts and file.max_commit_ts < window.to_ts


def part_of(filesystem: Any, path: str, file: DataFile, window: Window) -> DataFile | None:
    """What of *file*, which lies at *path*, has its commitTs in *window*; None where no row has. Reads one narrow column."""
    if lies_in(file, window):
        return file
    found, first, last = 0, window.to_ts, window.from_ts
    with pq.ParquetFile(path, filesystem=filesystem) as opened:
        for batch in rows_of(opened, window, [_COMMIT_TS]):
            ends = pc.min_max(batch[_COMMIT_TS]).as_py()
            found, first, last = found + batch.num_rows, min(first, ends["min"]), max(last, ends["max"])
        total = opened.metadata.num_rows
    if not found:
        return None
    size = max(1, file.bytes * found // max(1, total))
    return DataFile(file.name, found, size, first, last, file.topic, file.run, None if found == total else window)


def group_starts(metadata: Any) -> npt.NDArray[np.int64]:
    """The positions of the first rows of all row groups in their file, and last the number of its rows."""
    rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    return np.cumsum([0, *rows], dtype=np.int64)


def groups_with(metadata: Any, positions: npt.NDArray[np.int64]) -> tuple[list[int], npt.NDArray[np.int64]]:
    """The row groups that hold a row at *positions* (ascending), and where these rows are in those groups put together."""
    groups: list[int] = []
    shifted = positions.copy()
    skipped = 0
    for number, (start, end) in enumerate(pairwise(group_starts(metadata))):
        low, high = np.searchsorted(positions, [start, end])
        if low == high:
            skipped += int(end - start)
        else:
            groups.append(number)
            shifted[low:high] -= skipped
    return groups, shifted


def groups_in(metadata: Any, only: Window | None) -> list[int]:
    """The row groups that may have a row with its commitTs in *only*, by their statistics; all where it is None."""
    every = range(metadata.num_row_groups)
    if only is None or metadata.num_rows == 0:
        return list(every)
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    column = names.index(_COMMIT_TS)
    wanted = []
    for group in every:
        statistics = metadata.row_group(group).column(column).statistics
        known = statistics is not None and statistics.has_min_max
        if not known or (statistics.min < only.to_ts and statistics.max >= only.from_ts):
            wanted.append(group)
    return wanted


def _runs(metadata: Any, groups: list[int]) -> Iterator[tuple[list[int], int]]:
    """*groups* as stretches of neighbours, each with the position of its first row."""
    starts = group_starts(metadata)
    run: list[int] = []
    for group in groups:
        if run and group != run[-1] + 1:
            yield run, int(starts[run[0]])
            run = []
        run.append(group)
    if run:
        yield run, int(starts[run[0]])
