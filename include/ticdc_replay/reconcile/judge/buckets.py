"""Which bucket a name belongs to: all objects and references of one name meet in one bucket."""

import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_replay.reconcile.judge.row_versions import mixed, words_of

_LENGTH = 41
"""Of a claim-check name: 36 of the UUID and ``.json``. Any other name takes a slower way to its bucket."""
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F], np.uint64
)


def buckets_of(names: pa.Array, count: int) -> np.ndarray[Any, Any]:
    """The bucket, below *count*, of each of *names*. Empty ones are spread over all: they mean no object."""
    return _numbers(_hashes(names, np.arange(len(names), dtype=np.uint64)), count)


def buckets_of_references(names: pa.Array, versions: pa.Array, count: int) -> np.ndarray[Any, Any]:
    """As ``buckets_of``, but empty ones among *names* are spread by their *versions* (``row_versions.VERSION``)."""
    instead = words_of(versions)[:, 0].copy()
    unknown = np.flatnonzero(versions.is_null().to_numpy(zero_copy_only=False))
    instead[unknown] = unknown
    return _numbers(_hashes(names, instead), count)


def buckets_of_versions(versions: pa.Array, count: int) -> np.ndarray[Any, Any]:
    """The bucket, below *count*, of each of *versions* (``row_versions.VERSION``, none null)."""
    return _numbers(words_of(versions)[:, 0], count)


def _numbers(hashes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    return (hashes % np.uint64(count)).astype(np.uint32)


def _hashes(names: pa.Array, instead: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of each of *names*; of an empty one what stands *instead*."""
    offsets = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1, 4 * names.offset)
    lengths = np.diff(offsets)
    regular = lengths == _LENGTH
    hashes = np.empty(len(names), np.uint64)
    hashes[regular] = _regular(names, offsets[:-1][regular])
    rest = np.flatnonzero(~regular)
    if len(rest):
        odd = names.take(pa.array(rest)).dictionary_encode()
        sums = [zlib.crc32(name.encode()) for name in odd.dictionary.to_pylist()]
        hashes[rest] = mixed(np.array(sums, np.uint64))[odd.indices.to_numpy()]
        empty = lengths == 0
        hashes[empty] = instead[empty]
    return hashes


def _regular(names: pa.Array, begins: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    data = np.frombuffer(names.buffers()[2] or b"", np.uint8)
    if len(begins) and int(begins[-1]) - int(begins[0]) == _LENGTH * (len(begins) - 1):
        texts = data[begins[0] : begins[-1] + _LENGTH].reshape(-1, _LENGTH)
    else:
        texts = data[begins[:, None] + np.arange(_LENGTH)]
    words = np.ascontiguousarray(texts[:, :40]).view(np.uint64)
    total = np.zeros(len(begins), np.uint64)
    for number, factor in enumerate(_FACTORS):
        total = (total ^ words[:, number]) * factor
        total ^= total >> np.uint64(29)
    return mixed(total)
