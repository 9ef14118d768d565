"""The inventory of a store as Parquet files: the same as one listing, whatever the names."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.reconcile.judge.records import OBJECTS
from ticdc_replay.reconcile.look.inventory import Destination, Inventory, write_listing
from ticdc_replay.storage.file import FileStore

UUID = "{:08x}-0000-4000-8000-000000000000.json"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "claims")


@pytest.fixture
def out(tmp_path: Path) -> Destination:
    return Destination(FileStore(tmp_path / "artifacts"), "inventories/today")


def rows_of(inventory: Inventory, out: Destination) -> list[dict[str, Any]]:
    rows = []
    for file in inventory.files:
        table = pq.read_table(Path(out.store.root.removeprefix("file://")) / file.name)
        assert table.schema == OBJECTS
        assert (table.num_rows, sum(table["size"].to_pylist())) == (file.rows, file.bytes)
        rows += table.to_pylist()
    return rows


@pytest.mark.parametrize("digits", [1, 2])
def test_the_files_hold_each_object_once(store: FileStore, out: Destination, digits: int) -> None:
    names = [UUID.format(number * 0x2F1F1F1) for number in range(80)]
    names += ["with space", "50%", "new\nline", "quote\",'", "é😀", "deep/er/x", "zz", "+"]
    for number, name in enumerate(names):
        store.put(name, b"x" * number)
    found = write_listing(store, out, versions=False, digits=digits, threads=4)
    expected = {
        info.name: (info.size, info.etag, int(info.last_modified.timestamp() * 1000), None) for info in store.list()
    }
    assert expected.keys() == set(names)
    rows = rows_of(found, out)
    got = {row["name"]: (row["size"], row["etag"], row["last_modified_ms"], row["version_id"]) for row in rows}
    assert got == expected
    assert len(rows) == found.objects == len(names)
    assert found.bytes == sum(range(len(names)))


def test_an_empty_store_has_an_inventory_without_files(store: FileStore, out: Destination) -> None:
    found = write_listing(store, out, versions=False)
    assert (found.files, found.objects, found.bytes) == ((), 0, 0)


def test_a_name_that_is_no_text_is_listed_as_one_that_no_claim_check_object_has(
    store: FileStore, out: Destination, tmp_path: Path
) -> None:
    store.put("a", b"")
    (tmp_path / "claims" / os.fsdecode(b"\xff\xfe.json")).write_bytes(b"x")
    names = [row["name"] for row in rows_of(write_listing(store, out, versions=False), out)]
    assert len(names) == 2
    assert all(object_name(name) != name for name in names)


def test_the_moments_enclose_the_listing_by_the_clock_of_the_store(store: FileStore, out: Destination) -> None:
    class Ahead(FileStore):
        def now(self) -> Any:
            return super().now().fromtimestamp(super().now().timestamp() + 3600, super().now().tzinfo)

    before = int(time.time()) * 1000
    found = write_listing(Ahead(Path(store.root.removeprefix("file://"))), out, versions=False)
    after = int(time.time() * 1000)
    assert before + 3_600_000 <= found.began_ms <= found.ended_ms <= after + 3_600_000
    assert abs(found.clock_ahead_ms - 3_600_000) <= 60_000
    assert abs(write_listing(store, out, versions=False).clock_ahead_ms) <= 60_000


def test_a_listing_that_begins_within_the_second_of_its_survey_is_not_older(store: FileStore, out: Destination) -> None:
    class ToTheSecond(FileStore):
        def now(self) -> Any:
            return super().now().replace(microsecond=0)

    surveyed_ms = time.time_ns() // 1_000_000
    found = write_listing(ToTheSecond(Path(store.root.removeprefix("file://"))), out, versions=False)
    assert found.began_since_ms(surveyed_ms) >= surveyed_ms
    assert found.began_since_ms(0) == found.began_ms
    report = msgspec.structs.replace(found, live=False)
    assert report.began_since_ms(found.began_ms + 1) == found.began_ms, "S3 made it whenever it did"


def test_a_part_that_can_not_be_listed_fails_the_inventory(
    store: FileStore, out: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.storage.listing.time", SimpleNamespace(sleep=lambda _: None))

    class Broken(FileStore):
        def list(self, prefix: str = "", after: str = "") -> Any:
            if after == "7":
                raise TransientError("page lost")
            return super().list(prefix, after)

    with pytest.raises(TransientError, match="page lost"):
        write_listing(Broken(Path(store.root.removeprefix("file://"))), out, versions=False)
