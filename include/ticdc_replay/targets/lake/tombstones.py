"""A worker's part of maintenance: many files of deletes → one, with the newest version of each key."""

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import file_errors, whole_file
from ticdc_replay.targets.lake.documents import TombstoneFile
from ticdc_replay.targets.lake.stage import DELETED_AT, ReadTask, read_staged
from ticdc_replay.targets.mirror.planning.dialect import Dialect


class CompactTask(msgspec.Struct, frozen=True, kw_only=True):
    """The files *names* of one table, and the file *into* that replaces them; all are names below *store*."""

    store: StoreAddress
    names: tuple[str, ...]
    into: str
    types: dict[str, str]
    """Of the table's columns, as the dialect spells them: older files may have narrower keys."""
    floor_ts: int
    """Older versions are dropped."""
    dialect: Dialect


def compact(task: CompactTask) -> TombstoneFile | None:
    """Write the file of *task*; what it is, or None, and no file, if nothing is left. Holds all rows in memory.

    Raises ArtifactCorruptError if the files are not of one key of the table, TransientError if the store is away.
    """
    filesystem, root = task.store.open().arrow_filesystem()
    keys = {_key(filesystem, f"{root}/{name}") for name in task.names}
    if len(keys) != 1 or not task.types.keys() >= {name for key in keys for name in key}:
        raise ArtifactCorruptError(
            f"the deletes in {', '.join(task.names)} have the keys {sorted(keys)}; the table has {sorted(task.types)}"
        )
    (key,) = keys
    columns = (*((name, task.types[name]) for name in key), (DELETED_AT, "bigint"))
    batches = [
        batch.filter(pc.greater_equal(batch[DELETED_AT], task.floor_ts))
        for name in task.names
        for batch in read_staged(ReadTask(task.store, name, columns, task.dialect))
    ]
    rows = pa.Table.from_batches(batches).group_by(list(key), use_threads=False).aggregate([(DELETED_AT, "max")])
    if not rows.num_rows:
        return None
    newest = rows.select([*key, f"{DELETED_AT}_max"]).rename_columns([*key, DELETED_AT])
    path = f"{root}/{task.into}"
    with file_errors(f"write {path}"), whole_file(filesystem, path) as local:
        pq.write_table(newest, local, compression="zstd")
    return TombstoneFile(task.into, newest.num_rows, pc.max(newest[DELETED_AT]).as_py())


def _key(filesystem: object, path: str) -> tuple[str, ...]:
    with file_errors(f"read {path}"):
        names = pq.read_schema(path, filesystem=filesystem).names
    return tuple(sorted(name for name in names if name != DELETED_AT))
