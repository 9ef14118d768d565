"""Divides the pinned ranges into splits of about one size, and selects those that the schema pass must read."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.decode.plan.sampling import SizedRange, SizedStretch
from ticdc_replay.decode.plan.tasks import Split
from ticdc_replay.domain.messages import OffsetRange

SPLIT_MESSAGES = 500_000
"""Messages of a split, at most about: what a worker remembers of each, to find duplicates, is some 300 bytes."""
_OPENING = 0.002
"""What one more range in a split costs, as a part of a whole split."""
_ROUNDING = 1e-6
_LOOKED_AT = 2048
_SPARSEST = 4096


class _Piece(NamedTuple):
    """A part of one partition's range and its share of a whole split."""

    range: OffsetRange
    weight: float


def divide(ranges: Sequence[SizedRange], split_bytes: int, least: int) -> list[OffsetRange]:
    """*ranges* in pieces of at most about *split_bytes* and ``SPLIT_MESSAGES``, by topic, partition and offset.

    Pieces of one range are of about one size in bytes, however large its messages are at its beginning and end.
    """
    return [piece.range for piece in _divide(ranges, split_bytes, least)]


def worthwhile(ranges: Sequence[SizedRange], parallelism: int, worth_bytes: int) -> int:
    """How many splits of *ranges* to make at least: *parallelism*, or fewer, so that each has about *worth_bytes*."""
    total = sum(sum(_bytes(each)) for each in ranges)
    return max(1, min(parallelism, round(total / worth_bytes)))


def plan_splits(
    ranges: Sequence[SizedRange], split_bytes: int, least: int, partitions: Mapping[str, int] | None = None
) -> list[Split]:
    """Splits of at most about *split_bytes* and ``SPLIT_MESSAGES``; about *least* of them where all of it is less.

    Short ranges share a split. *partitions* is the number of partitions of each topic, where it matters. The splits are ordered
    by topic, partition and offset; how ranges are divided has no effect on the rows that come out.
    """
    pieces = _divide(ranges, split_bytes, least)
    together = [[piece.range for piece in group] for group in _groups(pieces, least)]
    counts = partitions or {}
    sampled = sampled_of(sum(each.range.length for each in ranges))
    return [
        Split(number, tuple(parts), {part.topic: counts[part.topic] for part in parts if part.topic in counts}, sampled)
        for number, parts in enumerate(together)
    ]


def sampled_of(messages: int) -> int:
    """Of how many offsets one is looked at in a window of *messages*: so that some 2,000 are, and of many one in 4,096.

    What it gives divides what it gives for more.
    """
    return min(_SPARSEST, 1 << max(0, (messages // _LOOKED_AT).bit_length() - 1))


def _groups(pieces: Sequence[_Piece], least: int) -> list[list[_Piece]]:
    """Successive *pieces* that share a split."""
    total = sum(piece.weight + _OPENING for piece in pieces)
    size = _fair_share(total, least)
    groups: list[list[_Piece]] = []
    filled, before = 0.0, 0.0
    for piece in pieces:
        weight = piece.weight + _OPENING
        opens = not groups or filled + weight > 1 + _ROUNDING
        if size < 1.0:  # less than whole splits: a piece belongs where its middle is, so that none is left over
            opens |= (before + weight / 2) / size >= len(groups)
        if opens:
            groups.append([])
            filled = 0.0
        groups[-1].append(piece)
        filled += weight
        before += weight
    return groups


def _fair_share(total: float, least: int) -> float:
    return min(1.0, total / max(1, least))


def _divide(ranges: Sequence[SizedRange], split_bytes: int, least: int) -> list[_Piece]:
    size = _fair_share(sum(sum(_weights(each, split_bytes)) for each in ranges), least)
    pieces: list[_Piece] = []
    for each in sorted(ranges, key=lambda sized: sized.range):
        whole = each.range
        if whole.length <= 0:
            continue
        grown = np.concatenate([[0.0], np.cumsum(_weights(each, split_bytes))])
        ends = [0, *(stretch.end - whole.start for stretch in each.stretches)]
        count = max(1, int(np.ceil(grown[-1] / size - _ROUNDING)))
        cuts = np.rint(np.interp(np.linspace(0.0, grown[-1], count + 1), grown, ends)).astype(np.int64)
        cuts[0], cuts[-1] = 0, whole.length
        bounds = [whole.start + int(cut) for cut in np.unique(cuts)]
        weight = float(grown[-1]) / count
        pieces += [
            _Piece(OffsetRange(whole.topic, whole.partition, start, end), weight) for start, end in pairwise(bounds)
        ]
    return pieces


def _weights(sized: SizedRange, split_bytes: int) -> list[float]:
    """The share of a whole split that each stretch of *sized* has."""
    return [
        max(in_bytes / split_bytes, (stretch.end - start) / SPLIT_MESSAGES)
        for in_bytes, (start, stretch) in zip(_bytes(sized), _stretches(sized), strict=True)
    ]


def _bytes(sized: SizedRange) -> list[float]:
    """Of each stretch, with the objects that it needs."""
    return [
        (stretch.end - start) * (stretch.bytes_per_offset + stretch.object_bytes_per_offset)
        for start, stretch in _stretches(sized)
    ]


def _stretches(sized: SizedRange) -> Iterator[tuple[int, SizedStretch]]:
    """Each with the offset that it starts at."""
    return zip((sized.range.start, *(stretch.end for stretch in sized.stretches)), sized.stretches, strict=False)


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
