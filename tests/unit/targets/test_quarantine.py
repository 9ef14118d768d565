"""What lists the cells that a target can't hold: as much as the rows and cells are, however long the rows' keys."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from tests.support.changelogs import Row, delete, put, rows_of, table
from tests.support.growth import assert_linear
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage import open_store
from ticdc_replay.targets.refused_rows import KEY_CHARACTERS, Refused, ValueQuarantine, describe, read_refused

NAME = TableName("s", "t")
TEXT = ColumnType("varchar", length=20, declared=True)
LONG = 1_000_000


def batch_of(*rows: Row) -> pa.RecordBatch:
    """*rows* as a changelog has them; the key is the column ``k``."""
    (batch,) = rows_of(table("s.t", {"k": TEXT, "v": TEXT}, key=["k"]), rows).to_batches()
    return batch


def listed(folder: Path, batch: pa.RecordBatch, refused: list[Refused]) -> list[dict[str, Any]]:
    """What a quarantine has of *refused*."""
    quarantine = ValueQuarantine(fs.LocalFileSystem(), str(folder), "aside.parquet")
    quarantine.add(NAME, ["k"], "file", batch, refused)
    assert quarantine.close() == "aside.parquet"
    rows: list[dict[str, Any]] = pq.read_table(folder / "aside.parquet").to_pylist()
    return rows


@pytest.mark.parametrize(
    "row",
    [
        put(10, k="é" * LONG, v="x"),
        delete(10, k="é" * LONG),
        Row("insert", 10, {"v": "x"}, exact={"k": ("é" * LONG).encode()}),
    ],
    ids=["put", "delete", "exact"],
)
def test_of_a_long_key_a_part_is_listed(tmp_path: Path, row: Row) -> None:
    (entry,) = listed(tmp_path, batch_of(row), [Refused(0, "v", "why")])
    assert entry["key"] == '{"k": "' + "é" * (KEY_CHARACTERS - 7) + "…"
    assert (entry["commit_ts"], entry["offset"], entry["ordinal"], entry["column"]) == (10, 1, 0, "v")


def test_any_other_key_is_listed_whole(tmp_path: Path) -> None:
    batch = batch_of(put(10, k='"' * 900, v="x"))
    (entry,) = listed(tmp_path, batch, [Refused(0, "v", "why")])
    assert json.loads(entry["key"]) == {"k": '"' * 900}


def test_each_cell_comes_with_its_own_row(tmp_path: Path) -> None:
    batch = batch_of(put(10, k="a", v="x"), delete(20, k="b"), put(30, k="c", v="x"))
    cells = [Refused(2, "v", "1"), Refused(0, "k", "2"), Refused(1, "k", "3"), Refused(2, "k", "4")]
    entries = {
        (entry["key"], entry["operation"], entry["commit_ts"], entry["reason"])
        for entry in listed(tmp_path, batch, cells)
    }
    assert entries == {
        ('{"k": "c"}', "insert", 30, "1"),
        ('{"k": "a"}', "insert", 10, "2"),
        ('{"k": "b"}', "delete", 20, "3"),
        ('{"k": "c"}', "insert", 30, "4"),
    }


def test_a_long_key_is_read_once_for_all_cells_of_its_row(tmp_path: Path) -> None:
    keys = {size: batch_of(put(10, k="x" * 20_000 * size, v="x")) for size in (25, 100)}

    def work(size: int) -> None:
        listed(tmp_path, keys[size], [Refused(0, "v", "why")] * size)

    assert_linear(work, 25)


def test_what_a_floor_needs_is_read_without_the_keys(tmp_path: Path) -> None:
    """Files of before have the whole key once for each cell. Here nobody can read them: their bytes are damaged."""
    listed(tmp_path, batch_of(put(10, k="a", v="x"), put(20, k="b", v="x")), [Refused(at, "v", "") for at in (0, 0, 1)])
    path = tmp_path / "aside.parquet"
    names = pq.read_schema(path).names
    keys = pq.read_metadata(path).row_group(0).column(names.index("key"))
    start = keys.dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + keys.total_compressed_size] = bytes(keys.total_compressed_size)
    path.write_bytes(content)
    store = open_store(tmp_path.as_uri())
    assert read_refused(store, ["aside.parquet", "gone.parquet"], NAME) == [10, 20]
    assert read_refused(store, ["aside.parquet"], TableName("s", "other")) == []


def test_an_error_has_a_part_of_each_key_and_few_cells(tmp_path: Path) -> None:
    batch = batch_of(put(10, k="x" * LONG, v="x"))
    text = describe(NAME, ["k"], batch, [Refused(0, "v", "why")] * 400)
    assert text.startswith('s.t {"k": "xxx')
    assert text.splitlines()[0].endswith("…, column v (topic[0]@1, event 0): why")
    assert text.endswith("… and 390 more in the same batch")
    assert len(text) < 5_000
