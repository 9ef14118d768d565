"""The keys file of a split: the identity of every row it wrote, sorted by commitTs.

Copies of a row version have one commitTs, wherever they are. So all copies in a span of time are in the row groups of keys files
that touch it (see ``key_buckets``). They are found in any order, on any number of workers, without reading a row.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.columnar import ColumnarRows, numbers
from ticdc_replay.changelog.files.layout import in_quarantine

SCHEMA = pa.schema(
    [
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("fingerprint", pa.binary(16), nullable=False),
        pa.field("whole", pa.bool_(), nullable=False),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("half", pa.int8(), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
    ]
)
GROUP_ROWS = 16_384
"""Rows of a row group: what is read too much where a span of time begins or ends within one."""

_ENCODING: dict[str, Any] = {
    "compression": dict.fromkeys(SCHEMA.names, "zstd") | {"id": "none", "fingerprint": "none"},
    "use_dictionary": ["topic", "file"],
    "write_statistics": False,
}
"""Hashes neither repeat nor compress."""

_TOGETHER = 1024
"""Batches that are combined at a time."""


class KeysGroup(msgspec.Struct, frozen=True, array_like=True):
    """A row group of a keys file: how many rows, and their first and last commitTs (TSO; 0 of rows without one)."""

    first: int
    last: int
    rows: int


class KeysFile(msgspec.Struct, frozen=True):
    """A keys file, by its name relative to the changelog's root, and its row groups in order."""

    name: str
    groups: tuple[KeysGroup, ...]


class Copy(NamedTuple):
    """One copy of a row version, as a keys file has it beside its commitTs.

    ``id`` and ``fingerprint`` are 16 bytes. ``whole`` is False for a row that lacks columns. ``half`` is
    0, or 1 and 2 for the delete and the put of an UPDATE that changed its key. ``position`` counts rows of ``file``.
    """

    id: bytes
    fingerprint: bytes
    whole: bool
    topic: str
    partition: int
    offset: int
    ordinal: int
    half: int
    file: str
    position: int

    @property
    def quarantined(self) -> bool:
        """Whether it can't be used: partial without being a delete, or with cells of another type than the columns'."""
        return in_quarantine(self.file)


class Keys:
    """Collects the copies of one split, batch by batch."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: ColumnarRows, *, file: str, first_position: int) -> None:
        """Add *rows*, which have identities and stand one after the other in *file*, from *first_position* on."""
        batch = rows.batch
        count = batch.num_rows
        assert rows.versions is not None, "only rows with identities have copies"
        same = np.zeros(count, np.int32)
        arrays = [
            pa.array(numbers(batch, "_commit_ts")),
            _hashes(rows.versions),
            _hashes(rows.fingerprints),
            pc.invert(batch["_partial"]),
            batch["_topic"].dictionary_encode(),
            batch["_partition"],
            batch["_offset"],
            batch["_index"],
            pa.array(rows.halves),
            pa.DictionaryArray.from_arrays(same, [file]),
            pa.array(np.arange(first_position, first_position + count)),
        ]
        self._append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def add_quarantined(self, copy: Copy, commit_ts: int | None) -> None:
        """Add one copy that stands in a quarantine file."""
        columns = {"commit_ts": [commit_ts or 0]} | {name: [value] for name, value in copy._asdict().items()}
        self._append(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))

    def _append(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        if len(self._batches) >= _TOGETHER:
            self._combine()

    def _combine(self) -> None:
        """Make one table of the batches: those of a row each take more memory by far than their values."""
        self._tables.append(_combined(pa.Table.from_batches(self._batches, SCHEMA)))
        self._batches.clear()

    def write(self, filesystem: Any, root: str, name: str) -> KeysFile | None:
        """Write the file *name*; None where there is no row."""
        if self._batches:
            self._combine()
        if not self._tables:
            return None
        table = _combined(pa.concat_tables(self._tables))
        self._tables.clear()
        times = table["commit_ts"].to_numpy()
        if (times[:-1] > times[1:]).any():
            order = np.argsort(times, kind="stable")
            times = times[order]
            table = table.take(pa.array(order))
        path = f"{root}/{name}"
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        pq.write_table(table, path, filesystem=filesystem, row_group_size=GROUP_ROWS, **_ENCODING)
        groups = (times[start : start + GROUP_ROWS] for start in range(0, len(times), GROUP_ROWS))
        return KeysFile(name, tuple(KeysGroup(int(group[0]), int(group[-1]), len(group)) for group in groups))


def _combined(table: pa.Table) -> pa.Table:
    return table.unify_dictionaries().combine_chunks()


def _hashes(values: npt.NDArray[np.void]) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(values.tobytes())])
