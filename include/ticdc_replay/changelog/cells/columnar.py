"""Rows of the changelog as columns, with the hashes that identify copies: what both decoders hand to the writer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

HASH = np.dtype("V16")
"""An identity or a fingerprint: 16 bytes."""


class ColumnarRows(NamedTuple):
    """Rows of one resolved schema that came in messages of one partition."""

    batch: pa.RecordBatch
    """All columns of the data file."""
    versions: npt.NDArray[np.void] | None
    """Identities of the row versions; None where rows have none."""
    fingerprints: npt.NDArray[np.void]
    halves: npt.NDArray[np.int8]

    def only(self, kept: npt.NDArray[np.bool_]) -> "ColumnarRows":
        """The rows that are *kept*."""
        if kept.all():
            return self
        versions = None if self.versions is None else self.versions[kept]
        return ColumnarRows(self.batch.filter(pa.array(kept)), versions, self.fingerprints[kept], self.halves[kept])


def hashes(values: Sequence[bytes]) -> npt.NDArray[np.void]:
    """*values*, of 16 bytes each, as one array."""
    return np.frombuffer(b"".join(values), HASH)


def halves_of(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Values of 16 bytes, none of them NULL, as pairs of numbers, one pair a row."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no chunk
        return np.empty((0, 2), np.uint64)
    return np.frombuffer(values.buffers()[1], np.uint64, len(values) * 2, values.offset * 16).reshape(-1, 2)


def numbers(batch: pa.RecordBatch | pa.Table, name: str) -> npt.NDArray[Any]:
    """The integers of a column; NULL, which only ``_commit_ts`` can be, counts as 0."""
    column = batch[name]
    found: npt.NDArray[Any] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return found


def content_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the values in *batch*: never more than its ``nbytes``, and the same however its arrays were made."""
    return sum(map(_content_bytes, batch.columns))


def _content_bytes(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(map(_content_bytes, array.flatten()))
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if pa.types.is_list(array.type):
        return _content_bytes(array.flatten())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found: int = pc.sum(pc.binary_length(array)).as_py() or 0
    else:
        found = len(array) * kind.bit_width // 8
    return found


def order_of(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """What sorts rows by *columns*, the first first, equal ones as they stand; None where they are sorted already."""
    sorted_, equal = np.zeros(max(0, len(columns[0]) - 1), np.bool_), np.ones(max(0, len(columns[0]) - 1), np.bool_)
    for column in columns:
        sorted_ |= equal & (column[:-1] < column[1:])
        equal &= column[:-1] == column[1:]
    if (sorted_ | equal).all():
        return None
    found: npt.NDArray[np.int64] = np.lexsort(columns[::-1])
    return found
