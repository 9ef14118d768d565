"""Reading offset ranges: every message of them, and no other."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ticdc_replay.domain.errors import ExpiredRangeError, TicdcReplayError, TopicChangedError, TransientError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.progress import reported
from ticdc_replay.kafka.failures import ClientHealth, make_client, translate
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition
from ticdc_replay.kafka.settings import KafkaSettings

_error, _timestamp, _offset = Message.error, Message.timestamp, Message.offset
_key, _value = Message.key, Message.value
_second = itemgetter(1)
_new_message = tuple.__new__

DEFAULT_IDLE_TIMEOUT_S = 60.0
_FIRST_BATCH_MESSAGES = 64
_BATCH_MESSAGES = 512
"""Batches of 2,000 messages take half as much processor time again: they outgrow its cache."""
_BATCH_BYTES = 8 * 1024 * 1024
"""A batch is as many messages as have this size by the average of the batch before, so that large messages don't pile up."""
_MEASURED = 4
"""One of so many messages of a batch is measured for their size."""
_POLL_S = 0.5
_TOGETHER_MESSAGES = 20_000
_TOGETHER_RANGES = 256
_TOGETHER_FETCHES = {
    "max.partition.fetch.bytes": 128 * 1024,
    "fetch.wait.max.ms": 10,
}
"""Partitions whose log goes on after their range must not fill the queue; those at their end must not delay the others."""
_BOUNDS_TIMEOUT_S = 10.0
_TAIL = 1_024
_TAIL_GROWTH = 16


def read_range(
    settings: KafkaSettings, offset_range: OffsetRange, *, idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
) -> Iterator[list[RawMessage]]:
    """The messages with offsets in ``[start, end)``, in order, in non-empty batches.

    Offsets that compaction or transactions left empty are skipped, also at the end of the range; messages of aborted transactions
    are not delivered. Raises ExpiredRangeError when offsets of the range were removed, before or while it is read;
    TopicChangedError when the log ends before the range does or the topic is gone; AuthenticationError for refused
    credentials (within seconds); TransientError when nothing came for *idle_timeout_s*, such as when the broker is away.
    """
    if offset_range.length <= 0:
        return
    health = ClientHealth(settings)
    consumer = make_client(Consumer, settings.consumer(), health)
    try:
        yield from _read(consumer, health, offset_range, idle_timeout_s)
    finally:
        consumer.close()


def read_ranges(
    settings: KafkaSettings, ranges: Sequence[OffsetRange], *, idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
) -> Iterator[list[RawMessage]]:
    """The messages of all *ranges*, one range after the other, each as ``read_range`` has it.

    Short ones are fetched together, and held until the last of them is there, so that a thousand take no longer than a few. How
    many messages were taken is reported as progress.
    """
    return reported(_read_ranges(settings, ranges, idle_timeout_s))


def backwards(part: OffsetRange) -> Iterator[OffsetRange]:
    """*part* in pieces, the last first and each longer than the one before: to find what is likely near the end."""
    end, size = part.end, _TAIL
    while end > part.start:
        start = max(part.start, end - size)
        yield OffsetRange(part.topic, part.partition, start, end)
        end, size = start, size * _TAIL_GROWTH


def _read_ranges(
    settings: KafkaSettings, ranges: Sequence[OffsetRange], idle_timeout_s: float
) -> Iterator[list[RawMessage]]:
    for together in _together(ranges):
        if len(together) == 1:
            yield from read_range(settings, together[0], idle_timeout_s=idle_timeout_s)
            continue
        health = ClientHealth(settings)
        consumer = make_client(Consumer, settings.consumer() | _TOGETHER_FETCHES, health)
        try:
            held = _read_together(consumer, health, together, idle_timeout_s)
        finally:
            consumer.close()
        yield from filter(None, held)


def _together(ranges: Iterable[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Successive *ranges* of different partitions that are short enough to be read at the same time."""
    together: list[OffsetRange] = []
    for part in ranges:
        if part.length <= 0:
            continue
        length = sum(other.length for other in together) + part.length
        taken = any((other.topic, other.partition) == (part.topic, part.partition) for other in together)
        if together and (length > _TOGETHER_MESSAGES or len(together) == _TOGETHER_RANGES or taken):
            yield together
            together = []
        together.append(part)
    if together:
        yield together


def _read_together(
    consumer: Consumer, health: ClientHealth, ranges: Sequence[OffsetRange], idle_timeout_s: float
) -> list[list[RawMessage]]:
    """The messages of each of *ranges*, which are of different partitions."""
    number_of = {(part.topic, part.partition): number for number, part in enumerate(ranges)}
    positions = [part.start for part in ranges]
    held: list[list[RawMessage]] = [[] for _ in ranges]
    consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in ranges])
    unread = set(range(len(ranges)))
    heard = time.monotonic()
    while unread:
        missing = sum(ranges[number].end - positions[number] for number in unread)
        polled = consumer.consume(min(_BATCH_MESSAGES, missing), _POLL_S)
        before = list(positions)
        for message in polled:
            number = number_of.get((message.topic(), message.partition()), min(unread, default=0))
            wanted = ranges[number]
            if message.error() is not None:
                positions[number] = max(positions[number], _end_of_log(health, [message], wanted, positions[number]))
                continue
            offset = message.offset()
            if offset < wanted.end:
                held[number] += raw_messages([message], wanted.topic, wanted.partition)
            positions[number] = max(positions[number], offset + 1)
        done = [number for number in unread if positions[number] >= ranges[number].end]
        if done:
            unread.difference_update(done)
            consumer.pause([TopicPartition(ranges[number].topic, ranges[number].partition) for number in done])
        if positions != before:
            heard = time.monotonic()
            health.progress()
            continue
        health.check()
        if time.monotonic() - heard >= idle_timeout_s:
            number = min(unread)
            raise _diagnose(health, ranges[number], positions[number], idle_timeout_s)
    return held


def _read(
    consumer: Consumer, health: ClientHealth, wanted: OffsetRange, idle_timeout_s: float
) -> Iterator[list[RawMessage]]:
    topic, partition, position, end = wanted.topic, wanted.partition, wanted.start, wanted.end
    consumer.assign([TopicPartition(topic, partition, position)])
    heard = time.monotonic()
    batch_messages = _FIRST_BATCH_MESSAGES
    while position < end:
        # Waits for as many as are asked for, so never for more than the range can still hold.
        polled = consumer.consume(min(batch_messages, end - position), _POLL_S)
        there = [message for message in polled if message.error() is None] if any(map(_error, polled)) else polled
        batch = raw_messages(there, topic, partition)
        reached = batch[-1].offset + 1 if batch else position
        if reached > end:
            batch = [message for message in batch if message.offset < end]
        if batch:
            yield batch
        if len(batch) < len(polled):
            reached = max(reached, _end_of_log(health, polled, wanted, reached))
        if reached > position:
            position = reached
            some = polled[::_MEASURED]
            size = sum(map(len, some)) // len(some)
            batch_messages = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // (size + 1)))
            heard = time.monotonic()  # after the yield: the consumer of the batches may take its time
            health.progress()
            continue
        health.check()
        if time.monotonic() - heard >= idle_timeout_s:
            raise _diagnose(health, wanted, position, idle_timeout_s)


def raw_messages(polled: Iterable[Message], topic: str, partition: int) -> list[RawMessage]:
    """*polled*, which are of one partition, as tuples.

    Hot: the interpreter runs no code for a single message here. A comprehension that calls ``RawMessage`` takes half
    as long again.
    """
    times = map(_second, map(_timestamp, polled))
    fields = zip(repeat(topic), repeat(partition), map(_offset, polled), times, map(_key, polled), map(_value, polled))
    return list(map(_new_message, repeat(RawMessage), fields))


def _end_of_log(health: ClientHealth, polled: list[Message], wanted: OffsetRange, position: int) -> int:
    """The largest offset at which *polled* reports the end of the log, or *position*; raises for any other error in it."""
    for message in polled:
        error = message.error()
        if error is None:
            continue
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            offset = message.offset()
            if offset is not None:
                position = max(position, offset)
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue  # the client looks for its group's coordinator, which nothing here needs
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise _offset_refused(health, wanted, position)
        else:
            failure = translate(error, f"reading {_place(wanted, position)} from Kafka {health.settings.where}")
            if not isinstance(failure, TransientError):
                raise failure
            health.note(error)
    return position


def _offset_refused(health: ClientHealth, wanted: OffsetRange, position: int) -> TicdcReplayError:
    """The broker has no offset *position*: either it was removed, or the log never came so far."""
    held = _bounds(health, wanted)
    if position < held.low:
        return ExpiredRangeError(
            f"Kafka no longer holds {wanted.topic}[{wanted.partition}] offsets {position} to {min(held.low, wanted.end) - 1} of "
            f"the range {wanted.start} to {wanted.end - 1}: the oldest offset is {held.low}. They were removed after they were "
            "pinned; replay a later window, or raise retention.ms of the topic"
        )
    return _truncated(wanted, held)


def _truncated(wanted: OffsetRange, held: Bounds) -> TopicChangedError:
    return TopicChangedError(
        f"{wanted.topic}[{wanted.partition}] ends at offset {held.high}, before the end {wanted.end} of the pinned range: the "
        "topic was recreated, or an unclean leader election lost messages. Check the topic, then pin the window again"
    )


def _diagnose(health: ClientHealth, wanted: OffsetRange, position: int, idle_timeout_s: float) -> TicdcReplayError:
    """Why nothing came for the whole idle time."""
    what = f"reading {_place(wanted, position)}, nothing came for {idle_timeout_s:g} s"
    try:
        held = _bounds(health, wanted)
    except TransientError:
        return health.explain(what)
    if held.high < wanted.end:
        return _truncated(wanted, held)
    return TransientError(f"{what} from Kafka {health.settings.where} although it holds {held.low} to {held.high}")


def _bounds(health: ClientHealth, wanted: OffsetRange) -> Bounds:
    """What the partition holds. Asked of a client of its own: a consumer that lost its brokers may give wrong answers."""
    partition = Partition(wanted.topic, wanted.partition)
    with Offsets(health.settings, request_timeout_s=_BOUNDS_TIMEOUT_S) as offsets:
        topic = offsets.topics([wanted.topic]).get(wanted.topic)
        if topic is None or partition not in topic.partitions:
            raise TopicChangedError(
                f"{partition} does not exist at Kafka {health.settings.where}; was the topic deleted or renamed?"
            )
        return offsets.bounds([partition])[partition]


def _place(wanted: OffsetRange, position: int) -> str:
    return f"{wanted.topic}[{wanted.partition}]@{position}"
