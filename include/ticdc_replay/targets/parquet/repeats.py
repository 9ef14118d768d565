"""Row versions in the changelogs of several runs of a window: a message may be re-driven more than once.

Each decode drops its own duplicates, so only re-driven rows are compared with the rest. The last copy stays.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.fold import version_keys
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.changelog.files.parts import batches_of, counted
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Execute, Load, StoreAddress
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.last_versions import Fold, fold_groups, narrow_rows

Repeats = Mapping[DataFile, bytes]
"""The positions (int64, ascending) of rows that are left out of a data file, of those that have any."""

_PLACE = ("_topic", "_partition", "_index")


class RepeatsTask(msgspec.Struct, frozen=True):
    """The files of rows that are compared with each other; without handle key their places in Kafka are."""

    artifacts: StoreAddress
    fold: Fold
    added: tuple[bool, ...]
    """Whether a re-drive brought the file."""


def without_repeats(load: Load, redrives: Collection[str], execute: Execute) -> tuple[Load, Repeats]:
    """*load*, of a run and of *redrives* of its quarantine, with each row version counted once; and the rows to leave
    out of each data file. Files without remaining rows are not in it."""
    tasks, files = [], []
    for fold, of_fold in _folds(load):
        added = tuple(file.run in redrives for file in of_fold)
        if any(added) and len(of_fold) > 1:
            tasks.append(RepeatsTask(load.artifacts, _cut(fold, of_fold, added), added))
            files.append(of_fold)
    answers = execute(find_repeats, tasks, "find rows that were re-driven before") if tasks else []
    left_out = {
        file: positions
        for of_fold, answer in zip(files, answers, strict=True)
        for file, positions in zip(of_fold, answer, strict=True)
        if positions
    }
    if not left_out:
        return load, {}
    kept: dict[DataFile, bytes] = {}
    tables = []
    for version in load.index.tables:
        staying = []
        for file in version.files:
            positions = left_out.get(file, b"")
            rows = file.rows - len(positions) // np.dtype(np.int64).itemsize
            if rows:
                staying.append(msgspec.structs.replace(file, rows=rows))
            if rows and positions:
                kept[staying[-1]] = positions
        if staying:
            rows = sum(file.rows for file in staying)
            tables.append(msgspec.structs.replace(version, files=tuple(staying), rows=rows))
    return load.with_index(tables=tuple(tables)), kept


def find_repeats(task: RepeatsTask) -> list[bytes]:
    """Per file, the positions of the rows that stand in a later one, too."""
    filesystem, root = task.artifacts.open().arrow_filesystem()

    def rows(number: int) -> Iterator[pa.Table]:
        name = task.fold.files[number]
        with file_errors(f"read {name}"), pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            read = narrow_rows if task.fold.handle_key else _places
            yield from read(file, task.fold, number)

    numbers = range(len(task.fold.files))
    brought = [part.select(["hash", "version"]) for number in numbers if task.added[number] for part in rows(number)]
    known = pa.concat_tables(brought, promote_options="permissive")
    hashes, versions = (pc.unique(known[name]) for name in ("hash", "version"))
    last: dict[Any, tuple[int, int]] = {}
    going: list[list[int]] = [[] for _ in numbers]
    for number in numbers:
        for part in rows(number):
            maybe = part.filter(pc.and_(pc.is_in(part["version"], versions), pc.is_in(part["hash"], hashes)))
            for key, position in zip(version_keys(maybe), maybe["position"].to_pylist(), strict=True):
                if key in last:
                    before, at = last[key]
                    going[before].append(at)
                last[key] = number, position
    return [np.array(sorted(positions), np.int64).tobytes() for positions in going]


def staying(batch: pa.RecordBatch, start: int, left_out: npt.NDArray[np.int64]) -> pa.BooleanArray:
    """Which rows of *batch*, which begins at position *start* of its file, are not at the positions *left_out*."""
    stays = np.ones(batch.num_rows, np.bool_)
    low, high = np.searchsorted(left_out, [start, start + batch.num_rows])
    stays[left_out[low:high] - start] = False
    return pa.array(stays)


def _folds(load: Load) -> Iterator[tuple[Fold, Sequence[DataFile]]]:
    """What is compared with each other, in the order in which the fold has it."""
    versions = {table: load.index.versions_of(table) for table in load.tables}
    for group in fold_groups(load, versions):
        yield group.fold, [entry.file for entry in group.files]
    for table, of_table in versions.items():
        files = [file for version in of_table if not version.schema.handle_key for file in version.files]
        if files:
            names = tuple(load.file_name(file, table=table) for file in files)
            only = tuple(file.only for file in files)
            yield Fold(table, (), names, (), load.index.order, only), files


def _cut(fold: Fold, files: Sequence[DataFile], added: Sequence[bool]) -> Fold:
    """*fold* with those rows alone of each file that was there before which are of the time of those that a re-drive *added*."""
    if fold.order == "place":
        return fold
    brought = [file for file, is_added in zip(files, added, strict=True) if is_added]
    span = Window(min(file.min_commit_ts for file in brought), max(file.max_commit_ts for file in brought) + 1)
    only = tuple(file.only if is_added else file.only or span for file, is_added in zip(files, added, strict=True))
    return msgspec.structs.replace(fold, only=only)


def _places(file: pq.ParquetFile, fold: Fold, number: int) -> Iterator[pa.Table]:
    """The rows of a table without key as ``narrow_rows`` has those of others: their key is their place in Kafka."""
    only = fold.window_of(number)
    for start, batch in batches_of(file, only, ["_op", "_commit_ts", "_offset", *_PLACE]):
        columns: dict[str, Any] = {
            "hash": batch["_topic"].cast(pa.string()),
            "version": batch["_offset"],
            "put": pc.not_equal(batch["_op"], "delete"),
            "exact": pa.nulls(batch.num_rows),
            **{f"key.{name}": batch[name] for name in _PLACE},
            "position": pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64)),
        }
        part, inside = pa.table(columns), counted(batch, only)
        yield part if inside is None else part.filter(inside)
