"""Places in Kafka as numbers that order versions."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ticdc_replay.changelog.files.version_order import MAX_PARTITION, OFFSET_BITS, place, versions_of
from ticdc_replay.domain.errors import PermanentError

PARTITIONS = st.integers(0, MAX_PARTITION)
OFFSETS = st.integers(0, (1 << OFFSET_BITS) - 1)


@given(PARTITIONS, OFFSETS, PARTITIONS, OFFSETS)
@example(MAX_PARTITION, (1 << OFFSET_BITS) - 1, 0, 0)
def test_places_are_as_their_partitions_and_offsets(partition, offset, other_partition, other_offset):
    one, other = place(partition, offset), place(other_partition, other_offset)
    assert (one < other) == ((partition, offset) < (other_partition, other_offset))
    assert 0 < one < 1 << 63
    assert (one - 1) >> OFFSET_BITS == partition


@pytest.mark.parametrize(("partition", "offset"), [(MAX_PARTITION + 1, 0), (0, 1 << OFFSET_BITS)])
def test_what_does_not_fit_is_refused(partition, offset):
    with pytest.raises(PermanentError, match="can be ordered in partitions up to"):
        place(partition, offset)


def test_rows_have_the_numbers_of_their_places():
    rows = pa.table({
        "_commit_ts": pa.array([5, None], pa.int64()),
        "_partition": pa.array([0, 3], pa.int32()),
        "_offset": pa.array([7, 9], pa.int64()),
    })  # fmt: skip
    assert versions_of(rows, "commit_ts").to_pylist() == [5, None]
    assert versions_of(rows, "place").to_pylist() == [place(0, 7), place(3, 9)]
    assert versions_of(rows.slice(0, 0), "place").to_pylist() == []
