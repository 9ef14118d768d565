"""Takes surplus copies out of the files of a decode, in two rounds of independent tasks: find by bucket, rewrite by file."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.duplicates import drop_rows, surplus
from ticdc_replay.changelog.copies.key_buckets import KeyBucket, repeated
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.decode.plan.tasks import Attempt

TASK_BYTES = 16 * 1024 * 1024
"""Bytes of data files that one task writes again, unless a file has more."""
_FILE_BYTES = 64 * 1024
"""What reading and writing a file costs whatever it holds."""


class Surplus(msgspec.Struct, frozen=True):
    """What one bucket found: the file that lists the surplus copies, and the files that hold them."""

    name: str
    files: tuple[str, ...]


class Rewritten(msgspec.Struct, frozen=True):
    """One file after its surplus copies left: ``file`` is None where no row stayed."""

    old: str
    file: DataFile | None
    dropped: int
    conflicts: int
    dropped_reasons: dict[str, int] = {}
    """For a quarantine file: the reasons of the entries that left."""


def find_surplus(filesystem: Any, root: str, attempt: Attempt, bucket: KeyBucket) -> Surplus | None:
    """The surplus copies among the keys of *bucket*, written beside the changelog; None where there are none."""
    found = surplus(repeated(filesystem, root, bucket), filesystem, root)
    if found.num_rows == 0:
        return None
    name = f"surplus/{attempt.id}-{uuid4().hex[:12]}.parquet"
    filesystem.create_dir(f"{root}/surplus", recursive=True)
    pq.write_table(found, f"{root}/{name}", filesystem=filesystem)
    return Surplus(name, tuple(sorted(pc.unique(found["file"]).to_pylist())))


class Rewrite(msgspec.Struct, frozen=True):
    """Files that one task writes again without surplus copies, and the files that list those."""

    files: tuple[str, ...]
    surplus_files: tuple[str, ...]


def plan_rewrites(found: Sequence[Surplus], sizes: Mapping[str, int]) -> list[Rewrite]:
    """One task for each file of some size that *found* names, and one for many small ones. *sizes* are bytes of files.

    A file without a size has a task of its own.
    """
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for part in found:
        for file in part.files:
            listed[file].append(part.name)
    groups: list[list[str]] = []
    room = 0
    for file in sorted(listed):
        cost = sizes.get(file, TASK_BYTES) + _FILE_BYTES
        if cost > room:
            groups.append([])
            room = TASK_BYTES
        groups[-1].append(file)
        room -= cost
    return [Rewrite(tuple(files), tuple(sorted({name for file in files for name in listed[file]}))) for files in groups]


def rewrite(filesystem: Any, root: str, task: Rewrite) -> list[Rewritten]:
    """Write the files of *task* again without the copies that its lists name."""
    tables = [
        pq.read_table(
            f"{root}/{name}", filesystem=filesystem, filters=pc.field("file").isin(task.files), partitioning=None
        )
        for name in task.surplus_files
    ]
    # Surplus copies are sorted by file within each list; a stable sort keeps what each list says together.
    listed = pa.concat_tables(tables).sort_by([("file", "ascending"), ("position", "ascending")])
    names = listed["file"].combine_chunks()
    rewritten = []
    for file, start, end in _runs(names):
        part = listed.slice(start, end - start)
        positions = np.unique(part["position"].to_numpy())
        kept, reasons = drop_rows(filesystem, root, file, positions)
        rewritten.append(Rewritten(file, kept, len(positions), pc.sum(part["conflict"]).as_py() or 0, reasons))
    return rewritten


def _runs(names: pa.StringArray) -> Iterator[tuple[str, int, int]]:
    """Each value of *names*, which is sorted, with where it begins and ends."""
    codes = names.dictionary_encode()
    borders = np.flatnonzero(np.diff(codes.indices.to_numpy())) + 1
    bounds = [0, *borders.tolist(), len(names)]
    for start, end in pairwise(bounds):
        yield names[start].as_py(), start, end
