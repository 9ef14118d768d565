"""What the data files of one split share, so that a split of any number of tables needs few open files and little memory.

Rows wait in one temporary file if their data file can't be opened yet, or if they are too few for a row group while many tables
wait. The data files are the same, byte for byte, as if all had stayed in memory.
"""

import os
import tempfile
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_replay.changelog.cells.columnar import HASH, ColumnarRows

OPEN_FILES = 64
"""Data files of a split that are open at a time. The limit of a process is often 1,024, and other files need some of these."""
WAITING_ARRAYS = 100_000
"""Arrow arrays that wait in memory. Each takes about 1 KB beside its values."""


class SpilledRows(NamedTuple):
    """Where rows stand in the temporary file."""

    offset: int
    batch_bytes: int
    rows: int
    keyed: bool


class Spill:
    """The temporary file of one split. It has no name, and ends with this object or its process.

    ``open_files`` and ``arrays`` count what data files hold at present; whoever takes or gives back counts.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0
        self.open_files = 0
        self.arrays = 0

    @property
    def has_room(self) -> bool:
        """Whether one more data file may be open."""
        return self.open_files < OPEN_FILES

    @property
    def is_due(self) -> bool:
        """Whether rows that wait must leave memory."""
        return self.arrays > WAITING_ARRAYS

    def put(self, rows: ColumnarRows) -> SpilledRows:
        """Write *rows* to the temporary file. Raises OSError if the disk is full."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ticdc-replay-", buffering=0)  # noqa: SIM115  closed by close()
        batch = rows.batch.serialize()
        versions = [] if rows.versions is None else [rows.versions.tobytes()]
        content = b"".join([batch, *versions, rows.fingerprints.tobytes(), rows.halves.tobytes()])
        left = memoryview(content)
        while left:
            left = left[os.pwrite(self._file.fileno(), left, self._end + len(content) - len(left)) :]
        place = SpilledRows(self._end, batch.size, rows.batch.num_rows, rows.versions is not None)
        self._end += len(content)
        return place

    def get(self, place: SpilledRows, schema: pa.Schema) -> ColumnarRows:
        """The rows at *place*, which have *schema*. Raises OSError if they can't be read."""
        assert self._file is not None, "rows were put"
        widths = [
            place.batch_bytes,
            HASH.itemsize * place.rows if place.keyed else 0,
            HASH.itemsize * place.rows,
            place.rows,
        ]
        content = memoryview(self._read(place.offset, sum(widths)))
        parts = []
        for width in widths:
            parts.append(content[:width])
            content = content[width:]
        batch, versions, fingerprints, halves = parts
        return ColumnarRows(
            pa.ipc.read_record_batch(pa.py_buffer(batch), schema),
            np.frombuffer(versions, HASH) if place.keyed else None,
            np.frombuffer(fingerprints, HASH),
            np.frombuffer(halves, np.int8),
        )

    def close(self) -> None:
        """Free the disk."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, offset: int, length: int) -> bytes:
        assert self._file is not None, "rows were put"
        parts = []
        while length:
            part = os.pread(self._file.fileno(), length, offset)
            if not part:
                raise OSError(f"the temporary file of rows ends at {offset}, before the rows do")
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)
