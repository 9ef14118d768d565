"""Estimates how large messages are, at several places of each range, so that splits hold about the same number of bytes."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.failures import ClientHealth, make_client, translate
from ticdc_replay.kafka.settings import KafkaSettings

PLACES = 6
"""Places of one range that are looked at, at most."""
MAX_PLACES = 600
"""Places that are looked at in all. What is not looked at counts as the mean of its topic, else of all."""
_MESSAGES = 16
_LOOK_S = 5.0
_AWAY_S = 30.0
_POLL_S = 0.1
_SMALL_FETCHES = {
    "max.partition.fetch.bytes": 65_536,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1,
}


class Stretch(msgspec.Struct, frozen=True):
    """Offsets of a range up to *end* (exclusive), whose messages are about alike."""

    end: int
    bytes_per_offset: float


class SizedRange(msgspec.Struct, frozen=True):
    """A range with an estimate of its bytes (keys and values) in successive *stretches*, the last of which ends with it."""

    range: OffsetRange
    stretches: tuple[Stretch, ...]


def sized(ranges: Sequence[OffsetRange], settings: KafkaSettings) -> list[SizedRange]:
    """*ranges* with estimates of their bytes, in as many fetches as a range has places, whatever the number of ranges.

    Messages that Kafka has removed meanwhile count as none: reading them is what tells. Raises AuthenticationError for refused
    credentials, TransientError when no broker answers.
    """
    wanted = [part for part in ranges if part.length > 0]
    places = _places(wanted)
    found = _look(places, settings) if wanted else {}
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


def _look(places: _Places, settings: KafkaSettings) -> dict[tuple[OffsetRange, int], float]:
    """The mean bytes of an offset at each of *places* that answered in time."""
    health = ClientHealth(settings)
    consumer = make_client(Consumer, {**settings.consumer(), **_SMALL_FETCHES}, health)
    found: dict[tuple[OffsetRange, int], float] = {}
    try:
        for turn in zip_longest(*([(part, at) for at, _ in offsets] for part, offsets in places.items())):
            # A partition may have several ranges; a client has one position in it.
            waiting = [place for place in turn if place is not None]
            while waiting:
                one_each = {(part.topic, part.partition): (part, at) for part, at in reversed(waiting)}
                waiting = [place for place in waiting if place not in one_each.values()]
                found |= _look_at(consumer, health, one_each.values(), within_s=_LOOK_S if found else _AWAY_S)
                if not found:
                    raise health.explain("estimating the size of messages")
    finally:
        consumer.close()
    return found


def _look_at(
    consumer: Consumer, health: ClientHealth, places: Iterable[tuple[OffsetRange, int]], *, within_s: float
) -> dict[tuple[OffsetRange, int], float]:
    waiting = {(part.topic, part.partition): (part, at) for part, at in places}
    sizes: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    consumer.assign([TopicPartition(topic, number, at) for (topic, number), (_, at) in waiting.items()])
    found = {}
    deadline = time.monotonic() + within_s
    while waiting and time.monotonic() < deadline:
        health.check()
        polled = consumer.consume(_MESSAGES * len(waiting), _POLL_S)
        for message in polled:
            where = (message.topic() or "", message.partition() or 0)
            if where in waiting and _sizes(message, waiting[where], sizes[where], health):
                part, at = waiting.pop(where)
                found[part, at] = _mean(sizes[where], at)
    for where, (part, at) in waiting.items():
        if sizes[where]:
            found[part, at] = _mean(sizes[where], at)
    if found:
        health.progress()
    return found


def _sizes(
    message: Message, place: tuple[OffsetRange, int], sizes: list[tuple[int, int]], health: ClientHealth
) -> bool:
    """Note the offset and the size of *message*; whether its place needs no more."""
    error = message.error()
    if error is None:
        offset = message.offset() or 0
        if offset < place[0].end:
            sizes.append((offset, len(message) + len(message.key() or b"")))
        return len(sizes) >= _MESSAGES or offset + 1 >= place[0].end
    if error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
        return True
    failure = translate(error, f"estimating the size of messages of {place[0].topic}[{place[0].partition}]")
    if not isinstance(failure, TransientError):
        raise failure
    health.note(error)
    return False


def _mean(sizes: list[tuple[int, int]], start: int) -> float:
    """Bytes per offset from *start* to the last that was seen: compaction and transactions leave gaps."""
    return sum(size for _, size in sizes) / (sizes[-1][0] + 1 - start) if sizes else 0.0
