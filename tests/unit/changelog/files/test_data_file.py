"""Row groups of a data file: bounded by rows and by bytes of values, whichever decoder made the rows."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.cells.columnar import HASH, ColumnarRows, content_bytes
from ticdc_replay.changelog.files import data_file
from ticdc_replay.changelog.files.data_file import DataFileWriter
from ticdc_replay.changelog.files.keys import Keys
from ticdc_replay.changelog.files.spill import Spill

SCHEMA = pa.schema(
    [
        ("_commit_ts", pa.int64()),
        ("_offset", pa.int64()),
        ("_index", pa.int32()),
        ("_topic", pa.string()),
        ("value", pa.binary()),
    ]
)
ROW_BYTES = 8 + 8 + 4 + 1


def rows(first: int, sizes: list[int]) -> ColumnarRows:
    places = list(range(first, first + len(sizes)))
    columns = [places, places, [0] * len(sizes), ["t"] * len(sizes), [b"x" * size for size in sizes]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    halves = np.zeros(len(sizes), np.int8)
    return ColumnarRows(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), None, np.zeros(len(sizes), HASH), halves)


def row_groups(folder: Path, batches: list[list[ColumnarRows]]) -> list[int]:
    writer = DataFileWriter(pa.fs.LocalFileSystem(), str(folder), "f.parquet", lambda: SCHEMA, Keys(), Spill())
    for parts in batches:
        writer.write(parts)
    written = writer.close().rows
    with pq.ParquetFile(folder / "f.parquet") as file:
        found = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        assert file.read()["_offset"].to_pylist() == list(range(written))
    return found


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([[100, 100], [100, 100], [100]], [4, 1]),
        ([[100], [900], [10], [10]], [1, 1, 2]),
        ([[5000], [1], [1]], [1, 2]),
        ([[1, 1], [1], [5000, 1]], [3, 2]),
    ],
)
def test_a_row_group_holds_no_more_bytes_than_its_limit_unless_they_came_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[list[int]], groups: list[int]
) -> None:
    monkeypatch.setattr(data_file, "ROW_GROUP_BYTES", 4 * (100 + ROW_BYTES))
    starts = np.cumsum([0, *map(len, sizes)])
    assert (
        row_groups(tmp_path, [[rows(int(start), part)] for start, part in zip(starts, sizes, strict=False)]) == groups
    )


@given(
    sizes=st.lists(st.lists(st.integers(0, 300), min_size=2, max_size=6), min_size=1, max_size=8),
    chance=st.randoms(use_true_random=False),
)
def test_row_groups_do_not_depend_on_which_rows_come_in_which_part(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], chance: Random
) -> None:
    whole, parted = [], []
    first = 0
    for batch in sizes:
        one = rows(first, batch)
        chosen = np.array([chance.random() < 0.5 for _ in batch])
        whole.append([one])
        parted.append([part for part in (one.only(chosen), one.only(~chosen)) if part.batch.num_rows])
        first += len(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS", 10)
        patch.setattr(data_file, "ROW_GROUP_BYTES", 1000)
        found = [row_groups(tmp_path_factory.mktemp("file"), batches) for batches in (whole, parted)]
    assert found[0] == found[1]


CELLS = pa.struct([("text", pa.string()), ("number", pa.int64()), ("flag", pa.bool_())])
VALUES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "text": st.none() | st.text(max_size=5),
            "number": st.none() | st.integers(0, 9),
            "flag": st.none() | st.booleans(),
        }
    ),
)


@given(st.lists(st.tuples(VALUES, st.none() | st.lists(st.text(max_size=3), max_size=2)), max_size=12))
def test_bytes_of_values_are_the_same_however_arrays_were_made(values: list[tuple[Any, Any]]) -> None:
    struct = pa.array([value for value, _ in values], CELLS)
    names = pa.array([name for _, name in values], pa.list_(pa.string()))
    pairs = pa.array([name and [(one, b"xy") for one in name] for _, name in values], pa.map_(pa.string(), pa.binary()))
    plain = pa.RecordBatch.from_arrays([struct, names, pairs], ["struct", "names", "pairs"])
    # Below a struct that is NULL there may be anything, an array may be a slice of another, and a bitmap may be there or not.
    filled = [value or {"text": "hidden", "number": 1, "flag": True} for value, _ in values]
    hidden = pa.StructArray.from_arrays(
        pa.array(filled, CELLS).flatten(),
        fields=list(CELLS),
        mask=pa.array([value is None for value, _ in values], pa.bool_()),
    )
    other = pa.RecordBatch.from_arrays([hidden, names, pairs], ["struct", "names", "pairs"])
    around = pa.concat_batches([other, plain, other]).slice(len(values), len(values))
    assert content_bytes(plain) == content_bytes(other) == content_bytes(around)
    for batch in (plain, other, around):
        assert content_bytes(batch) <= batch.nbytes
