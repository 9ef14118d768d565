"""The fold of a window to files, in two rounds of independent tasks: find the last versions, by buckets of the key's hash and
from narrow columns alone; then take them out of each file. Wide columns are read and written once, and nothing is exchanged
but positions.
"""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.fold import is_put, last_versions, narrow, narrow_columns
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import batch_rows, file_errors, make_parent

_WINNERS = pa.schema([pa.field("file", pa.int32()), pa.field("position", pa.int64())])


class FindTask(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of the keys of one table."""

    table: TableName
    handle_key: tuple[str, ...]
    artifacts: StoreAddress
    files: tuple[str, ...]
    """All data files of the table whose rows have this handle key, relative to the artefacts."""
    bucket: int
    buckets: int
    output: str
    """Where the winners are written, relative to the artefacts."""


class TakeTask(msgspec.Struct, frozen=True, kw_only=True):
    """One data file, and where its last versions go."""

    table: TableName
    artifacts: StoreAddress
    file: str
    number: int
    """The file's place in ``FindTask.files``."""
    winners: tuple[str, ...]
    target: StoreAddress
    name: str


class Taken(msgspec.Struct, frozen=True):
    """What one file of the fold holds; nothing is written where ``rows`` is 0."""

    table: TableName
    name: str
    rows: int
    deletes: int


def find_last_versions(task: FindTask) -> str:
    """Write which row of which file is the last version of its key, for the keys of one bucket; the name of what was written."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    with file_errors(f"fold {task.table}"):
        parts = [
            part
            for number, file in enumerate(task.files)
            for part in _narrow_parts(filesystem, f"{root}/{file}", number, task)
        ]
    try:
        versions = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise PermanentError(
            f"{task.table}: the type of the key changes within the window in a way that can't be compared ({error}); "
            "give the table's definition in the pipeline, or split the window at the change"
        ) from error
    winners = versions.select(["file", "position"]).take(last_versions(versions.drop_columns(["file", "position"])))
    with file_errors(f"write {task.output}"):
        make_parent(filesystem, f"{root}/{task.output}")
        pq.write_table(winners.cast(_WINNERS), f"{root}/{task.output}", filesystem=filesystem)
    return task.output


def take_last_versions(task: TakeTask) -> Taken:
    """Write the last versions of one data file. A repeat writes the same bytes under the same name."""
    filesystem, root = task.artifacts.open().arrow_filesystem()
    target, target_root = task.target.open().arrow_filesystem()
    with file_errors(f"fold {task.file} into {task.target.uri}/{task.name}"):
        found = [
            pq.read_table(
                f"{root}/{name}", filesystem=filesystem, filters=[("file", "=", task.number)], partitioning=None
            )
            for name in task.winners
        ]
        positions = np.sort(pa.concat_tables(found)["position"].to_numpy())
        if len(positions) == 0:
            return Taken(task.table, task.name, 0, 0)
        path = f"{target_root}/{task.name}"
        make_parent(target, path)
        deletes, start = 0, 0
        with pq.ParquetFile(f"{root}/{task.file}", filesystem=filesystem) as file:
            options = {"filesystem": target, "compression": "zstd", "compression_level": 1}
            with pq.ParquetWriter(path, file.schema_arrow, **options) as writer:
                for batch in file.iter_batches(batch_rows(file.metadata)):
                    low, high = np.searchsorted(positions, [start, start + batch.num_rows])
                    rows = batch.take(pa.array(positions[low:high] - start, pa.int64()))
                    deletes += pc.sum(pc.equal(rows["_op"], "delete"), min_count=0).as_py()
                    writer.write_batch(rows)
                    start += batch.num_rows
    return Taken(task.table, task.name, len(positions), deletes)


def _narrow_parts(filesystem: Any, path: str, number: int, task: FindTask) -> list[pa.Table]:
    parts = []
    start = 0
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        for batch in file.iter_batches(columns=narrow_columns(task.handle_key)):
            part = narrow(batch, task.handle_key, is_put(batch))
            part = part.append_column("file", pa.array([number] * batch.num_rows, pa.int32()))
            part = part.append_column("position", pa.array(range(start, start + batch.num_rows), pa.int64()))
            parts.append(part.filter(_in_bucket(part["hash"], task.bucket, task.buckets)) if task.buckets > 1 else part)
            start += batch.num_rows
    return parts


def _in_bucket(hashes: pa.ChunkedArray, bucket: int, buckets: int) -> pa.BooleanArray:
    text = pc.binary_slice(hashes.cast(pa.binary()), 0, 2).combine_chunks()
    first = np.frombuffer(b"".join(text.to_pylist()), dtype=">u2")
    return pa.array(first % buckets == bucket)
