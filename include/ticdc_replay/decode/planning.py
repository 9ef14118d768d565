"""Divides the pinned ranges into splits, and tells which of them the schema pass must read."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

from ticdc_replay.codecs.base import Carried
from ticdc_replay.decode.tasks import Split
from ticdc_replay.domain.messages import OffsetRange


def plan_splits(
    ranges: Sequence[OffsetRange], split_messages: int, least: int, partitions: Mapping[str, int] | None = None
) -> list[Split]:
    """Splits of about *split_messages* offsets, and at least *least* in all where there are that many offsets.

    *partitions* tells how many partitions each topic has, where it matters.

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
    counts = partitions or {}
    return [Split(number, part, counts.get(part.topic, 0)) for number, part in enumerate(parts)]


def schema_ranges(ranges: Sequence[OffsetRange], carried: Carried) -> list[OffsetRange]:
    """Which of *ranges* must be read for the DDL and bootstraps of the window, at most one of each topic.

    *ranges* must be those of partitions that TiCDC writes to. Where every partition has all DDL, as each pinned range covers the
    window, the shortest; where only partition 0 has it, that one.
    """
    if carried.ddl == "nowhere":
        return []
    if carried.ddl == "first partition":
        return [part for part in sorted(ranges) if part.partition == 0]
    by_topic = groupby(sorted(ranges), key=lambda part: part.topic)
    return [min(parts, key=lambda part: (part.length, part.partition)) for _, parts in by_topic]
