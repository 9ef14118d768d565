"""The keys file of a split: the identity of every row it wrote, grouped into buckets.

The same bucket of all keys files together holds every copy of the row versions that hash into it, so that surplus copies can
be found bucket by bucket, in any order and on any number of workers, without reading a row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.domain.messages import RawMessage

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


class Copy(NamedTuple):
    """One copy of a row version, as a keys file has it.

    ``id`` and ``fingerprint`` are 16 bytes. ``whole`` is False for a row that lacks columns and stands in quarantine. ``half`` is
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
    def order(self) -> tuple[bool, str, int, int, int, int]:
        """The fixed total order of copies: the smallest stays. Whole before partial, then by place in Kafka."""
        return (not self.whole, self.topic, self.partition, self.offset, self.ordinal, self.half)


class Keys:
    """Collects the copies of one split by column; about 0.4 µs per row."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in SCHEMA]

    def add(
        self,
        ids: Sequence[bytes],
        fingerprints: Sequence[bytes],
        messages: Sequence[RawMessage],
        ordinals: Sequence[int],
        halves: Sequence[int],
        *,
        whole: bool,
        file: str,
        first_position: int,
    ) -> None:
        """Add rows that stand one after the other in *file*, from *first_position* on."""
        count = len(ids)
        parts: tuple[Sequence[Any], ...] = (
            ids,
            fingerprints,
            [whole] * count,
            [message.topic for message in messages],
            [message.partition for message in messages],
            [message.offset for message in messages],
            ordinals,
            halves,
            [file] * count,
            range(first_position, first_position + count),
        )
        for column, part in zip(self._columns, parts, strict=True):
            column.extend(part)

    def write(self, filesystem: Any, root: str, name: str, buckets: int) -> str | None:
        """Write the file *name* with one row group per bucket, in order; its name, or None where there is no row."""
        ids = self._columns[0]
        if not ids:
            return None
        arrays = [
            pa.array(column, field.type.value_type).dictionary_encode() if pa.types.is_dictionary(field.type)
            else pa.array(column, field.type)
            for column, field in zip(self._columns, SCHEMA, strict=True)
        ]  # fmt: skip
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        bucket_of = pa.array([bucket(row_id, buckets) for row_id in ids], pa.int32())
        path = f"{root}/{name}"
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with pq.ParquetWriter(path, SCHEMA, filesystem=filesystem, compression="zstd", compression_level=1) as writer:
            for number in range(buckets):
                part = table.filter(pc.equal(bucket_of, number)) if buckets > 1 else table
                writer.write_table(part, row_group_size=max(1, part.num_rows))
        return name


def bucket(row_id: bytes, buckets: int) -> int:
    """The bucket of the identity *row_id*, from 0 to *buckets* - 1."""
    return (row_id[0] << 8 | row_id[1]) % buckets


def read_bucket(filesystem: Any, root: str, names: Sequence[str], number: int, buckets: int) -> pa.Table:
    """The rows of bucket *number* of the keys files *names*, each written with *buckets* buckets."""
    parts = []
    for name in names:
        with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            if file.num_row_groups != buckets:
                raise ValueError(f"keys file {name} has {file.num_row_groups} row groups, {buckets} expected")
            parts.append(file.read_row_group(number))
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty_table()


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
