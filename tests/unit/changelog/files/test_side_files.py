"""Row groups of a quarantine: bounded by rows and by bytes."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_replay.changelog.copies.duplicates import drop_rows
from ticdc_replay.changelog.files import side_files
from ticdc_replay.changelog.files.side_files import QUARANTINE, SideFile, read_groups


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([10] * 7, [3, 3, 1]), ([600] * 5, [2, 2, 1]), ([2000, 10, 10, 990, 10], [1, 3, 1])],
)
def test_a_row_group_ends_at_so_many_rows_or_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], groups: list[int]
) -> None:
    monkeypatch.setattr(side_files, "GROUP_BYTES", 1000)
    file = SideFile(pa.fs.LocalFileSystem(), str(tmp_path), "quarantine/q.parquet", QUARANTINE, group_rows=3)
    rows = [
        ("t", 0, at, 0, 0, None, bytes([at]) * size, "bad_cell", "d", None, None, None) for at, size in enumerate(sizes)
    ]
    assert [file.add(row) for row in rows] == list(range(len(rows)))
    with pq.ParquetFile(tmp_path / str(file.close())) as read:
        assert [read.metadata.row_group(at).num_rows for at in range(read.num_row_groups)] == groups
        assert [batch.num_rows for batch in read_groups(read)] == groups
        assert [len(value) for batch in read_groups(read) for value in batch["value"].to_pylist()] == sizes


def entry(offset: int, ordinal: int, value: bytes | None, key: bytes | None = b"key") -> tuple[object, ...]:
    return ("t", 0, offset, ordinal, 0, key, value, "bad_cell", "d", None, None, None)


@pytest.mark.slow
def test_bad_events_of_one_message_share_its_bytes_in_the_file_and_in_memory(tmp_path: Path) -> None:
    contents = [Random(seed).randbytes(1 << 20) for seed in range(3)]
    rows = [entry(offset, ordinal, contents[offset]) for ordinal in range(1000) for offset in range(3)]
    rows += [entry(9, 0, None), entry(10, 0, b""), entry(11, 0, b"x", None)]
    file = SideFile(pa.fs.LocalFileSystem(), str(tmp_path), "quarantine/q.parquet", QUARANTINE, group_rows=64)
    for row in rows:
        file.add(row)
    path = tmp_path / str(file.close())
    assert path.stat().st_size < 4 << 20
    with pq.ParquetFile(path) as read:
        (batch,) = read_groups(read)
        assert batch.nbytes < 4 << 20
    found = zip(batch["offset"].to_pylist(), batch["key"], batch["value"], strict=True)
    assert [(offset, key.as_py(), value.as_py()) for offset, key, value in found] == [
        (row[2], row[5], row[6]) for row in rows
    ]


def old_file(path: Path, rows: list[tuple[object, ...]]) -> None:
    """A quarantine as it was written before rows shared bytes."""
    fields = [pa.field(each.name, pa.binary()) if each.name in ("key", "value") else each for each in QUARANTINE]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), fields, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_quarantine_file_of_any_age_is_written_anew_with_the_bytes_that_stay(tmp_path: Path, is_old: bool) -> None:
    (tmp_path / "quarantine").mkdir()
    filesystem = pa.fs.LocalFileSystem()
    gone, stays = Random(1).randbytes(1 << 20), Random(2).randbytes(1 << 20)
    rows = [entry(0, 0, stays), entry(1, 0, gone), entry(0, 1, stays), entry(2, 0, None)]
    if is_old:
        old_file(tmp_path / "quarantine" / "q.parquet", rows)
    else:
        file = SideFile(filesystem, str(tmp_path), "quarantine/q.parquet", QUARANTINE, group_rows=64)
        for row in rows:
            file.add(row)
        file.close()
    kept, _ = drop_rows(filesystem, str(tmp_path), "quarantine/q.parquet", np.array([1]))
    assert kept is not None
    assert kept.bytes < 1.5 * (1 << 20)
    with pq.ParquetFile(tmp_path / kept.name) as read:
        assert read.schema_arrow.field("value").type == QUARANTINE.field("value").type
        (batch,) = read_groups(read)
    assert batch["value"].to_pylist() == [stays, stays, None]
