"""What is known of claim-check objects is found by name, without reading more than the part that can hold it."""

import hashlib
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from ticdc_replay.changelog.files import side_files
from ticdc_replay.decode.plan.known_objects import KnownObjects, used_objects
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.large_messages.claim_check import Expected

FILES = LocalFileSystem()


def name(number: int) -> str:
    return f"{UUID(int=number)}.json"


def inventory(folder: Path, numbers: list[int], group: int = 3) -> str:
    names = [name(number) for number in sorted(numbers)]
    etags = [f"etag of {each}" for each in names]
    path = folder / "inventory.parquet"
    table = pa.table(
        {"name": pa.array(names, pa.string()), "size": pa.array([1] * len(names)), "etag": pa.array(etags, pa.string())}
    )
    pq.write_table(table, path, row_group_size=group)
    return str(path)


def references(folder: Path, file: str, rows: list[tuple[int, str, str]]) -> str:
    """A file of references: of each the object's number, its status and its content."""
    side = side_files.SideFile(FILES, str(folder), file, side_files.REFERENCES)
    for number, status, content in rows:
        etag, sha256 = (f"etag {content}", hashlib.sha256(content.encode()).hexdigest()) if content else (None, None)
        size = len(content) if content else None
        used = (status, etag, size, sha256)
        side.add(("t", 0, 0, 0, 150, "s", "t", f"/{name(number)}", name(number), *used, 0, None, None))
    closed = side.close()
    assert closed is not None
    return closed


@given(stored=st.sets(st.integers(0, 60)), wanted=st.sets(st.integers(0, 60)), group=st.integers(1, 20))
def test_every_name_that_is_known_is_found_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, stored: set[int], wanted: set[int], group: int
) -> None:
    known = KnownObjects(FILES, [inventory(tmp_path_factory.mktemp("i"), list(stored), group)])
    found = known.among([name(number) for number in wanted])
    assert found == {name(number): Expected(1, f"etag of {name(number)}") for number in stored & wanted}


def test_the_mean_size_is_that_of_what_is_known(tmp_path: Path) -> None:
    empty, some = str(tmp_path / "empty"), str(tmp_path / "some")
    pq.write_table(pa.table({"size": pa.array([], pa.int64())}), empty)
    pq.write_table(pa.table({"size": [1_000, 2_000, 6_000]}), some)
    assert KnownObjects(LocalFileSystem(), [empty, some]).mean_bytes() == 3_000
    assert KnownObjects(LocalFileSystem(), [empty]).mean_bytes() is None


def test_nothing_is_known_without_files() -> None:
    assert KnownObjects(FILES, ()).among([name(1)]) == {}


def test_what_a_run_used_counts_before_the_inventory_and_knows_the_content(tmp_path: Path) -> None:
    record = used_objects(FILES, str(tmp_path), [references(tmp_path, "r.parquet", [(1, "used", "one")])])
    assert record is not None
    (tmp_path / "used.parquet").write_bytes(record)
    known = KnownObjects(FILES, [inventory(tmp_path, [1, 2]), str(tmp_path / "used.parquet")])
    assert known.among([name(1), name(2), name(3)]) == {
        name(1): Expected(3, "etag one", hashlib.sha256(b"one").hexdigest()),
        name(2): Expected(1, f"etag of {name(2)}"),
    }


def test_only_used_objects_are_recorded_each_once_and_however_work_was_divided(tmp_path: Path) -> None:
    rows = [(2, "used", "two"), (1, "used", "one"), (3, "claim_check_missing", ""), (2, "used", "two")]
    together = used_objects(FILES, str(tmp_path), [references(tmp_path, "all.parquet", rows)])
    apart = [references(tmp_path, f"{at}.parquet", [row]) for at, row in enumerate(reversed(rows))]
    assert together is not None
    assert used_objects(FILES, str(tmp_path), apart) == together
    assert pq.read_table(pa.BufferReader(together))["name"].to_pylist() == [name(1), name(2)]


def test_nothing_is_recorded_where_nothing_was_used(tmp_path: Path) -> None:
    assert used_objects(FILES, str(tmp_path), []) is None
    unused = references(tmp_path, "r.parquet", [(1, "not_needed", "")])
    assert used_objects(FILES, str(tmp_path), [unused]) is None


def test_an_object_with_two_contents_in_one_run_is_an_error(tmp_path: Path) -> None:
    files = [references(tmp_path, f"{text}.parquet", [(1, "used", text)]) for text in ("before", "later")]
    with pytest.raises(TransientError, match=name(1)):
        used_objects(FILES, str(tmp_path), files)
