"""Deleting objects that did not change since they were listed: the contract, and the deletion of many."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime
from enum import StrEnum
from itertools import islice

import msgspec

from ticdc_replay.storage.base import ObjectInfo
from ticdc_replay.storage.facts import StoreFacts

_AHEAD = 2


class DeletionOutcome(StrEnum):
    """What a request to delete an object as it was known came to. Only after ``deleted`` did this request remove anything."""

    DELETED = "deleted"
    GONE = "gone"
    ALTERED = "altered"
    DENIED = "denied"
    REFUSED = "refused"


class Deletion(msgspec.Struct, frozen=True):
    """The result for one object. ``marker``: what ``ObjectDeletion.undelete`` takes to bring it back; None where nothing can."""

    outcome: DeletionOutcome
    marker: str | None = None
    detail: str = ""


class DeleteMarker(msgspec.Struct, frozen=True):
    """What hides an object in a store that keeps versions, and since when by the store's clock (to the second)."""

    marker: str
    set_at: datetime


class ObjectDeletion(ABC):
    """Deletion of the objects of one store, as ``ObjectStore.deletion`` gives it. Thread-safe.

    Every method may raise what the methods of ``ObjectStore`` may raise.
    """

    @abstractmethod
    def delete_unchanged(self, expected: ObjectInfo) -> Deletion:
        """Remove the object if it still is *expected*: same ETag, size, time of modification (to the second), and version where
        *expected* names one.

        Never raises for what concerns this object alone: ``gone`` (there is none; ``marker`` names what hides it, if a delete
        marker does), ``altered``, ``denied`` (no right to this name), ``refused`` (``detail`` says why). A store that keeps
        versions hides the object with a delete marker and loses nothing.
        """

    @abstractmethod
    def undelete(self, name: str, marker: str) -> bool:
        """Take the delete *marker* of *name* away; False where it is gone already.

        Raises PermanentError where the store has no undo, or *marker* is not a delete marker: no version is ever removed.
        """

    @abstractmethod
    def marker_of(self, name: str) -> DeleteMarker | None:
        """The delete marker that hides *name* now; None where none does."""

    @abstractmethod
    def list_versions(self, after: str = "") -> Iterator[ObjectInfo]:
        """What ``ObjectStore.list("", after)`` gives, with the id of the current version where the store keeps versions."""

    @abstractmethod
    def facts(self) -> StoreFacts:
        """What the store itself does with its objects. A question that the credentials may not ask leaves an ``unknown``."""


def delete_parallel(
    deletion: ObjectDeletion, expected: Iterable[ObjectInfo], *, threads: int = 16
) -> Generator[tuple[ObjectInfo, Deletion], None, None]:
    """``ObjectDeletion.delete_unchanged`` for each of *expected*, by *threads* requests at a time; results as they come.

    *expected* is asked for an object at most ``2 × threads`` objects before it is deleted, so a generator may check each one
    directly before, and memory does not grow. An error of the store (it is away, credentials are refused), or one that
    *expected* raises, ends the deletion: it is raised after the results of everything that was begun. Who stops reading
    leaves at most what was begun: close the iterator, and it waits for that.
    """
    source = iter(expected)
    running: dict[Future[Deletion], ObjectInfo] = {}
    error: BaseException | None = None
    with ThreadPoolExecutor(threads, thread_name_prefix="delete") as pool:
        while True:
            if error is None:
                try:
                    for found in islice(source, _AHEAD * threads - len(running)):
                        running[pool.submit(deletion.delete_unchanged, found)] = found
                except Exception as raised:
                    error = raised
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                found = running.pop(future)
                failed = future.exception()
                if failed is None:
                    yield found, future.result()
                elif error is None:
                    error = failed
    if error is not None:
        raise error
