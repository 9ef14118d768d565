"""Fingerprints of row events, which are equal for copies that say the same."""

from functools import lru_cache

import xxhash


@lru_cache(maxsize=10_000)
def seed_of(*names: str) -> int:
    """Ties a fingerprint to the table *names*, as the seed of a hash (xor commitTs)."""
    seed: int = xxhash.xxh3_64_intdigest("\0".join(names).encode())
    return seed
