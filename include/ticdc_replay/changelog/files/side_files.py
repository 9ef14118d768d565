"""The narrow Parquet files beside the data: quarantine, claim-check references, sparse index."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ONCE = pa.dictionary(pa.int32(), pa.binary())
"""Bytes that several rows share: a row group has equal ones once. Files from before hold them row by row; both read alike."""

QUARANTINE = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32()),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", _ONCE),
        pa.field("value", _ONCE),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("commit_ts", pa.int64()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
    ]
)
"""What could not be decoded, with its bytes. ``ordinal`` is null where the whole message could not. Bad events of one message
share its bytes, in a row group and in memory."""

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
"""Of text and bytes: a row group ends when it has as much."""
_MOST_ROWS = 100_000
_COMPRESSION = {"compression": "zstd", "compression_level": 1}
QUARANTINE_ENCODING = {**_COMPRESSION, "use_dictionary": ["key", "value"], "dictionary_pagesize_limit": 1 << 30}
"""How quarantine files are written: bytes that rows share stay shared, however many they are."""


class SideFile:
    """Collects rows of one schema and writes them as one Parquet file, in row groups of *group_rows* or ``GROUP_BYTES``.

    Rows that share their bytes with others of the row group count as nothing but themselves. Nothing is written where no row
    came.
    """

    def __init__(self, filesystem: Any, root: str, name: str, schema: pa.Schema, group_rows: int = _MOST_ROWS) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._schema = schema
        self._group_rows = group_rows
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._own = 0
        self._shared: dict[int, dict[bytes, int]] = {
            at: {} for at, field in enumerate(schema) if pa.types.is_dictionary(field.type)
        }
        self._writer: pq.ParquetWriter | None = None
        self.name = name
        self.count = 0

    def add(self, row: tuple[Any, ...]) -> int:
        """Append *row*, whose cells are in the order of the schema; returns its position in the file."""
        self._rows.append(row)
        is_own = not self._shared
        for at, cell in enumerate(row):
            if isinstance(cell, str | bytes):
                shared = self._shared.get(at)
                if shared is not None and isinstance(cell, bytes):
                    if cell in shared:
                        continue
                    shared[cell] = len(shared)
                    is_own = True
                self._bytes += len(cell)
        self._own += is_own
        self.count += 1
        if self._own >= self._group_rows or self._bytes >= GROUP_BYTES or len(self._rows) >= _MOST_ROWS:
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
        arrays = [
            self._array(at, column, field) for at, (column, field) in enumerate(zip(columns, self._schema, strict=True))
        ]
        if self._writer is None:
            self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
            encoding = QUARANTINE_ENCODING if self._shared else _COMPRESSION
            self._writer = pq.ParquetWriter(self._path, self._schema, filesystem=self._filesystem, **encoding)
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()
        for shared in self._shared.values():
            shared.clear()
        self._bytes = self._own = 0

    def _array(self, at: int, column: tuple[Any, ...], field: pa.Field) -> pa.Array:
        shared = self._shared.get(at)
        if shared is None:
            return pa.array(column, field.type)
        indices = pa.array([None if cell is None else shared[cell] for cell in column], pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(shared), pa.binary()))


def shared_bytes(rows: pa.Table) -> pa.Table:
    """*rows* of a quarantine file, of whatever age, as new files have them: each message's bytes once, and no others."""
    for name in ("key", "value"):
        at, column = rows.schema.get_field_index(name), rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            used = column.indices.unique().drop_null()
            column = pa.DictionaryArray.from_arrays(pc.index_in(column.indices, used), column.dictionary.take(used))
        else:
            column = column.dictionary_encode()
        rows = rows.set_column(at, pa.field(name, _ONCE), column)
    return rows


def read_groups(file: pq.ParquetFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of *file*, one row group at a time: not more bytes than ``SideFile`` held."""
    for group in range(file.num_row_groups):
        yield from file.read_row_group(group, columns=columns).to_batches()
