"""Row groups of a quarantine: bounded by rows and by bytes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_replay.changelog import side_files
from ticdc_replay.changelog.side_files import QUARANTINE, SideFile, read_groups


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([10] * 7, [3, 3, 1]), ([600] * 5, [2, 2, 1]), ([2000, 10, 10, 990, 10], [1, 3, 1])],
)
def test_a_row_group_ends_at_so_many_rows_or_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], groups: list[int]
) -> None:
    monkeypatch.setattr(side_files, "GROUP_BYTES", 1000)
    file = SideFile(pa.fs.LocalFileSystem(), str(tmp_path), "quarantine/q.parquet", QUARANTINE, group_rows=3)
    rows = [("t", 0, at, 0, 0, None, b"x" * size, "bad_cell", "d", None, None, None) for at, size in enumerate(sizes)]
    assert [file.add(row) for row in rows] == list(range(len(rows)))
    with pq.ParquetFile(tmp_path / str(file.close())) as read:
        assert [read.metadata.row_group(at).num_rows for at in range(read.num_row_groups)] == groups
        assert [batch.num_rows for batch in read_groups(read)] == groups
        assert [len(value) for batch in read_groups(read) for value in batch["value"].to_pylist()] == sizes
