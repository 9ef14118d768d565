"""Divides the keys of a changelog into buckets that each hold all copies of their row versions, and finds what repeats in one.

A bucket is a span of commitTs, as long as makes a task of bounded size whatever the window holds. Splits are stretches of
partitions, and so mostly of time, so that a bucket touches few keys files, and each of these only in part.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.columnar import halves_of
from ticdc_replay.changelog.files.keys import SCHEMA, KeysFile

BUCKET_ROWS = 500_000
"""Rows of a bucket, about: a worker holds 16 bytes of each, and 250 of those that repeat."""
_LEAST_ROWS = 100_000


class KeysPart(msgspec.Struct, frozen=True):
    """Row groups of a keys file."""

    name: str
    groups: tuple[int, ...]


class KeyBucket(msgspec.Struct, frozen=True):
    """Row versions with a commitTs (TSO) in ``[first, last]``, and where to look for them.

    Where one commitTs has more rows than a bucket may hold, several buckets share it: of these, one holds the identities
    whose hash modulo *parts* is *part*.
    """

    first: int
    last: int
    part: int
    parts: int
    files: tuple[KeysPart, ...]


def plan_buckets(files: Sequence[KeysFile], least: int, bucket_rows: int = BUCKET_ROWS) -> list[KeyBucket]:
    """Buckets of about *bucket_rows*, at least *least* of them where there are many rows in all."""
    groups = [group for file in files for group in file.groups]
    if not groups:
        return []
    rows = np.array([group.rows for group in groups], np.float64)
    start = min(group.first for group in groups)
    firsts = np.array([group.first - start for group in groups], np.int64)
    ends = np.array([group.last - start + 1 for group in groups], np.int64)
    size = min(bucket_rows, max(_LEAST_ROWS, int(rows.sum()) // max(1, least)))
    times, grown = _growth(firsts, ends, rows)
    steps = np.arange(1, max(1, round(grown[-1] / size))) * size
    cuts = np.unique(np.interp(steps, grown, times).astype(np.int64))
    bounds = [0, *(int(cut) for cut in cuts if 0 < cut < times[-1]), int(times[-1])]
    held = np.interp(bounds, times, grown)
    buckets = []
    for (first, end), (before, after) in zip(pairwise(bounds), pairwise(held), strict=True):
        parts = max(1, round((after - before) / size))
        touched = _touched(files, start + first, start + end - 1)
        buckets += [KeyBucket(start + first, start + end - 1, part, parts, touched) for part in range(parts)]
    return buckets


def _growth(
    firsts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], rows: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """How many rows lie before each of some moments, if those of a row group are spread evenly over its time."""
    times = np.unique(np.concatenate([firsts, ends]))
    slopes = np.zeros(len(times))
    density = rows / (ends - firsts)
    np.add.at(slopes, np.searchsorted(times, firsts), density)
    np.subtract.at(slopes, np.searchsorted(times, ends), density)
    grown = np.concatenate([[0.0], np.cumsum(np.cumsum(slopes)[:-1] * np.diff(times))])
    return times, np.maximum.accumulate(grown)


def _touched(files: Sequence[KeysFile], first: int, last: int) -> tuple[KeysPart, ...]:
    found = []
    for file in files:
        if file.groups[-1].last < first or file.groups[0].first > last:
            continue
        groups = tuple(at for at, group in enumerate(file.groups) if group.last >= first and group.first <= last)
        if groups:
            found.append(KeysPart(file.name, groups))
    return tuple(found)


def repeated(filesystem: Any, root: str, bucket: KeyBucket) -> pa.Table:
    """Of *bucket*, the copies (``keys.SCHEMA``) whose identity stands there more than once, among few others.

    Reads only commitTs and identities where none repeats, which is the common case.
    """
    halves = [
        _first_halves(batch)[_inside(batch, bucket)]
        for batch in _row_groups(filesystem, root, bucket, ["commit_ts", "id"])
    ]
    sorted_ = np.sort(np.concatenate(halves)) if halves else np.empty(0, np.uint64)
    often = np.unique(sorted_[1:][sorted_[1:] == sorted_[:-1]])
    if not len(often):
        return SCHEMA.empty_table()
    found = []
    for batch in _row_groups(filesystem, root, bucket, None):
        wanted = _inside(batch, bucket) & np.isin(_first_halves(batch), often)
        if wanted.any():
            found.append(batch.filter(pa.array(wanted)))
    return pa.concat_tables(found).unify_dictionaries()


def _row_groups(filesystem: Any, root: str, bucket: KeyBucket, columns: list[str] | None) -> Iterator[pa.Table]:
    for part in bucket.files:
        with pq.ParquetFile(f"{root}/{part.name}", filesystem=filesystem) as file:
            for group in part.groups:
                yield file.read_row_group(group, columns=columns)


def _first_halves(table: pa.Table) -> npt.NDArray[np.uint64]:
    return halves_of(table["id"])[:, 0]


def _inside(table: pa.Table, bucket: KeyBucket) -> npt.NDArray[np.bool_]:
    times = table["commit_ts"].to_numpy()
    inside = (times >= bucket.first) & (times <= bucket.last)
    if bucket.parts > 1:
        inside &= halves_of(table["id"])[:, 1] % np.uint64(bucket.parts) == bucket.part
    found: npt.NDArray[np.bool_] = inside
    return found
