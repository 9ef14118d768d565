"""Estimates how large messages are, at several places of each range, so that splits hold about the same number of bytes."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.events import RowEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.retained import RetainedReader
from ticdc_replay.kafka.settings import KafkaSettings

PLACES = 6
"""Places of one range that are looked at, at most."""
MAX_PLACES = 600
"""Places that are looked at in all. What is not looked at counts as the mean of its topic, else of all."""
_MESSAGES = 16


class SizedStretch(msgspec.Struct, frozen=True):
    """Offsets of a range up to *end* (exclusive), whose messages are about alike: their bytes, and those of objects they need."""

    end: int
    bytes_per_offset: float
    object_bytes_per_offset: float = 0.0


class SizedRange(msgspec.Struct, frozen=True):
    """A range with an estimate of its bytes in successive *stretches*, the last of which ends with it."""

    range: OffsetRange
    stretches: tuple[SizedStretch, ...]

    def without_objects(self) -> "SizedRange":
        """For who reads messages alone."""
        stretches = (SizedStretch(stretch.end, stretch.bytes_per_offset) for stretch in self.stretches)
        return SizedRange(self.range, tuple(stretches))


def no_objects(message: RawMessage) -> int:
    """How many claim-check objects *message* refers to where nothing does."""
    return 0


def objects_of(message: RawMessage, codec: Codec, window: Window | None, tables: TablePatterns) -> int:
    """How many claim-check objects *message* refers to for rows of *tables* in *window*, None where all rows are in it."""
    if not codec.may_refer(message):
        return 0
    referring = [each for each in codec.decode(message) if isinstance(each, RowEvent | Undecodable) and each.reference]
    return sum(
        (window is None or each.commit_ts is None or each.commit_ts in window)
        and (each.schema is None or each.table is None or tables.wants(each.schema, each.table))
        for each in referring
    )


def sized(
    ranges: Sequence[OffsetRange],
    settings: KafkaSettings,
    objects_of: Callable[[RawMessage], int] = no_objects,
    object_bytes: float = 0.0,
) -> list[SizedRange]:
    """*ranges* with estimates of their bytes, in as many fetches as a range has places, whatever the number of ranges.

    *objects_of* counts the claim-check objects of a message; each has about *object_bytes*. Messages that Kafka has removed
    meanwhile count as none: reading them reports it. Raises AuthenticationError for refused credentials,
    TransientError when no broker answers.
    """
    wanted = [part for part in ranges if part.length > 0]
    places = _places(wanted)
    found = _look(places, settings, objects_of)
    by_topic: defaultdict[str, list[_Seen]] = defaultdict(list)
    for (part, _), seen in found.items():
        by_topic[part.topic].append(seen)
    means = {topic: _mean(all_seen) for topic, all_seen in by_topic.items()}
    mean = _mean(list(found.values())) if found else _Seen(0.0, 0.0)

    def stretch(part: OffsetRange, at: int, end: int) -> SizedStretch:
        seen = found.get((part, at), means.get(part.topic, mean))
        return SizedStretch(end, seen.size, seen.objects * object_bytes)

    return [
        SizedRange(part, tuple(stretch(part, *place) for place in places.get(part, ((part.start, part.end),))))
        for part in wanted
    ]


class _Seen(NamedTuple):
    """What an offset has in the mean: bytes of messages, and objects."""

    size: float
    objects: float


def _mean(seen: Sequence[_Seen]) -> _Seen:
    return _Seen(*(sum(each) / len(seen) for each in zip(*seen, strict=True)))


_Places = Mapping[OffsetRange, Sequence[tuple[int, int]]]
"""Per range that is looked at, the offsets to look at, each in the middle of a stretch, and the ends of these stretches."""

_Turn = Mapping[Partition, tuple[OffsetRange, int]]
"""A range of each partition, and the offset in it to look at."""


def _places(ranges: Sequence[OffsetRange]) -> _Places:
    chosen = list(_longest_of_each_topic(ranges))[:MAX_PLACES]
    most = min(PLACES, MAX_PLACES // max(1, len(chosen)))
    places = {}
    for part in chosen:
        count = max(1, min(most, part.length // _MESSAGES))
        places[part] = [
            (part.start + part.length * (2 * at + 1) // (2 * count), part.start + part.length * (at + 1) // count)
            for at in range(count)
        ]
    return places


def _longest_of_each_topic(ranges: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """*ranges*, by turns of each topic, its longest first."""
    by_topic: defaultdict[str, list[OffsetRange]] = defaultdict(list)
    for part in sorted(ranges, key=lambda part: (-part.length, part)):
        by_topic[part.topic].append(part)
    for turn in zip_longest(*by_topic.values()):
        yield from (part for part in turn if part is not None)


def _look(
    places: _Places, settings: KafkaSettings, objects_of: Callable[[RawMessage], int]
) -> dict[tuple[OffsetRange, int], _Seen]:
    """What is at each of *places*."""
    found: dict[tuple[OffsetRange, int], _Seen] = {}
    # Each turn is a consumer of its own, which mostly waits.
    with ThreadPoolExecutor(PLACES) as pool:
        for each in pool.map(partial(_look_at, settings=settings, objects_of=objects_of), _turns(places)):
            found |= each
    return found


def _turns(places: _Places) -> Iterator[_Turn]:
    """All of *places*, at most one of a partition at a time: a client has one position in it."""
    for turn in zip_longest(*([(part, at) for at, _ in offsets] for part, offsets in places.items())):
        waiting = [place for place in turn if place is not None]
        while waiting:
            one_each = {Partition(part.topic, part.partition): (part, at) for part, at in reversed(waiting)}
            waiting = [place for place in waiting if place not in one_each.values()]
            yield one_each


def _look_at(
    places: _Turn, settings: KafkaSettings, objects_of: Callable[[RawMessage], int]
) -> dict[tuple[OffsetRange, int], _Seen]:
    ranges = {
        partition: OffsetRange(part.topic, part.partition, at, min(part.end, at + _MESSAGES))
        for partition, (part, at) in places.items()
    }
    sizes, objects = dict.fromkeys(ranges, 0), dict.fromkeys(ranges, 0)

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        sizes[partition] += sum(len(message.key or b"") + len(message.value or b"") for message in messages)
        objects[partition] += sum(map(objects_of, messages))
        return False

    read_beginnings(settings, ranges.values(), take, alone=RetainedReader)
    lengths = {partition: part.length for partition, part in ranges.items()}
    return {
        place: _Seen(sizes[partition] / lengths[partition], objects[partition] / lengths[partition])
        for partition, place in places.items()
    }
