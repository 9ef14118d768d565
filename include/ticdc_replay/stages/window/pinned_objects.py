"""Claim-check objects of a pinned window, compared with the store as it is now."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.large_messages.claim_check import Expected
from ticdc_replay.snapshot.inventory import ROW_GROUP
from ticdc_replay.snapshot.proof import Finding
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.listing import list_parallel

ASKED_FOR = 5_000
"""As many objects are asked for one by one; beyond it, listing the store takes less time."""
SHOWN = 100
_THREADS = 32

Wanted = tuple[str, Expected | None]
"""The name of an object, and what it was; None where only its name is known."""


class PinnedObjects(msgspec.Struct, frozen=True):
    """How many objects were looked at, how many are gone or altered, and the first of these."""

    looked_at: int = 0
    missing: int = 0
    findings: tuple[Finding, ...] = ()


def compare_objects(store: ObjectStore, wanted: Mapping[str, Expected | None]) -> PinnedObjects:
    """Compare *wanted* with *store*. Raises what the store raises."""
    if len(wanted) > ASKED_FOR:
        return _compared(
            _beside_listing(sorted(wanted.items()), list_parallel(store, lambda found: found.name in wanted))
        )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="prove-objects") as pool:
        found = pool.map(store.info, wanted)
        return _compared(zip(wanted.items(), found, strict=True))


def compare_inventory(store: ObjectStore, filesystem: Any, path: str) -> PinnedObjects:
    """Compare all objects of the inventory at *path*, sorted by name, with *store*; holds 1/16 of its names."""
    return _compared(_beside_listing(_inventory(filesystem, path), list_parallel(store, lambda _: True)))


def _inventory(filesystem: Any, path: str) -> Iterator[Wanted]:
    with pq.ParquetFile(path, filesystem=filesystem) as file:
        for batch in file.iter_batches(ROW_GROUP, columns=["name", "size", "etag"]):
            for name, size, etag in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield name, Expected(size, etag, None)


def _beside_listing(
    wanted: Iterable[Wanted], listed: Iterable[ObjectInfo]
) -> Iterator[tuple[Wanted, ObjectInfo | None]]:
    """Each of *wanted* with its object; both are in order of name."""
    names = ((name, 0, expected) for name, expected in wanted)
    there = ((found.name, 1, found) for found in listed)
    for name, group in groupby(heapq.merge(names, there, key=itemgetter(0, 1)), key=itemgetter(0)):
        sides: dict[int, Any] = {side: value for _, side, value in group}
        if 0 in sides:
            yield (name, sides[0]), sides.get(1)


def _compared(pairs: Iterable[tuple[Wanted, ObjectInfo | None]]) -> PinnedObjects:
    looked_at = missing = 0
    findings: list[Finding] = []
    for (name, expected), found in pairs:
        looked_at += 1
        text = _difference(expected, found)
        if text:
            missing += 1
            if len(findings) < SHOWN:
                findings.append(Finding("object", name, text))
    return PinnedObjects(looked_at, missing, tuple(findings))


def _difference(expected: Expected | None, found: ObjectInfo | None) -> str:
    if found is None:
        return "is gone"
    if expected is None:
        return ""
    if found.etag != expected.etag:
        return f"was replaced: its ETag is {found.etag}, and was {expected.etag}"
    return f"has {found.size} bytes, and had {expected.size}" if found.size != expected.size else ""
