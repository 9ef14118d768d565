"""Copies of row versions are found by their keys, however these are divided into files and buckets."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.cells.columnar import ColumnarRows, hashes
from ticdc_replay.changelog.copies.key_buckets import KeyBucket, plan_buckets, repeated
from ticdc_replay.changelog.files import keys
from ticdc_replay.changelog.files.keys import Keys, KeysFile, KeysGroup

LOCAL = pyarrow.fs.LocalFileSystem()
Version = tuple[int, int]
"""commitTs and number of a row version."""


def id_of(version: Version) -> bytes:
    return version[1].to_bytes(8, "big") * 2


def write(root: Path, name: str, versions: list[Version]) -> KeysFile | None:
    """A keys file of rows that stand one after the other in ``<name>.data``, in partition 1 of topic orders."""
    count = len(versions)
    columns = {
        "_commit_ts": pa.array([ts for ts, _ in versions], pa.int64()),
        "_partial": pa.array([False] * count, pa.bool_()),
        "_topic": pa.array(["orders"] * count, pa.string()),
        "_partition": pa.array([1] * count, pa.int32()),
        "_offset": pa.array(range(count), pa.int64()),
        "_index": pa.array([0] * count, pa.int32()),
    }
    found = Keys()
    if count:
        rows = ColumnarRows(
            pa.RecordBatch.from_pydict(columns),
            hashes(list(map(id_of, versions))),
            hashes([b"f" * 16] * count),
            np.zeros(count, np.int8),
        )
        found.add(rows, file=f"{name}.data", first_position=7)
    return found.write(LOCAL, str(root), name)


def versions_of(numbers: int) -> st.SearchStrategy[list[Version]]:
    """Versions of which many have one commitTs, and some repeat."""
    return st.lists(
        st.builds(
            lambda ts, number: (ts, ts * 1_000 + number),
            st.one_of(st.just(9), st.integers(1, 30)),
            st.integers(0, numbers),
        ),
        max_size=40,
    )


@given(versions_of(5), versions_of(5), st.integers(1, 9), st.integers(1, 3))
def test_buckets_together_find_every_version_that_was_written_more_than_once(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Version],
    second: list[Version],
    bucket_rows: int,
    group_rows: int,
) -> None:
    root = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "GROUP_ROWS", group_rows)
        written = [write(root, f"keys/{at}.parquet", versions) for at, versions in enumerate((first, second))]
    found: dict[bytes, int] = {}
    for bucket in plan_buckets([file for file in written if file is not None], 1, bucket_rows):
        met: dict[bytes, int] = {}
        for row_id in repeated(LOCAL, str(root), bucket)["id"].to_pylist():
            met[row_id] = met.get(row_id, 0) + 1
        assert not met.keys() & found.keys(), "a version is in one bucket only"
        found |= met
    everything = [id_of(version) for version in first + second]
    expected = {row_id: everything.count(row_id) for row_id in everything if everything.count(row_id) > 1}
    assert {row_id: number for row_id, number in found.items() if number > 1} == expected


def test_a_copy_tells_its_place(tmp_path: Path) -> None:
    file = write(tmp_path, "keys/a.parquet", [(5, 1), (4, 2), (5, 1)])
    assert file is not None
    (bucket,) = plan_buckets([file], 1)
    copies = repeated(LOCAL, str(tmp_path), bucket).to_pylist()
    assert [(copy["topic"], copy["partition"], copy["offset"], copy["file"], copy["position"]) for copy in copies] == [
        ("orders", 1, 0, "keys/a.parquet.data", 7),
        ("orders", 1, 2, "keys/a.parquet.data", 9),
    ]


def test_a_split_without_keyed_rows_has_no_keys_file(tmp_path: Path) -> None:
    assert write(tmp_path, "keys/a.parquet", []) is None
    assert plan_buckets([], 4) == []


def one_hour(files: int, rows_each: int) -> list[KeysFile]:
    """Splits of several partitions, each with a stretch of an hour; in the middle a transaction of 3,000,000 rows."""
    hour = 3_600_000 << 18
    made = []
    for number in range(files):
        start = (number % (files // 4)) * hour // (files // 4)
        step = hour // (files // 4) // (rows_each // 16_384)
        groups = [
            KeysGroup(start + at * step, start + (at + 1) * step - 1, 16_384) for at in range(rows_each // 16_384)
        ]
        made.append(KeysFile(f"{number}", tuple(groups)))
    return [*made, KeysFile("large", tuple(KeysGroup(hour // 2, hour // 2, 16_384) for _ in range(183)))]


@pytest.mark.parametrize("splits", [400, 1_600])
def test_buckets_do_not_grow_with_the_window_and_touch_few_files(splits: int) -> None:
    files = one_hour(splits, 163_840)
    rows = {file.name: file.groups for file in files}
    buckets = plan_buckets(files, 2, 1_000_000)
    held = [
        sum(rows[part.name][at].rows for part in bucket.files for at in part.groups) / bucket.parts
        for bucket in buckets
    ]
    assert max(held) < 1_300_000
    assert {bucket.parts for bucket in buckets if bucket.parts > 1} <= {3, 4}
    assert sum(len(bucket.files) for bucket in buckets) < 4 * len(files)
    in_all = sum(group.rows for groups in rows.values() for group in groups)
    assert 0.9 < len(buckets) * 1_000_000 / in_all < 1.2


def test_keys_of_bounded_size_are_read_of_a_large_file(tmp_path: Path) -> None:
    file = write(tmp_path, "keys/a.parquet", [(ts, int.from_bytes(os.urandom(7), "big")) for ts in range(40_000)])
    assert file is not None
    assert [group.rows for group in file.groups] == [16_384, 16_384, 7_232]
    assert pq.ParquetFile(tmp_path / "keys/a.parquet").num_row_groups == 3
    first, *_ = plan_buckets([file], 1, 10_000)
    assert first == KeyBucket(0, 9_999, 0, 1, first.files)
    assert first.files[0].groups == (0,)
