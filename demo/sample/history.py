"""What happened upstream: the events of two captures as one history, moved to the hours of the sample."""

import gzip
import hashlib
import json
import random
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo.sample import open_protocol
from demo.sample.open_protocol import DDL, ROW, Event

LOGICAL_BITS = 18
LOGICAL_MASK = (1 << LOGICAL_BITS) - 1


class Change(NamedTuple):
    """A row change or DDL, with its old commitTs still in its bytes.

    ``copies`` are the further deliveries that the capture holds, each with a claim-check object of its own.
    """

    ts: int
    """The commitTs (TSO) that it gets in the sample."""
    event: Event
    copies: tuple[Event, ...]


def read_changes(capture: Path, keep: Callable[[Event], bool]) -> Iterator[tuple[int, Event, tuple[Event, ...]]]:
    """Row and DDL events of a capture that *keep* wants: old commitTs, first delivery, further deliveries; in send order."""
    first: dict[tuple[str, bytes], Event] = {}
    copies: dict[tuple[str, bytes], list[Event]] = defaultdict(list)
    for message in read_lines(capture / "messages.jsonl.gz"):
        for event in open_protocol.split(b64decode(message["key_b64"]), b64decode(message["value_b64"])):
            head = event.head
            if head["t"] not in (ROW, DDL) or not keep(event):
                continue
            head.pop("ccl", None)
            identity = (json.dumps(head), event.value)
            if identity in first:
                copies[identity].append(event)
            else:
                first[identity] = event
    for identity, event in first.items():
        yield event.head["ts"], event, tuple(copies[identity])


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a gzip file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def spread(old: Sequence[int], start_ms: int, end_ms: int, exact_ms: Sequence[int]) -> dict[int, int]:
    """New commitTs for each of *old*, in the same order, between two moments (ms since the epoch).

    At each moment of *exact_ms* there is a commit, and another one in the millisecond before.

    Commits of one millisecond stay in one millisecond and keep their logical part. Gaps between milliseconds vary as if traffic
    did, the same way each time.
    """
    moments = sorted({ts >> LOGICAL_BITS for ts in old})
    chance = random.Random(hashlib.sha256(repr(moments).encode()).digest())
    gaps = [chance.expovariate(1.0) + 0.05 for _ in moments]
    scale = (end_ms - start_ms) / sum(gaps)
    moved, at = {}, 0.0
    for moment, gap in zip(moments, gaps, strict=True):
        at += gap * scale
        moved[moment] = start_ms + int(at)
    for exact in exact_ms:
        after = next(moment for moment in moments if moved[moment] >= exact)
        moved[moments[moments.index(after) - 1]], moved[after] = exact - 1, exact
    if len(set(moved.values())) != len(moved):
        raise ValueError("the time is too short for so many commits")
    return {ts: (moved[ts >> LOGICAL_BITS] << LOGICAL_BITS) | (ts & LOGICAL_MASK) for ts in old}
