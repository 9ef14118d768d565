"""Deleting many objects: each only as it was known, checked directly before, with a result for each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticdc_replay.domain.errors import MissingAbilityError, PermanentError, TransientError
from ticdc_replay.storage import ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import Deletion, DeletionOutcome, delete_parallel
from ticdc_replay.storage.file import FileStore
from ticdc_replay.storage.file_deletion import FileDeletion


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


def fill(store: FileStore, count: int) -> list[ObjectInfo]:
    for number in range(count):
        store.put(f"{number:03d}", b"content")
    return list(store.list())


def names_of(store: FileStore) -> list[str]:
    return [found.name for found in store.list()]


def test_every_object_gets_one_result(store: FileStore) -> None:
    listed = fill(store, 50)
    store.put("007", b"replaced")
    store.delete("008")
    results = {found.name: result.outcome for found, result in delete_parallel(store.deletion(), listed, threads=3)}
    assert len(results) == 50
    assert (results.pop("007"), results.pop("008")) == (DeletionOutcome.ALTERED, DeletionOutcome.GONE)
    assert set(results.values()) == {DeletionOutcome.DELETED}
    assert names_of(store) == ["007"]


def test_an_object_is_asked_for_shortly_before_it_is_deleted(store: FileStore) -> None:
    listed, given = fill(store, 200), 0

    def checked() -> Iterator[ObjectInfo]:
        nonlocal given
        for found in listed:
            given += 1
            yield found

    results = delete_parallel(store.deletion(), checked(), threads=2)
    for done, _ in enumerate(results, 1):
        assert given <= done + 2 * 2
    assert (given, names_of(store)) == (200, [])


def test_who_stops_reading_leaves_only_what_was_begun(store: FileStore) -> None:
    results = delete_parallel(store.deletion(), fill(store, 100), threads=2)
    next(results)
    results.close()
    assert len(names_of(store)) >= 100 - 4
    left = names_of(store)
    assert left == names_of(store)


class Away(FileDeletion):
    def delete_unchanged(self, expected: ObjectInfo) -> Deletion:
        if expected.name == "010":
            raise TransientError("the store is away")
        return super().delete_unchanged(expected)


def test_an_error_of_the_store_is_raised_after_all_results_of_what_was_begun(store: FileStore) -> None:
    listed, deleted = fill(store, 100), set()

    def delete() -> None:
        for found, result in delete_parallel(Away(store), listed, threads=4):
            assert result.outcome == DeletionOutcome.DELETED
            deleted.add(found.name)

    with pytest.raises(TransientError, match="away"):
        delete()
    assert set(names_of(store)) == {found.name for found in listed} - deleted
    assert 10 <= len(deleted) <= 10 + 2 * 4


def test_an_error_of_the_check_is_raised_after_all_results_of_what_was_begun(store: FileStore) -> None:
    listed, deleted = fill(store, 20), set()

    def checked() -> Iterator[ObjectInfo]:
        yield from listed[:5]
        raise PermanentError("a window was pinned")

    with pytest.raises(PermanentError, match="pinned"):
        deleted.update(found.name for found, _ in delete_parallel(store.deletion(), checked()))
    assert (len(deleted), set(names_of(store))) == (5, {found.name for found in listed[5:]})


def test_a_folder_tells_what_it_can_not_delete(store: FileStore) -> None:
    (found,) = fill(store, 1)
    outside = ObjectInfo("../root/000", found.size, found.etag, found.last_modified)
    assert store.deletion().delete_unchanged(outside).outcome == DeletionOutcome.REFUSED
    assert names_of(store) == ["000"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_a_folder_without_the_right_is_a_result(store: FileStore, tmp_path: Path) -> None:
    (found,) = fill(store, 1)
    (tmp_path / "root").chmod(0o500)
    try:
        assert store.deletion().delete_unchanged(found).outcome == DeletionOutcome.DENIED
    finally:
        (tmp_path / "root").chmod(0o700)


def test_a_folder_has_no_undo(store: FileStore) -> None:
    (found,) = fill(store, 1)
    assert store.deletion().delete_unchanged(found).marker is None
    with pytest.raises(PermanentError, match="keeps no versions"):
        store.deletion().undelete("000", "marker")


def test_a_kind_of_store_without_deletion_is_refused(store: FileStore) -> None:
    class WithoutDeletion(FileStore):
        scheme = "tape"
        deletion = ObjectStore.deletion

    with pytest.raises(MissingAbilityError, match=r"store file:///.*/claims can't delete .* \(tape://\)"):
        WithoutDeletion(store.path("claims")).deletion()
