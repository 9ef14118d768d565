from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.cells.columnar import hashes, order_of
from ticdc_replay.changelog.files.seen import NativeSeen, PythonSeen, Seen


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_rows_are_ordered_by_the_first_column_first_and_equal_ones_stay_as_they_stand(
    rows: list[tuple[int, int, int]],
) -> None:
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(3)]
    order = order_of(*columns)
    expected = sorted(range(len(rows)), key=lambda at: rows[at])
    assert (list(range(len(rows))) if order is None else order.tolist()) == expected
    assert (order is None) is (expected == list(range(len(rows))))


def native_seen() -> Seen:
    return NativeSeen(
        pytest.importorskip("ticdc_replay_native", reason="the native extension is not built here").Seen()
    )


@pytest.mark.parametrize("nothing_seen", [PythonSeen, native_seen])
@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=8), max_size=3))
def test_a_row_version_is_fresh_unless_its_first_copy_had_the_same_content(
    nothing_seen: Callable[[], Seen], batches: list[list[tuple[int, int]]]
) -> None:
    seen = nothing_seen()
    first: dict[int, int] = {}
    for batch in batches:
        versions = hashes([bytes([version]) * 16 for version, _ in batch])
        contents = hashes([bytes([content]) * 16 for _, content in batch])
        expected = []
        for version, content in batch:
            expected.append(first.get(version) != content)
            first.setdefault(version, content)
        fresh = seen.fresh(versions, contents)
        assert ([True] * len(batch) if fresh is None else fresh.tolist()) == expected
