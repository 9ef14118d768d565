"""Deleting files that did not change since they were listed."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.storage.base import ObjectInfo
from ticdc_replay.storage.deletion import DeleteMarker, Deletion, DeletionOutcome, ObjectDeletion
from ticdc_replay.storage.facts import StoreFacts

if TYPE_CHECKING:
    from ticdc_replay.storage.file import FileStore


class FileDeletion(ObjectDeletion):
    """Deletion from a folder. There is no undo: what is deleted is gone."""

    def __init__(self, store: "FileStore") -> None:
        self._store = store

    def delete_unchanged(self, expected: ObjectInfo) -> Deletion:
        # A file has no condition to be deleted under: one that is replaced between look and deletion is lost.
        try:
            with self._store.errors("delete", expected.name), contextlib.suppress(FileNotFoundError):
                found = self._store.info(expected.name)
                changed = found.difference(expected) if found else ""
                if changed:
                    return Deletion(DeletionOutcome.ALTERED, detail=changed)
                if found:
                    self._store.path(expected.name).unlink()
                    return Deletion(DeletionOutcome.DELETED)
            return Deletion(DeletionOutcome.GONE)
        except PermanentError as error:
            denied = isinstance(error.__cause__, PermissionError)
            return Deletion(DeletionOutcome.DENIED if denied else DeletionOutcome.REFUSED, detail=str(error))

    def undelete(self, name: str, marker: str) -> bool:
        raise PermanentError(f"{self._store.uri(name)}: a folder keeps no versions, so nothing can be undeleted")

    def marker_of(self, name: str) -> DeleteMarker | None:
        return None  # a folder keeps no versions

    def list_versions(self, after: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(after=after)

    def facts(self) -> StoreFacts:
        return StoreFacts()
