"""Reading a part of a data file: the rows of a window, and no row group without any."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.changelog.files.parts import batches_of, groups_with, part_of, rows_of, rows_where
from ticdc_replay.domain.window import Window

TIMES = [5, 7, 1, 3, 20, 22, 21, 25, 9, 8]
GROUP = 2


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of five row groups, each with two commit times."""
    path = tmp_path_factory.mktemp("parts") / "file.parquet"
    pq.write_table(pa.table({"_commit_ts": TIMES, "row": list(range(10))}), path, row_group_size=GROUP)
    return path


windows = st.tuples(st.integers(0, 30), st.integers(1, 30)).map(lambda pair: Window(pair[0], sum(pair)))


@given(window=windows)
def test_the_rows_of_a_window_are_read_and_groups_without_any_are_not(path: Path, window: Window) -> None:
    with pq.ParquetFile(path) as file:
        read = [(at, batch["row"].to_pylist()) for at, batch in batches_of(file, window)]
        found = [row for rows in rows_of(file, window) for row in rows["row"].to_pylist()]
    assert found == [at for at, commit_ts in enumerate(TIMES) if commit_ts in window]
    pairs = [TIMES[at : at + GROUP] for at in range(0, len(TIMES), GROUP)]
    touched = [at for at, pair in enumerate(pairs) if min(pair) < window.to_ts and max(pair) >= window.from_ts]
    assert [row for _, rows in read for row in rows] == [row for at in touched for row in (2 * at, 2 * at + 1)]
    assert all(rows[0] == at for at, rows in read), "each batch tells the position of its first row"


@given(window=windows)
def test_what_counts_of_a_file_is_told_in_numbers(path: Path, window: Window) -> None:
    file = DataFile("name", 10, 1_000, min(TIMES), max(TIMES), "topic", "run")
    part = part_of(LocalFileSystem(), str(path), file, window)
    inside = [commit_ts for commit_ts in TIMES if commit_ts in window]
    if not inside:
        assert part is None
        return
    assert part is not None
    assert (part.rows, part.min_commit_ts, part.max_commit_ts) == (len(inside), min(inside), max(inside))
    assert part.only == (None if len(inside) == len(TIMES) else window)
    assert (part.run, part.bytes) == ("run", 100 * len(inside))


@given(positions=st.lists(st.integers(0, 9), unique=True).map(sorted))
def test_rows_at_positions_are_found_in_the_groups_that_hold_them(path: Path, positions: list[int]) -> None:
    with pq.ParquetFile(path) as file:
        groups, shifted = groups_with(file.metadata, np.array(positions, dtype=np.int64))
        assert groups == sorted({position // GROUP for position in positions})
        rows = file.read_row_groups(groups)["row"] if groups else pa.array([], pa.int64())
    assert rows.take(pa.array(shifted)).to_pylist() == positions


@pytest.mark.parametrize("columns", [None, ["n", "text"], ["text"]])
@pytest.mark.parametrize("value", [0, 3, 7, 99])
def test_rows_with_a_value_are_those_that_a_filter_of_arrow_finds(
    tmp_path: Path, value: int, columns: list[str] | None
) -> None:
    numbers = [*range(10), None, 3, None, None, *[7] * 5]
    nested = [{"id": number} for number in range(len(numbers))]
    table = pa.table({"before": nested, "n": pa.array(numbers, pa.int32()), "text": [f"row {at}" for at in range(19)]})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=4)
    filesystem = LocalFileSystem()
    found = rows_where(filesystem, str(path), "n", value, columns)
    assert found == pq.read_table(path, columns=columns, filters=[("n", "=", value)])
    assert found.num_rows == numbers.count(value)
