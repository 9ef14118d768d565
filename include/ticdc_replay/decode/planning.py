"""Divides the pinned ranges into splits, and tells which of them the schema pass must read."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from ticdc_replay.decode.tasks import Split
from ticdc_replay.domain.messages import OffsetRange


def plan_splits(ranges: Sequence[OffsetRange], split_messages: int, least: int) -> list[Split]:
    """Splits of about *split_messages* offsets, and at least *least* in all where there are that many offsets.

    Splits of one partition differ by at most one offset in length. The result is ordered by (topic, partition, offset); how a
    range is divided has no effect on the rows that come out.
    """
    total = sum(part.length for part in ranges)
    if total == 0:
        return []
    size = max(1, min(split_messages, -(-total // max(1, least))))
    parts = []
    for whole in sorted(ranges):
        pieces = -(-whole.length // size)
        bounds = [whole.start + whole.length * at // pieces for at in range(pieces + 1)] if pieces else []
        parts += [OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(bounds)]
    return [Split(number, part) for number, part in enumerate(parts)]


def schema_ranges(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The shortest of *ranges* of each topic: Open sends every DDL to every partition (protocol notes, open-protocol 4).

    *ranges* must be those of partitions that TiCDC writes to.

    Every pinned range covers the window, so the DDL of the window is in each of them.
    """
    by_topic = groupby(sorted(ranges), key=lambda part: part.topic)
    return [min(parts, key=lambda part: (part.length, part.partition)) for _, parts in by_topic]
