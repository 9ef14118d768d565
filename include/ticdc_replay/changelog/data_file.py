"""One Parquet file of changelog rows while it is written.

Rows of a row group are sorted by commitTs, then by their place in Kafka, whichever decoder they came from. So what is written
does not depend on the decoder, and a later merge finds runs that are sorted; Parquet's metadata say so.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.columnar import ColumnarRows, numbers, order_of
from ticdc_replay.changelog.index import DataFile
from ticdc_replay.changelog.keys import Keys

ROW_GROUP_ROWS = 20_000
"""Rows are kept until a row group has at least this many: many small tables share one split."""


SORTED_BY = ("_commit_ts", "_offset", "_index")
"""Then the delete before the put of an UPDATE that changed its key."""


class DataFileWriter:
    """Writes rows to the file *name* below *root*, and their identities to *keys*. ``rows`` counts those handed over so far."""

    def __init__(self, filesystem: Any, root: str, name: str, schema: pa.Schema, keys: Keys) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._waiting: list[ColumnarRows] = []
        self._waiting_rows = 0
        self._written = 0
        self._schema = schema
        self._keys = keys
        self._writer: pq.ParquetWriter | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._topic = ""
        self.name = name
        self.rows = 0

    def write(self, rows: ColumnarRows) -> None:
        """Append *rows*, of which there must be one."""
        self._waiting.append(rows)
        self._waiting_rows += rows.batch.num_rows
        self.rows += rows.batch.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> DataFile:
        """Finish the file and describe it."""
        if self._waiting:
            self._flush()
        assert self._writer is not None, "a file is opened with its first row"
        self._writer.close()
        size = self._filesystem.get_file_info(self._path).size
        return DataFile(self.name, self.rows, size, self._first or 0, self._last or 0, self._topic)

    def _flush(self) -> None:
        rows = self._sorted()
        if self._writer is None:
            self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                filesystem=self._filesystem,
                compression="zstd",
                compression_level=1,
                sorting_columns=[pq.SortingColumn(self._schema.names.index(name)) for name in SORTED_BY],
            )
        table = pa.Table.from_batches([rows.batch])
        self._topic = table["_topic"][0].as_py()
        extremes = pc.min_max(table["_commit_ts"]).as_py()
        if extremes["min"] is not None:
            self._first = extremes["min"] if self._first is None else min(self._first, extremes["min"])
            self._last = extremes["max"] if self._last is None else max(self._last, extremes["max"])
        self._writer.write_table(table)
        if rows.versions is not None:
            self._keys.add(rows, file=self.name, first_position=self._written)
        self._written += self._waiting_rows
        self._waiting.clear()
        self._waiting_rows = 0

    def _sorted(self) -> ColumnarRows:
        """All waiting rows."""
        waiting = self._waiting
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
