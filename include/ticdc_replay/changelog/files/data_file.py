"""One Parquet file of changelog rows while it is written.

Rows of a row group are sorted by commitTs, then by their place in Kafka, whichever decoder they came from. So what is written
does not depend on the decoder, and a later merge finds runs that are sorted; Parquet's metadata say so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.columnar import ColumnarRows, content_bytes, numbers, order_of
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.changelog.files.keys import Keys
from ticdc_replay.changelog.files.spill import Spill, SpilledRows

ROW_GROUP_ROWS = 40_000
"""Rows are kept until a row group has at least this many: many small tables share one split."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Of values. What would make it more than that begins a new row group, so only rows that were handed over together can."""

_REPEATING = ["_op", "_topic", "_partition", "_index", "_physical_table_id", "_partial", "_split"]
"""Columns that a dictionary makes smaller. Of most others it would be made and thrown away, and zstd finds what repeats."""
ENCODING = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": _REPEATING,
    "max_rows_per_page": ROW_GROUP_ROWS,  # each page takes zstd a state of its own, so they end by their bytes alone
}
"""How data files are written, as ``pyarrow.parquet.ParquetWriter`` takes it."""
_PLAIN = {**ENCODING, "compression": "none", "compression_level": None}
FEW_BYTES = 16 * 1024
"""Of values. A file of no more is not compressed: footers are most of it, and compressing takes longer than all else."""
SORTED_BY = ("_commit_ts", "_offset", "_index")
"""Then the delete before the put of an UPDATE that changed its key."""

TABLE_METADATA = b"ticdc_replay.table"
"""Member of a data file's schema metadata: JSON of the table's ``name`` and ``handle_key``."""


class DataFileWriter:
    """Writes rows to the file *name* below *root*, and their identities to *keys*. ``rows`` counts those added so far.

    If *spill* has no room for one more open file, row groups wait there until ``close``. *schema* returns the schema of the rows.
    ``waiting_bytes`` is an upper bound until ``count_waiting`` is called.
    """

    def __init__(
        self, filesystem: Any, root: str, name: str, schema: Callable[[], pa.Schema], keys: Keys, spill: Spill
    ) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._ended: list[list[SpilledRows]] = []
        self._waiting: list[ColumnarRows | SpilledRows] = []
        self._waiting_rows = 0
        self._arrays = 0
        self.waiting_bytes = 0
        self._written = 0
        self._schema = schema
        self._keys = keys
        self._spill = spill
        self._writer: pq.ParquetWriter | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._topic = ""
        self.name = name
        self.rows = 0

    def write(self, parts: Sequence[ColumnarRows]) -> None:
        """Append the rows of *parts*, at least one; how they are divided into parts makes no difference."""
        self._make_room(parts)
        self._waiting += parts
        self._hold(sum(_arrays(part.batch.schema) for part in parts))
        added = sum(part.batch.num_rows for part in parts)
        self._waiting_rows += added
        self.rows += added
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self.flush()

    def count_waiting(self) -> int:
        """Bytes of the values that wait: the same whichever decoder they came from."""
        self.waiting_bytes = _content_bytes(self._in_memory(self._waiting))
        return self.waiting_bytes

    def spill(self) -> None:
        """Take the rows that wait out of memory. They still wait: where row groups end does not change."""
        if self._arrays:
            self._waiting = [self._spilled(part) for part in self._waiting]
            self._hold(-self._arrays)

    def _spilled(self, part: ColumnarRows | SpilledRows) -> SpilledRows:
        return part if isinstance(part, SpilledRows) else self._spill.put(part)

    def _in_memory(self, group: Sequence[ColumnarRows | SpilledRows]) -> Iterator[ColumnarRows]:
        schema = self._schema() if any(isinstance(part, SpilledRows) for part in group) else None
        for part in group:
            yield self._spill.get(part, schema) if isinstance(part, SpilledRows) else part

    def _hold(self, arrays: int) -> None:
        self._arrays += arrays
        self._spill.arrays += arrays

    def _make_room(self, parts: Sequence[ColumnarRows]) -> None:
        """Write what waits where it would be too many bytes with *parts*; count them as waiting."""
        added = sum(part.batch.nbytes for part in parts)
        if self.waiting_bytes + added > ROW_GROUP_BYTES:
            # nbytes takes a twentieth of the time, and is never less; but it depends on the decoder.
            added = _content_bytes(parts)
            if self.count_waiting() + added > ROW_GROUP_BYTES:
                self.flush()
        self.waiting_bytes += added

    def close(self) -> DataFile:
        """Finish the file and describe it."""
        if self._writer is None:
            few = not self._ended and (self.waiting_bytes <= FEW_BYTES or self.count_waiting() <= FEW_BYTES)
            self._open(_PLAIN if few else ENCODING)
        assert self._writer is not None, "a file is opened with its first row"
        for group in self._ended:
            self._write(group)
        if self._waiting:
            self._write(self._waiting)
            self._forget_waiting()
        self._writer.close()
        self._spill.open_files -= 1
        size = self._filesystem.get_file_info(self._path).size
        return DataFile(self.name, self.rows, size, self._first or 0, self._last or 0, self._topic)

    def flush(self) -> None:
        """End a row group with what waits, and write it if the file is open or may be."""
        if not self._waiting:
            return
        if self._writer is None and (self._ended or not self._spill.has_room):
            self._ended.append([self._spilled(part) for part in self._waiting])
        else:
            if self._writer is None:
                self._open(ENCODING)
            self._write(self._waiting)
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_rows = self.waiting_bytes = 0
        self._hold(-self._arrays)

    def _open(self, encoding: dict[str, Any]) -> None:
        self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
        schema = self._schema()
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            filesystem=self._filesystem,
            **encoding,
            sorting_columns=[pq.SortingColumn(schema.names.index(name)) for name in SORTED_BY],
        )
        self._spill.open_files += 1

    def _write(self, group: Sequence[ColumnarRows | SpilledRows]) -> None:
        assert self._writer is not None, "the file was opened"
        rows = self._sorted(group)
        table = pa.Table.from_batches([rows.batch])
        self._topic = table["_topic"][0].as_py()
        extremes = pc.min_max(table["_commit_ts"]).as_py()
        if extremes["min"] is not None:
            self._first = extremes["min"] if self._first is None else min(self._first, extremes["min"])
            self._last = extremes["max"] if self._last is None else max(self._last, extremes["max"])
        self._writer.write_table(table)
        if rows.versions is not None:
            self._keys.add(rows, file=self.name, first_position=self._written)
        self._written += table.num_rows

    def _sorted(self, group: Sequence[ColumnarRows | SpilledRows]) -> ColumnarRows:
        """All rows of *group*."""
        waiting = list(self._in_memory(group))
        batch = pa.concat_batches([rows.batch for rows in waiting])
        keyed = [rows.versions for rows in waiting if rows.versions is not None]
        versions = np.concatenate(keyed) if keyed else None
        fingerprints = np.concatenate([rows.fingerprints for rows in waiting])
        halves = np.concatenate([rows.halves for rows in waiting])
        order = order_of(*(numbers(batch, name) for name in SORTED_BY), halves)
        if order is None:
            return ColumnarRows(batch, versions, fingerprints, halves)
        return ColumnarRows(
            batch.take(pa.array(order)),
            None if versions is None else versions[order],
            fingerprints[order],
            halves[order],
        )


def _content_bytes(parts: Iterable[ColumnarRows]) -> int:
    return sum(content_bytes(part.batch) for part in parts)


def _arrays(schema: pa.Schema) -> int:
    """Arrays of a batch, about: two images have each column of the table."""
    return len(schema) + 2 * (schema.field("after").type.num_fields if "after" in schema.names else 0)
