"""Listing a large store in parallel.

Claim-check objects are named ``<uuid v4>.json`` (protocols: large messages, section 4.1), so their names divide evenly by the
first hexadecimal digit. The division is complete for any names, not only for those: the boundaries ``b1 < b2 < …`` cut the
ordered set of all names into ``(…, b1]``, ``(b1, b2]``, … ``(bn, …)``, which overlap nowhere and leave nothing out; uneven
names only make one part longer than the others.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from ticdc_replay.storage.base import ObjectInfo, ObjectStore

_BOUNDARIES = tuple("0123456789abcdef")
"""Sixteen, because each part over-reads up to one page (1,000 names) beyond its end."""


def list_parallel(store: ObjectStore, keep: Callable[[ObjectInfo], bool], *, threads: int = 16) -> Iterator[ObjectInfo]:
    """Every object of *store* for which *keep* says yes, in order of name, listed by *threads* requests at a time.

    What is kept of one part (a sixteenth, for hexadecimal names) is held in memory until its turn comes. Raises what
    ``ObjectStore.list`` raises.
    """
    ends: list[tuple[str, str | None]] = [*pairwise(("", *_BOUNDARIES)), (_BOUNDARIES[-1], None)]
    with ThreadPoolExecutor(threads, thread_name_prefix="list-store") as pool:
        parts = [pool.submit(_list_part, store, after, end, keep) for after, end in ends]
        try:
            for part in parts:
                yield from part.result()
        finally:
            for part in parts:
                part.cancel()


def _list_part(store: ObjectStore, after: str, end: str | None, keep: Callable[[ObjectInfo], bool]) -> list[ObjectInfo]:
    """The kept objects with ``after < name <= end``."""
    kept = []
    for found in store.list(after=after):
        if end is not None and found.name > end:
            break
        if keep(found):
            kept.append(found)
    return kept
