"""Which partition Spark puts a number into, and so the numbers that get a partition each."""

from typing import Any

import numpy as np

_SEED = 42
_HALF = np.uint32(16)


def one_per_partition(partitions: int) -> list[int]:
    """The first number that ``DataFrame.repartition(partitions, number)`` puts into each of *partitions*, in their order."""
    tried = 4 * partitions
    while True:
        found, first = np.unique(_partitions_of(np.arange(tried, dtype=np.uint32), partitions), return_index=True)
        if len(found) == partitions:
            return [int(number) for number in first]
        tried *= 2


def _partitions_of(numbers: np.ndarray[Any, Any], partitions: int) -> np.ndarray[Any, Any]:
    """The 32-bit MurmurHash3 of each of *numbers* as Spark computes it (``org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt``),
    modulo *partitions*."""
    mixed = _rotated(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    hashes = _rotated(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes ^= np.uint32(4)  # bytes of a number
    hashes = (hashes ^ (hashes >> _HALF)) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashes ^ (hashes >> _HALF)).view(np.int32) % np.int32(partitions)


def _rotated(words: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
