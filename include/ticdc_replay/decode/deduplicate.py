"""Takes surplus copies out of the files of a decode, in two rounds of independent tasks: find by bucket, rewrite by file."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.duplicates import CopyReader, Loser, drop_rows, losers
from ticdc_replay.changelog.index import DataFile
from ticdc_replay.changelog.keys import repeated_in_bucket
from ticdc_replay.decode.tasks import Attempt

_SURPLUS = pa.schema([("file", pa.string()), ("position", pa.int64()), ("conflict", pa.bool_())])


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


def find_surplus(
    filesystem: Any, root: str, attempt: Attempt, keys_files: Sequence[str], number: int, buckets: int
) -> Surplus | None:
    """The surplus copies among the keys of bucket *number*, written beside the changelog; None where there are none."""
    reader = CopyReader(filesystem, root)
    found: list[Loser] = []
    for copies in repeated_in_bucket(filesystem, root, keys_files, number, buckets):
        found += losers(copies, reader)
    if not found:
        return None
    found.sort()
    name = f"surplus/{attempt.id}-{number:03d}-{uuid4().hex[:12]}.parquet"
    columns = [pa.array(column, field.type) for column, field in zip(zip(*found, strict=True), _SURPLUS, strict=True)]
    filesystem.create_dir(f"{root}/surplus", recursive=True)
    pq.write_table(pa.Table.from_arrays(columns, schema=_SURPLUS), f"{root}/{name}", filesystem=filesystem)
    return Surplus(name, tuple(sorted({loser.file for loser in found})))


def rewrite(filesystem: Any, root: str, file: str, surplus_files: Sequence[str]) -> Rewritten:
    """Write *file* anew without the copies that *surplus_files* list for it."""
    parts = [
        pq.read_table(f"{root}/{name}", filesystem=filesystem, filters=pc.field("file") == file, partitioning=None)
        for name in surplus_files
    ]
    going = pa.concat_tables(parts)
    kept, dropped = drop_rows(filesystem, root, file, going["position"])
    reasons = Counter(dropped["reason"].to_pylist()) if "reason" in dropped.column_names else {}
    return Rewritten(file, kept, dropped.num_rows, pc.sum(going["conflict"]).as_py() or 0, dict(reasons))
