"""Deleting many objects, each only as the caller knows it, with one result an object."""

from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from ticdc_replay.storage.base import Deletion, ObjectInfo, ObjectStore

_AHEAD = 2


def delete_parallel(
    store: ObjectStore, expected: Iterable[ObjectInfo], *, threads: int = 16
) -> Generator[tuple[ObjectInfo, Deletion], None, None]:
    """``ObjectStore.delete_unchanged`` for each of *expected*, by *threads* requests at a time; results as they come.

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
                        running[pool.submit(store.delete_unchanged, found)] = found
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
