"""Listing a large store in parallel.

Claim-check objects are named ``<uuid v4>.json``, so their names divide evenly by the first hexadecimal digit. The
division is complete for any names, not only for those: the boundaries ``b1 < b2 < …`` cut the ordered set of all names
into ``(…, b1]``, ``(b1, b2]``, … ``(bn, …)``, which overlap nowhere and leave nothing out; uneven names only make one
part longer than the others.
"""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product, takewhile
from typing import NamedTuple

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.storage.base import ObjectInfo, ObjectStore

_PAUSES_S = (1, 2, 4, 8, 16, 30)
"""Waited without a single name between, beside what the store's client waits itself: a minute, and up to three with it."""


class NameRange(NamedTuple):
    """The names with ``after < name <= end``; ``end`` None: to the last."""

    after: str
    end: str | None


def name_ranges(digits: int) -> tuple[NameRange, ...]:
    """All names, cut at each hexadecimal number of *digits* digits: sixteen parts or so for one, 256 for two.

    Each part over-reads up to one page (1,000 names) beyond its end, so a small store is read faster in few parts.
    """
    boundaries = ["".join(found) for found in product("0123456789abcdef", repeat=digits)]
    return (*(NameRange(*ends) for ends in pairwise(("", *boundaries))), NameRange(boundaries[-1], None))


def list_patiently(listing: Callable[[str], Iterator[ObjectInfo]], part: NameRange) -> Iterator[ObjectInfo]:
    """The objects in *part*; *listing* gives those after a name, in order of name.

    If the store throttles or is away for longer than its client repeats requests, waits and goes on after the last name. Raises
    TransientError only when that brings nothing for a minute or more.
    """
    last, fruitless = part.after, 0
    while True:
        try:
            for found in listing(last):
                if part.end is not None and found.name > part.end:
                    return
                last, fruitless = found.name, 0
                yield found
            return
        except TransientError:
            if fruitless == len(_PAUSES_S):
                raise
            time.sleep(_PAUSES_S[fruitless] * random.uniform(0.5, 1))  # apart, so that the parts don't return in step
            fruitless += 1


def list_parallel(store: ObjectStore, keep: Callable[[ObjectInfo], bool], *, threads: int = 16) -> Iterator[ObjectInfo]:
    """Every object of *store* for which *keep* says yes, in order of name, listed by *threads* requests at a time.

    What is kept of one part (a sixteenth, for hexadecimal names) is held in memory until its turn comes. Raises what
    ``ObjectStore.list`` raises.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="list-store") as pool:
        parts = [pool.submit(_list_part, store, part, keep) for part in name_ranges(1)]
        try:
            for part in parts:
                yield from part.result()
        finally:
            for part in parts:
                part.cancel()


def _list_part(store: ObjectStore, part: NameRange, keep: Callable[[ObjectInfo], bool]) -> list[ObjectInfo]:
    end = part.end
    objects = takewhile(lambda found: end is None or found.name <= end, store.list(after=part.after))
    return [found for found in objects if keep(found)]
