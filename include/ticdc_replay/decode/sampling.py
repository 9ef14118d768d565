"""Estimates how large messages are, at several places of each range, so that splits hold about the same number of bytes."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.retained import RetainedReader
from ticdc_replay.kafka.settings import KafkaSettings

PLACES = 6
"""Places of one range that are looked at, at most."""
MAX_PLACES = 600
"""Places that are looked at in all. What is not looked at counts as the mean of its topic, else of all."""
_MESSAGES = 16


class Stretch(msgspec.Struct, frozen=True):
    """Offsets of a range up to *end* (exclusive), whose messages are about alike."""

    end: int
    bytes_per_offset: float


class SizedRange(msgspec.Struct, frozen=True):
    """A range with an estimate of its bytes in successive *stretches*, the last of which ends with it."""

    range: OffsetRange
    stretches: tuple[Stretch, ...]


def bytes_of(message: RawMessage) -> float:
    """The bytes of *message*, key and value."""
    return len(message.key or b"") + len(message.value or b"")


def bytes_with_object(message: RawMessage, codec: Codec, object_bytes: float) -> float:
    """As ``bytes_of``, and of the claim-check object that *message* may refer to: they have *object_bytes*, about."""
    return bytes_of(message) + (object_bytes if codec.may_refer(message) else 0.0)


def sized(
    ranges: Sequence[OffsetRange], settings: KafkaSettings, size_of: Callable[[RawMessage], float] = bytes_of
) -> list[SizedRange]:
    """*ranges* with estimates of their bytes, in as many fetches as a range has places, whatever the number of ranges.

    *size_of* tells the bytes that a message comes to. Messages that Kafka has removed meanwhile count as none: reading them is
    what tells. Raises AuthenticationError for refused credentials, TransientError when no broker answers.
    """
    wanted = [part for part in ranges if part.length > 0]
    places = _places(wanted)
    found = _look(places, settings, size_of)
    by_topic: defaultdict[str, list[float]] = defaultdict(list)
    for (part, _), size in found.items():
        by_topic[part.topic].append(size)
    means = {topic: sum(sizes) / len(sizes) for topic, sizes in by_topic.items()}
    mean = sum(found.values()) / len(found) if found else 0.0
    return [
        SizedRange(
            part,
            tuple(
                Stretch(end, found.get((part, at), means.get(part.topic, mean)))
                for at, end in places.get(part, ((part.start, part.end),))
            ),
        )
        for part in wanted
    ]


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
    places: _Places, settings: KafkaSettings, size_of: Callable[[RawMessage], float]
) -> dict[tuple[OffsetRange, int], float]:
    """The mean bytes of an offset at each of *places*."""
    found: dict[tuple[OffsetRange, int], float] = {}
    # Each turn is a consumer of its own, which mostly waits.
    with ThreadPoolExecutor(PLACES) as pool:
        for each in pool.map(partial(_look_at, settings=settings, size_of=size_of), _turns(places)):
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
    places: _Turn, settings: KafkaSettings, size_of: Callable[[RawMessage], float]
) -> dict[tuple[OffsetRange, int], float]:
    ranges = {
        partition: OffsetRange(part.topic, part.partition, at, min(part.end, at + _MESSAGES))
        for partition, (part, at) in places.items()
    }
    sizes = dict.fromkeys(ranges, 0.0)

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        sizes[partition] += sum(map(size_of, messages))
        return False

    read_beginnings(settings, ranges.values(), take, alone=RetainedReader)
    return {place: sizes[partition] / ranges[partition].length for partition, place in places.items()}
