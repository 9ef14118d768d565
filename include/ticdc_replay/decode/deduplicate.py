"""Takes surplus copies out of the files of a decode, in two rounds of independent tasks: find by bucket, rewrite by file."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.duplicates import drop_rows, surplus
from ticdc_replay.changelog.index import DataFile
from ticdc_replay.changelog.key_buckets import Bucket, repeated
from ticdc_replay.decode.tasks import Attempt


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


def find_surplus(filesystem: Any, root: str, attempt: Attempt, bucket: Bucket) -> Surplus | None:
    """The surplus copies among the keys of *bucket*, written beside the changelog; None where there are none."""
    found = surplus(repeated(filesystem, root, bucket), filesystem, root)
    if found.num_rows == 0:
        return None
    name = f"surplus/{attempt.id}-{uuid4().hex[:12]}.parquet"
    filesystem.create_dir(f"{root}/surplus", recursive=True)
    pq.write_table(found, f"{root}/{name}", filesystem=filesystem)
    return Surplus(name, tuple(sorted(pc.unique(found["file"]).to_pylist())))


def rewrite(filesystem: Any, root: str, file: str, surplus_files: Sequence[str]) -> Rewritten:
    """Write *file* anew without the copies that *surplus_files* list for it."""
    positions, conflicts = [], 0
    for name in surplus_files:
        part = pq.read_table(
            f"{root}/{name}", filesystem=filesystem, filters=pc.field("file") == file, partitioning=None
        )
        positions.append(part["position"].to_numpy())
        conflicts += pc.sum(part["conflict"]).as_py() or 0
    kept, dropped = drop_rows(filesystem, root, file, np.concatenate(positions))
    return Rewritten(file, kept, dropped.rows, conflicts, dropped.reasons)
