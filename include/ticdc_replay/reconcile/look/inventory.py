"""The inventory of a store as Parquet: every object that a listing finds.

An object that exists from the beginning of a listing to its end is in it, once. One that is written, replaced or deleted
meanwhile may be in it or not, in any of its states. So an object in the inventory may be gone or replaced by now (its ETag is
checked before it is deleted), and one that is not in it may have been written since ``began_ms``.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.reconcile.judge.records import OBJECTS
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.listing import NameRange, list_patiently, name_ranges

_ROW_GROUP = 20_000
"""What a thread holds in memory: 10 MB of Python objects."""


class InventoryFile(msgspec.Struct, frozen=True, order=True):
    """A file of ``records.OBJECTS``. ``name`` is relative to the store it was written to; ``bytes`` is the sum of ``size``."""

    name: str
    rows: int
    bytes: int


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a store. Times are Unix ms by the clock of the store, which also set ``last_modified_ms``."""

    files: tuple[InventoryFile, ...]
    """Each object is in one of them. Others may lie beside them: of an attempt that failed, or ran at the same time."""
    began_ms: int
    """What existed before this moment, and still does, is in the files (S3's own reports: see ``s3_inventory``)."""
    ended_ms: int
    clock_ahead_ms: int
    """How far the store's clock was ahead of this machine's, ± 1 s; negative if it is slow."""
    live: bool = False
    """Whether the store itself was listed, after the survey that the inventory is for; not so S3's own reports."""

    def began_since_ms(self, surveyed_ms: int) -> int:
        """``began_ms`` for who read the offsets of Kafka at *surveyed_ms*, by their own clock.

        The store's time is in whole seconds, so a listing that begins right after the survey may seem older.
        """
        return max(self.began_ms, surveyed_ms) if self.live else self.began_ms

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return sum(found.rows for found in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(found.bytes for found in self.files)


Batches = Callable[[], Iterator[pa.RecordBatch]]


class Destination(NamedTuple):
    """Where files of an inventory are written: below ``folder`` of ``store``."""

    store: ObjectStore
    folder: str


def write_listing(
    store: ObjectStore, out: Destination, *, versions: bool, digits: int = 1, threads: int = 16
) -> Inventory:
    """List *store* by *threads* requests at a time, each part of its names (``name_ranges(digits)``) to a file of its own.

    *versions*: the store keeps versions, and their ids are wanted, too; that takes a right of its own, and reads past all old
    versions. Memory does not depend on the number of objects. Raises what ``ObjectStore.list`` raises, TransientError only after
    minutes.
    """
    ahead_ms, began_ms = store_clock(store)
    listing: Callable[[str], Iterator[ObjectInfo]] = (
        store.deletion().list_versions if versions else lambda after: store.list(after=after)
    )
    files = write_files(out, [partial(_batches, listing, part) for part in name_ranges(digits)], threads)
    _, ended_ms = store_clock(store)
    return Inventory(files=files, began_ms=began_ms, ended_ms=ended_ms, clock_ahead_ms=ahead_ms, live=True)


def store_clock(store: ObjectStore) -> tuple[int, int]:
    """How far the clock of *store* is ahead of this machine's, and this moment by it (at the latest); both in ms."""
    asked_ms = time.time_ns() // 1_000_000
    now_ms = int(store.now().timestamp() * 1000)
    answered_ms = time.time_ns() // 1_000_000
    return now_ms + 500 - (asked_ms + answered_ms) // 2, now_ms


def write_files(out: Destination, parts: Iterable[Batches], threads: int) -> tuple[InventoryFile, ...]:
    """Write each of *parts* (batches of ``records.OBJECTS``) as a file, but those without rows, by *threads* at a time."""
    with ThreadPoolExecutor(threads, thread_name_prefix="inventory") as pool:
        files = [pool.submit(_write, out, batches, f"{number:05d}") for number, batches in enumerate(parts)]
        try:
            return tuple(written for file in files if (written := file.result()) is not None)
        finally:
            for file in files:
                file.cancel()


def _write(out: Destination, batches: Batches, label: str) -> InventoryFile | None:
    filesystem, root = out.store.arrow_filesystem()
    name = f"{out.folder}/{label}-{uuid.uuid4().hex}.parquet"
    rows = size = 0
    writer = None
    try:
        for batch in batches():
            if batch.num_rows == 0:
                continue
            if writer is None:
                filesystem.create_dir(f"{root}/{out.folder}", recursive=True)
                writer = pq.ParquetWriter(f"{root}/{name}", OBJECTS, filesystem=filesystem, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
            size += pc.sum(batch["size"]).as_py()
    finally:
        if writer is not None:
            writer.close()
    return InventoryFile(name, rows, size) if rows else None


def _batches(listing: Callable[[str], Iterator[ObjectInfo]], part: NameRange) -> Iterator[pa.RecordBatch]:
    objects = list_patiently(listing, part)
    while group := list(islice(objects, _ROW_GROUP)):
        yield _batch(group)


def _batch(group: Sequence[ObjectInfo]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            # A folder may hold names that are not UTF-8. As text they are what no claim-check object is called.
            [found.name.encode("utf-8", "backslashreplace").decode() for found in group],
            [found.size for found in group],
            [found.etag for found in group],
            [int(found.last_modified.timestamp() * 1000) for found in group],
            [found.version_id for found in group],
        ],
        schema=OBJECTS,
    )
