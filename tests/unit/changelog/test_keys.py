import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.columnar import ColumnarRows, hashes
from ticdc_replay.changelog.keys import Keys, repeated_in_bucket


def write(root: Path, name: str, ids: list[bytes], buckets: int) -> str | None:
    keys = Keys()
    count = len(ids)
    if ids:
        batch = pa.RecordBatch.from_pydict(
            {
                "_topic": ["orders"] * count,
                "_partition": pa.array([1] * count, pa.int32()),
                "_offset": pa.array(range(count), pa.int64()),
                "_index": pa.array([0] * count, pa.int32()),
                "_partial": [False] * count,
            }
        )
        rows = ColumnarRows(batch, hashes(ids), hashes([b"f" * 16] * count), np.zeros(count, np.int8))
        keys.add(rows, file=f"{name}.data", first_position=7)
    return keys.write(pyarrow.fs.LocalFileSystem(), str(root), name, buckets)


@given(
    first=st.lists(st.integers(0, 30), max_size=40),
    second=st.lists(st.integers(0, 30), max_size=40),
    buckets=st.integers(1, 9),
)
def test_buckets_together_find_every_identity_that_was_written_more_than_once(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], second: list[int], buckets: int
) -> None:
    root = tmp_path_factory.mktemp("keys")
    written = [[number.to_bytes(2, "big") * 8 for number in numbers] for numbers in (first, second)]
    names = [name for at, ids in enumerate(written) if (name := write(root, f"keys/{at}.parquet", ids, buckets))]
    found: dict[bytes, int] = {}
    for number in range(buckets):
        for copies in repeated_in_bucket(pyarrow.fs.LocalFileSystem(), str(root), names, number, buckets):
            assert copies[0].id not in found, "an identity is in one bucket only"
            found[copies[0].id] = len(copies)
    everything = written[0] + written[1]
    assert found == {row_id: everything.count(row_id) for row_id in everything if everything.count(row_id) > 1}


def test_a_copy_tells_its_place(tmp_path: Path) -> None:
    row_id = os.urandom(16)
    name = write(tmp_path, "keys/a.parquet", [row_id, row_id], 1)
    assert name is not None
    (copies,) = repeated_in_bucket(pyarrow.fs.LocalFileSystem(), str(tmp_path), [name], 0, 1)
    assert [(copy.topic, copy.partition, copy.offset, copy.file, copy.position) for copy in copies] == [
        ("orders", 1, 0, "keys/a.parquet.data", 7),
        ("orders", 1, 1, "keys/a.parquet.data", 8),
    ]


def test_files_with_another_number_of_buckets_are_refused(tmp_path: Path) -> None:
    name = write(tmp_path, "keys/a.parquet", [os.urandom(16)], 2)
    assert name is not None
    with pytest.raises(ValueError, match="2 row groups, 3 expected"):
        repeated_in_bucket(pyarrow.fs.LocalFileSystem(), str(tmp_path), [name], 0, 3)
