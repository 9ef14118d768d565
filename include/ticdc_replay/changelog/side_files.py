"""The narrow Parquet files beside the data: quarantine, claim-check references, sparse index."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

QUARANTINE = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32()),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("commit_ts", pa.int64()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
    ]
)
"""What could not be decoded, with its bytes. ``ordinal`` is null where the whole message could not."""

REFERENCES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("commit_ts", pa.int64()),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("location", pa.string(), nullable=False),
        pa.field("object_name", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("key_hash", pa.binary(16)),
        pa.field("key", pa.string()),
    ]
)
"""Every claim-check reference of every scanned message. ``status``: used, not_needed (outside the window or filtered), or
the reason why it could not be used. ``ordinal`` is -1 where no event of the message could be read, and the name of an object
was found in its bytes. ``timestamp_ms``: the record's time. ``key_hash``, ``key``: the row's handle key (``identity.RowKey``)."""

SPARSE_INDEX = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("min_commit_ts", pa.int64()),
        pa.field("max_commit_ts", pa.int64()),
    ]
)
"""Per stretch of offsets ``[start, end)`` the range of the rows' commitTs (TSO); null where it holds no row."""

GROUP_BYTES = 64 * 1024 * 1024
"""Of text and bytes: a row group ends when it has as much. Each bad event of a message has a row with the whole message."""
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


class SideFile:
    """Collects rows of one schema and writes them as one Parquet file, in row groups of *group_rows* or ``GROUP_BYTES``.

    Nothing is written where no row came.
    """

    def __init__(self, filesystem: Any, root: str, name: str, schema: pa.Schema, group_rows: int = 100_000) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._schema = schema
        self._group_rows = group_rows
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self.name = name
        self.count = 0

    def add(self, row: tuple[Any, ...]) -> int:
        """Append *row*, whose cells are in the order of the schema; returns its position in the file."""
        self._rows.append(row)
        self._bytes += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        self.count += 1
        if len(self._rows) >= self._group_rows or self._bytes >= GROUP_BYTES:
            self._flush()
        return self.count - 1

    def close(self) -> str | None:
        """Finish the file. Its name relative to the changelog's root, or None where it has no row."""
        if self._rows:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        return self.name

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        if self._writer is None:
            self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._writer = pq.ParquetWriter(self._path, self._schema, filesystem=self._filesystem, **_COMPRESSION)
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()
        self._bytes = 0


def read_groups(file: pq.ParquetFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of *file*, one row group at a time: not more bytes than ``SideFile`` held."""
    for group in range(file.num_row_groups):
        yield from file.read_row_group(group, columns=columns).to_batches()
