"""What orders the versions of a row: their commitTs, or, where not all rows carry one, their place in Kafka.

A place orders only rows of one partition of one topic: for tables whose rows a dispatcher scatters it means nothing.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_replay.domain.errors import PermanentError

VersionOrder = Literal["commit_ts", "place"]
"""``place``: by partition and offset, for windows that are bounded by offsets."""

OFFSET_BITS = 48
MAX_PARTITION = (1 << (63 - OFFSET_BITS)) - 2
"""One more would have a place, its last, that no int64 holds."""


def place(partition: int, offset: int) -> int:
    """A message's place as one number above 0: within its partition it grows with the offset.

    Raises PermanentError for a partition or an offset that does not fit into 15 and 48 bits.
    """
    if partition > MAX_PARTITION or offset >= 1 << OFFSET_BITS:
        raise PermanentError(
            f"partition {partition}, offset {offset}: rows without commitTs can be ordered in partitions up to {MAX_PARTITION} "
            f"and offsets below 2^{OFFSET_BITS} only"
        )
    return (partition << OFFSET_BITS) + offset + 1


def offset_of(place: int) -> int:
    """The offset of what ``place`` gave."""
    return (place & ((1 << OFFSET_BITS) - 1)) - 1


def versions_of(rows: pa.Table | pa.RecordBatch, order: VersionOrder) -> Any:
    """Per row of the changelog, the number (int64) that orders it among the versions of its row; null where it has none."""
    if order == "commit_ts":
        return rows["_commit_ts"]
    partitions = rows["_partition"].to_numpy(zero_copy_only=False) if rows.num_rows else np.array([], np.int64)
    offsets = rows["_offset"].to_numpy(zero_copy_only=False) if rows.num_rows else np.array([], np.int64)
    numbers: npt.NDArray[np.int64] = (partitions.astype(np.int64) << OFFSET_BITS) + offsets.astype(np.int64) + 1
    return pa.array(numbers, pa.int64())
