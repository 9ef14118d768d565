"""One Parquet file of changelog rows while it is written."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.index import DataFile

ROW_GROUP_ROWS = 20_000
"""Rows are kept until a row group has at least this many: many small tables share one split."""


class DataFileWriter:
    """Writes batches to the file *name* below *root*. ``rows`` counts those handed over so far."""

    def __init__(self, filesystem: Any, root: str, name: str, schema: pa.Schema) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._topic = ""
        self.name = name
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append *batch*, which must have a row."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
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
        if self._writer is None:
            self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._writer = pq.ParquetWriter(
                self._path, self._schema, filesystem=self._filesystem, compression="zstd", compression_level=1
            )
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._topic = table["_topic"][0].as_py()
        extremes = pc.min_max(table["_commit_ts"]).as_py()
        if extremes["min"] is not None:
            self._first = extremes["min"] if self._first is None else min(self._first, extremes["min"])
            self._last = extremes["max"] if self._last is None else max(self._last, extremes["max"])
        self._writer.write_table(table)
        self._waiting.clear()
        self._waiting_rows = 0
