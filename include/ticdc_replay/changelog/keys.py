"""The keys file of a split: the identity of every row it wrote, grouped into buckets.

The same bucket of all keys files together holds every copy of the row versions that hash into it, so that surplus copies can
be found bucket by bucket, in any order and on any number of workers, without reading a row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.columnar import ColumnarRows

SCHEMA = pa.schema(
    [
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


_ENCODING: dict[str, Any] = {
    "compression": {"id": "none", "fingerprint": "none", **dict.fromkeys(SCHEMA.names[2:], "zstd")},
    "use_dictionary": ["topic", "file"],
    "write_statistics": False,
}
"""Hashes neither repeat nor compress."""


class Copy(NamedTuple):
    """One copy of a row version, as a keys file has it.

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
        return self.file.startswith("quarantine/")

    @property
    def order(self) -> tuple[bool, bool, str, int, int, int, int]:
        """The fixed total order of copies: the smallest stays.

        What can be used before what stands in quarantine, whole before partial (a key-only delete), then by place in Kafka.
        """
        return (self.quarantined, not self.whole, self.topic, self.partition, self.offset, self.ordinal, self.half)


class Keys:
    """Collects the copies of one split, batch by batch."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: ColumnarRows, *, file: str, first_position: int) -> None:
        """Add *rows*, which have identities and stand one after the other in *file*, from *first_position* on."""
        batch = rows.batch
        count = batch.num_rows
        assert rows.versions is not None, "only rows with identities have copies"
        same = np.zeros(count, np.int32)
        arrays = [
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
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def add_quarantined(self, copy: Copy) -> None:
        """Add one copy that stands in a quarantine file."""
        columns = {name: [value] for name, value in copy._asdict().items()}
        self._batches.append(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))

    def write(self, filesystem: Any, root: str, name: str, buckets: int) -> str | None:
        """Write the file *name* with one row group per bucket, in order; its name, or None where there is no row."""
        if not self._batches:
            return None
        table = pa.Table.from_batches(self._batches, SCHEMA).unify_dictionaries()
        ids = table["id"].combine_chunks()
        first_bytes = np.frombuffer(ids.buffers()[1], np.uint8, len(ids) * 16, ids.offset * 16).reshape(-1, 16)
        bucket_of = (first_bytes[:, 0].astype(np.int32) << 8 | first_bytes[:, 1]) % buckets
        path = f"{root}/{name}"
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with pq.ParquetWriter(path, SCHEMA, filesystem=filesystem, **_ENCODING) as writer:
            for number in range(buckets):
                part = table.filter(pa.array(bucket_of == number))
                writer.write_table(part, row_group_size=max(1, part.num_rows))
        return name


def _hashes(values: npt.NDArray[np.void]) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(values.tobytes())])


def repeated_in_bucket(filesystem: Any, root: str, names: Sequence[str], number: int, buckets: int) -> list[list[Copy]]:
    """The copies whose identity stands more than once in bucket *number* of the keys files *names*, grouped by identity.

    Reads only the identities where none repeats, which is the common case. Raises ValueError for a file that was not written
    with *buckets* buckets.
    """
    ids = _read(filesystem, root, names, number, buckets, ["id"])
    if len(pc.unique(ids["id"])) == ids.num_rows:
        return []
    return repeated(_read(filesystem, root, names, number, buckets, None))


def _read(
    filesystem: Any, root: str, names: Sequence[str], number: int, buckets: int, columns: list[str] | None
) -> pa.Table:
    parts = []
    for name in names:
        with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            if file.num_row_groups != buckets:
                raise ValueError(f"keys file {name} has {file.num_row_groups} row groups, {buckets} expected")
            parts.append(file.read_row_group(number, columns=columns))
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    return pa.concat_tables(parts).unify_dictionaries() if parts else schema.empty_table()


def repeated(table: pa.Table) -> list[list[Copy]]:
    """The copies in *table* whose identity stands there more than once, grouped by identity."""
    counts = table.group_by("id").aggregate([([], "count_all")])
    often = counts.filter(pc.greater(counts["count_all"], 1))["id"]
    if len(often) == 0:
        return []
    rows = table.filter(pc.is_in(table["id"], value_set=often.combine_chunks()))
    groups: dict[bytes, list[Copy]] = {}
    for values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        copy = Copy(*values)
        groups.setdefault(copy.id, []).append(copy)
    return list(groups.values())
