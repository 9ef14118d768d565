"""What ``storage.base.ObjectStore`` promises, kept by every kind of store."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conftest import s3_client_of
from tests.support import stores
from tests.support.stores import Place
from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    ObjectAlteredError,
    ObjectTooLargeError,
    PermanentError,
)
from ticdc_replay.storage import ObjectStore
from ticdc_replay.storage.abilities import Ability
from ticdc_replay.storage.listing import list_parallel

pytestmark = pytest.mark.integration


@pytest.fixture(params=stores.KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind: str = request.param
    if kind == "file":
        yield stores.of_folder(tmp_path)
    elif kind == "gcs":
        with stores.of_gcs(request.getfixturevalue("fake_gcs")) as found:
            yield found
    elif kind == "azure":
        yield stores.of_azure(request.getfixturevalue("azurite"))
    else:
        server = request.getfixturevalue(kind)

        def make_bucket() -> str:
            name = f"bucket-{uuid.uuid4().hex[:12]}"
            s3_client_of(server).create_bucket(Bucket=name)
            return name

        yield stores.of_s3(server, make_bucket)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return place.open()


def test_what_was_put_is_read_back_below_the_prefix(store: ObjectStore, place: Place) -> None:
    store.put("runs/a/index.json", b"one")
    store.put("runs/a/index.json", b"two")
    assert store.get("runs/a/index.json") == store.fetch("runs/a/index.json") == b"two"
    assert store.uri("runs/a/index.json") == f"{place.root}/some/prefix/runs/a/index.json"
    assert place.open("some").get("prefix/runs/a/index.json") == b"two"
    assert list(place.open("some/pre").list()) == [], "a prefix of the same beginning is another store"


@pytest.mark.parametrize("name", ["ü+1 %41.json", "schema=a%2Fb/t", "a/.hidden", "a b/c&d=e"])
def test_names_may_have_any_characters(store: ObjectStore, name: str) -> None:
    store.put(name, name.encode())
    assert store.get(name) == store.fetch(name) == name.encode()
    assert [found.name for found in store.list()] == [name]
    store.delete(name)
    assert store.info(name) is None


def test_put_once_keeps_the_first_content(store: ObjectStore) -> None:
    assert store.put_once("manifests/x.json", b"first")
    assert not store.put_once("manifests/x.json", b"first")
    with pytest.raises(ArtifactExistsError, match=r"manifests/x\.json"):
        store.put_once("manifests/x.json", b"second")
    assert store.get("manifests/x.json") == b"first"
    assert [found.name for found in store.list()] == ["manifests/x.json"], "nothing stays of trying the store"


def test_of_many_concurrent_put_once_exactly_one_wins(store: ObjectStore) -> None:
    def write(number: int) -> bool:
        try:
            return store.put_once("x", b"%d" % number * 1_000)
        except ArtifactExistsError:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(16)))
    assert store.get("x") == b"%d" % won.index(True) * 1_000
    assert sum(won) == 1


def test_update_changes_what_is_there_and_no_update_is_lost(store: ObjectStore) -> None:
    def add(found: bytes | None) -> bytes:
        return b"%d" % (int(found or b"0") + 1)

    store.update("lists/a", add)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.update("lists/a", add), range(12)))
    assert store.get("lists/a") == b"13"


def test_an_update_meets_what_came_between(store: ObjectStore) -> None:
    if store.scheme == "file":
        pytest.skip("a folder is locked while it is updated")
    seen: list[bytes | None] = []

    def change(found: bytes | None) -> bytes:
        seen.append(found)
        if len(seen) < 3:
            store.put("a", b"%d" % len(seen))  # another writer, after we have looked
        return (found or b"") + b"x"

    store.update("a", change)
    assert seen == [None, b"1", b"2"]
    assert store.get("a") == b"2x"


def test_a_missing_object_is_told_from_a_missing_bucket(store: ObjectStore, place: Place) -> None:
    with pytest.raises(ArtifactNotFoundError, match="nothing"):
        store.get("nothing")
    assert store.info("nothing") is None
    store.delete("nothing")
    assert list(store.list()) == []
    if place.missing is None:
        return
    no_bucket = place._replace(root=place.missing).open()
    for ask in (no_bucket.get, no_bucket.info, lambda name: list(no_bucket.list(name))):
        with pytest.raises(PermanentError, match=r"(bucket|container) does not exist") as caught:
            ask("nothing")
        assert not isinstance(caught.value, ArtifactNotFoundError)


def test_an_object_over_the_cap_is_refused(store: ObjectStore) -> None:
    store.put("big", b"x" * 11)
    for read in (store.get, store.fetch):
        assert len(read("big", max_bytes=11)) == 11
        with pytest.raises(ObjectTooLargeError, match="11 bytes; at most 10"):
            read("big", max_bytes=10)


def test_an_object_with_another_etag_is_refused(store: ObjectStore) -> None:
    store.put("a", b"first")
    first = store.info("a")
    assert first is not None
    assert store.get("a", etag=first.etag) == b"first"
    store.put("a", b"other!")
    for read in (store.get, store.fetch):
        with pytest.raises(ObjectAlteredError, match=f"{first.etag} expected"):
            read("a", etag=first.etag)


def test_listing_is_in_order_and_knows_prefix_and_start(store: ObjectStore) -> None:
    names = sorted(["a-b", "a/b", "a/c/d", "a0", "ab", "b", "A", "zz/deep/er", "é"])
    for name in names:
        store.put(name, b"12345")
    assert [found.name for found in store.list()] == names
    for prefix in ("a", "a/", "a/c", "zz/", "nothing", "nothing/"):
        assert [found.name for found in store.list(prefix)] == [name for name in names if name.startswith(prefix)]
    for after in ("a", "a-", "a/b", "b", "é"):
        assert [found.name for found in store.list(after=after)] == [name for name in names if name > after]
    assert [found.name for found in store.list("a", "a-b")] == ["a/b", "a/c/d", "a0", "ab"]


def test_listing_crosses_pages_and_parallel_listing_finds_the_same(store: ObjectStore) -> None:
    names = sorted([*(f"{uuid.uuid4()}.json" for _ in range(1_100)), "0", "f", "README", "zz/deep/er", "é"])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b"12345"), names))
    assert [found.name for found in store.list()] == names
    assert [found.name for found in store.list(after="f")] == [name for name in names if name > "f"]
    parallel = list(list_parallel(store, lambda _: True))
    assert parallel == list(store.list())
    assert {found.size for found in parallel} == {5}


def test_info_and_listing_agree(store: ObjectStore) -> None:
    store.put("a", b"12345")
    (listed,) = store.list()
    info = store.info("a")
    assert info is not None
    assert (info.name, info.size, info.etag) == (listed.name, listed.size, listed.etag)
    assert abs((info.last_modified - listed.last_modified).total_seconds()) < 1
    assert -1 <= (store.now() - info.last_modified).total_seconds() < 600


def test_the_store_s_clock_is_a_whole_second(store: ObjectStore) -> None:
    now = store.now()
    assert now.microsecond == 0
    assert abs((datetime.now(UTC) - now).total_seconds()) < 600


def test_folders_that_arrow_makes_are_not_listed_as_objects(store: ObjectStore) -> None:
    filesystem, root = store.arrow_filesystem()
    filesystem.create_dir(f"{root}/data/made", recursive=True)
    store.put("data/made/x", b"123")
    assert [found.name for found in store.list()] == ["data/made/x"]


def test_folders_are_those_directly_in_a_folder(store: ObjectStore) -> None:
    names = ["a/b/c/1", "a/b/c/2", "a/b.x/1", "a/d", "ab/c/1"]
    for name in names:
        store.put(name, b"")
    assert list(store.folders("a/")) == ["a/b.x/", "a/b/"]
    assert list(store.folders("a/b/")) == ["a/b/c/"]
    assert list(store.folders("nothing/")) == []


def test_arrow_reads_and_writes_the_same_objects(store: ObjectStore) -> None:
    store.put("data/x", b"123")
    filesystem, root = store.arrow_filesystem()
    filesystem.create_dir(f"{root}/data", recursive=True)
    assert filesystem.get_file_info(f"{root}/data/x").size == 3
    with filesystem.open_output_stream(f"{root}/data/y") as stream:
        stream.write(b"4567")
    assert store.get("data/y") == b"4567"
    with filesystem.open_input_stream(f"{root}/data/y") as stream:
        assert stream.read() == b"4567"
    with pytest.raises(FileNotFoundError):
        pq.ParquetFile(f"{root}/data/nothing", filesystem=filesystem)


def test_parquet_of_several_parts_is_read_back_by_row_group_and_by_filter(store: ObjectStore) -> None:
    filesystem, root = store.arrow_filesystem()
    filesystem.create_dir(f"{root}/data", recursive=True)
    table = pa.table({"a": pa.array(range(2_500_000), pa.int64())})  # 20 MB: more than one part of an upload
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 500_000}
    pq.write_table(table, f"{root}/data/x.parquet", filesystem=filesystem, **options)
    found = store.info("data/x.parquet")
    assert found is not None
    assert found.size > 16 * 1024 * 1024
    with pq.ParquetFile(f"{root}/data/x.parquet", filesystem=filesystem) as file:
        assert file.num_row_groups == 5
        assert file.read_row_group(3).column("a")[0].as_py() == 1_500_000
    wanted = ds.field("a") >= 2_499_999
    known = ds.dataset([f"{root}/data/x.parquet"], format="parquet", filesystem=filesystem)
    assert known.to_table(filter=wanted).column("a").to_pylist() == [2_499_999]


@pytest.mark.parametrize("ability", [Ability.CREATE, Ability.REPLACE])
def test_a_name_never_leaves_the_store(store: ObjectStore, ability: Ability) -> None:
    write: Callable[[str], object] = (
        (lambda name: store.put_once(name, b"")) if ability is Ability.CREATE else (lambda name: store.put(name, b""))
    )
    for name in ("../x", "a//b", "/a", ""):
        with pytest.raises(PermanentError):
            write(name)
