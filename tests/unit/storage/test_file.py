"""A folder as an object store."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.processes import at_once
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    ConfigError,
    ObjectAlteredError,
    ObjectTooLargeError,
    PermanentError,
)
from ticdc_replay.storage import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "root").as_uri())


def test_what_was_put_is_read_back_and_replaced(store: ObjectStore) -> None:
    store.put("runs/a/index.json", b"one")
    store.put("runs/a/index.json", b"two")
    assert store.get("runs/a/index.json") == b"two"
    assert store.uri("runs/a/index.json") == f"{store.root}/runs/a/index.json"


def test_a_link_is_no_object_and_is_read(store: ObjectStore, tmp_path: Path) -> None:
    store.put("copy.json", b"whole")
    (copy,) = store.list()
    (folder,) = (path.parent for path in tmp_path.rglob("copy.json"))
    (folder / "missing.json").symlink_to(folder / "copy.json")
    assert list(store.list()) == [copy]
    assert store.get("missing.json") == b"whole"


def test_put_once_keeps_the_first_content(store: ObjectStore) -> None:
    assert store.put_once("manifests/x.json", b"first")
    assert not store.put_once("manifests/x.json", b"first")
    with pytest.raises(ArtifactExistsError, match=r"manifests/x\.json"):
        store.put_once("manifests/x.json", b"second")
    assert store.get("manifests/x.json") == b"first"


def test_of_many_concurrent_put_once_exactly_one_wins(store: ObjectStore) -> None:
    def write(number: int) -> bool:
        try:
            return store.put_once("manifests/x.json", b"%d" % number * 10_000)
        except ArtifactExistsError:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(32)))
    assert sum(won) == 1
    assert store.get("manifests/x.json") == b"%d" % won.index(True) * 10_000


def test_update_changes_what_is_there(store: ObjectStore) -> None:
    seen: list[bytes | None] = []

    def change(found: bytes | None) -> bytes:
        seen.append(found)
        return (found or b"") + b"x"

    store.update("lists/a", change)
    store.update("lists/a", change)
    assert seen == [None, b"x"]
    assert store.get("lists/a") == b"xx"
    assert [found.name for found in store.list()] == ["lists/a"]


def test_an_update_that_raises_or_changes_nothing_leaves_the_object(store: ObjectStore) -> None:
    store.put("a", b"1")
    before = store.info("a")

    def refuse(found: bytes | None) -> bytes:
        raise PermanentError("no")

    with pytest.raises(PermanentError, match="no"):
        store.update("a", refuse)
    store.update("a", lambda found: found or b"")
    assert store.info("a") == before


def test_no_update_of_many_threads_is_lost(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.update("a", lambda found: b"%d" % (int(found or b"0") + 1)), range(64)))
    assert store.get("a") == b"64"


def _count(_: int, uri: str) -> None:
    store = open_store(uri)
    for _ in range(32):
        store.update("a", lambda found: b"%d" % (int(found or b"0") + 1))


def test_no_update_of_many_processes_is_lost(store: ObjectStore) -> None:
    at_once(4, _count, store.root)
    assert store.get("a") == b"128"


def test_a_missing_object_is_said_to_be_missing(store: ObjectStore) -> None:
    store.put("folder/file", b"")
    for name in ("nothing", "folder", "folder/file/below"):
        with pytest.raises(ArtifactNotFoundError, match=name):
            store.get(name)
        assert store.info(name) is None
        store.delete(name) if name != "folder" else None


def test_an_object_over_the_cap_is_refused_before_it_is_read(store: ObjectStore) -> None:
    store.put("big", b"x" * 11)
    assert len(store.get("big", max_bytes=11)) == 11
    with pytest.raises(ObjectTooLargeError, match="11 bytes; at most 10"):
        store.get("big", max_bytes=10)


def test_an_object_with_another_etag_is_refused(store: ObjectStore) -> None:
    store.put("a", b"first")
    first = store.info("a")
    assert first is not None
    assert store.get("a", etag=first.etag) == b"first"
    store.put("a", b"other")
    with pytest.raises(ObjectAlteredError, match=f"{first.etag} expected"):
        store.get("a", etag=first.etag)


def test_info_tells_size_and_changes_its_etag_with_the_content(store: ObjectStore) -> None:
    store.put("a", b"12345")
    first = store.info("a")
    store.put("a", b"123456")
    second = store.info("a")
    assert first is not None
    assert second is not None
    assert (first.size, second.size) == (5, 6)
    assert first.etag != second.etag
    assert first.last_modified.tzinfo is not None


def test_list_is_in_order_of_the_whole_name_and_knows_prefix_and_start(store: ObjectStore) -> None:
    names = ["a/b", "a.b", "a0", "a/c/d", "b", "Z"]
    for name in names:
        store.put(name, b"")
    assert [found.name for found in store.list()] == sorted(names)
    assert [found.name for found in store.list("a/")] == ["a/b", "a/c/d"]
    assert [found.name for found in store.list("a")] == ["a.b", "a/b", "a/c/d", "a0"]
    assert [found.name for found in store.list("a", after="a/b")] == ["a/c/d", "a0"]
    assert list(store.list("nothing/")) == []


def test_folders_are_those_directly_in_a_folder(store: ObjectStore) -> None:
    for name in ("a/b/c/1", "a/b/c/2", "a/b.x/1", "a/d", "ab/c/1"):
        store.put(name, b"")
    assert list(store.folders("a/")) == ["a/b.x/", "a/b/"]
    assert list(store.folders("a/b/")) == ["a/b/c/"]
    assert list(store.folders("nothing/")) == []


def test_a_half_written_object_is_never_listed_nor_left_behind(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        store.put("a", "text, not bytes")  # type: ignore[arg-type]
    assert list(store.list()) == []
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == []


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a\0"])
def test_a_name_never_leaves_the_store(store: ObjectStore, name: str) -> None:
    with pytest.raises(PermanentError, match="not a name"):
        store.get(name)


def test_delete_removes_and_does_not_mind_a_missing_object(store: ObjectStore) -> None:
    store.put("a", b"")
    store.delete("a")
    store.delete("a")
    assert store.info("a") is None


def test_a_file_in_the_way_of_a_folder_is_a_permanent_error(store: ObjectStore) -> None:
    store.put("a", b"")
    with pytest.raises(PermanentError, match="a/b"):
        store.put("a/b", b"")


def test_arrow_sees_the_same_files(store: ObjectStore) -> None:
    store.put("data/x", b"123")
    filesystem, path = store.arrow_filesystem()
    assert filesystem.get_file_info(f"{path}/data/x").size == 3


@pytest.mark.parametrize("uri", ["file://host/x", "file:relative", "ftp://x/y", "/plain/path", "s3://", "s3://UPPER/x"])
def test_a_uri_that_no_store_serves_is_a_configuration_error(uri: str) -> None:
    with pytest.raises(ConfigError):
        open_store(uri)


def test_a_folder_takes_no_connection(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes no connection"):
        open_store(tmp_path.as_uri(), Connection(conn_id="aws_default", conn_type="aws"))
