"""Reading the first messages of many offset ranges with one consumer: what a look at a thousand partitions costs."""

import time
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.failures import ClientHealth, make_client, translate
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.reader import raw_messages, read_range
from ticdc_replay.kafka.settings import KafkaSettings

Take = Callable[[Partition, list[RawMessage]], bool]
"""Takes messages of a partition, in order and none twice; returns whether it has enough of that partition."""

ReadAlone = Callable[[KafkaSettings, OffsetRange], Iterable[list[RawMessage]]]
"""Reads one range, in order."""

_BATCH_MESSAGES = 2_000
_POLL_S = 0.02
_QUIET_S = 10.0
_FETCH = {
    # Of most partitions a few messages are wanted, and what else is fetched is thrown away.
    "max.partition.fetch.bytes": 32 * 1024,
    "queued.min.messages": 1_000,
}


def read_beginnings(
    settings: KafkaSettings, ranges: Iterable[OffsetRange], take: Take, *, alone: ReadAlone = read_range
) -> None:
    """Give *take* the messages of each of *ranges*, at most one of each partition, until it has enough or the range is over.

    Offsets without a message are skipped. Where something is wrong with a partition, *alone* reads it by itself, and says so or
    gets over it: ``reader.read_range``, whose errors this then raises, or ``retained.RetainedReader``.
    """
    wanted = {Partition(part.topic, part.partition): part for part in ranges if part.length > 0}
    if not wanted:
        return
    health = ClientHealth(settings)
    consumer = make_client(Consumer, {**settings.consumer(), **_FETCH}, health)
    try:
        left = _read(consumer, health, wanted, take)
    finally:
        consumer.close()
    for partition, part in left.items():
        for messages in alone(settings, part):
            if take(partition, messages):
                break


def _read(
    consumer: Consumer, health: ClientHealth, wanted: dict[Partition, OffsetRange], take: Take
) -> dict[Partition, OffsetRange]:
    """What is left of *wanted*: of partitions that could not be read, or from which nothing came in time."""
    consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in wanted.values()])
    going, refused = dict(wanted), {}
    heard = time.monotonic()
    while going:
        polled = consumer.consume(_BATCH_MESSAGES, _POLL_S)
        over = []
        for partition, found in _by_partition(polled).items():
            part = going.get(partition)
            if part is None:
                continue  # fetched before it was over
            position, is_refused = _position(health, found, part)
            part = OffsetRange(part.topic, part.partition, min(position, part.end), part.end)
            there = [message for message in found if message.error() is None and message.offset() < part.end]
            messages = raw_messages(there, part.topic, part.partition)
            going[partition] = part
            if is_refused:
                refused[partition] = part
            if (messages and take(partition, messages)) or is_refused or part.length == 0:
                over.append(partition)
        if over:
            consumer.incremental_unassign([TopicPartition(partition.topic, partition.number) for partition in over])
            for partition in over:
                del going[partition]
        if any(_is_progress(message) for message in polled):
            heard = time.monotonic()
            health.progress()
            continue
        health.check()
        if time.monotonic() - heard >= _QUIET_S:
            break
    return {**refused, **going}


def _by_partition(polled: Iterable[Message]) -> dict[Partition, list[Message]]:
    """What was *polled*, by partition; errors of a whole topic or of the client stand under a number that no partition has."""
    found: dict[tuple[str | None, int | None], list[Message]] = {}
    for message in polled:
        found.setdefault((message.topic(), message.partition()), []).append(message)
    return {
        Partition(topic or "", -1 if number is None else number): messages
        for (topic, number), messages in found.items()
    }


def _is_progress(message: Message) -> bool:
    error = message.error()
    return error is None or error.code() == KafkaError._PARTITION_EOF


def _position(health: ClientHealth, found: Iterable[Message], part: OffsetRange) -> tuple[int, bool]:
    """The offset after all that was *found* of *part*, and whether the broker refuses to go on."""
    position = part.start
    for message in found:
        error = message.error()
        if error is None:
            position = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            position = max(position, message.offset() or 0)
        elif isinstance(translate(error, "reading"), TransientError):
            health.note(error)
        else:
            return position, True
    return position, False
