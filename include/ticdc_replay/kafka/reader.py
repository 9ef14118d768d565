"""Reading one offset range of one partition: every message of it, and no other."""

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ticdc_replay.domain.errors import ExpiredRangeError, TicdcReplayError, TopicChangedError, TransientError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.failures import ClientHealth, make_client, translate
from ticdc_replay.kafka.settings import KafkaSettings

DEFAULT_IDLE_TIMEOUT_S = 60.0
_FIRST_BATCH_MESSAGES = 64
_BATCH_MESSAGES = 2_000
_BATCH_BYTES = 8 * 1024 * 1024
"""A batch is as many messages as have this size by the average of the batch before, so that large messages don't pile up."""
_POLL_S = 0.5
_BOUNDS_TIMEOUT_S = 10.0


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
        # Hot loop: 0.9 µs per message, 1.1 million messages/s with consume() itself on one core.
        batch = [
            RawMessage(topic, partition, message.offset(), message.timestamp()[1], message.key(), message.value())
            for message in polled
            if message.error() is None
        ]
        reached = batch[-1].offset + 1 if batch else position
        if reached > end:
            batch = [message for message in batch if message.offset < end]
        if batch:
            yield batch
        if len(batch) < len(polled):
            reached = max(reached, _end_of_log(consumer, health, polled, wanted, reached))
        if reached > position:
            position = reached
            size = sum(map(len, polled)) // len(polled)
            batch_messages = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // (size + 1)))
            heard = time.monotonic()  # after the yield: the consumer of the batches may take its time
            health.progress()
            continue
        health.check()
        if time.monotonic() - heard >= idle_timeout_s:
            raise _diagnose(consumer, health, wanted, position, idle_timeout_s)


def _end_of_log(
    consumer: Consumer, health: ClientHealth, polled: list[Message], wanted: OffsetRange, position: int
) -> int:
    """The largest offset at which *polled* tells the end of the log, or *position*; raises for any other error in it."""
    for message in polled:
        error = message.error()
        if error is None:
            continue
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            offset = message.offset()
            if offset is not None:
                position = max(position, offset)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise _offset_refused(consumer, health, wanted, position)
        else:
            failure = translate(error, f"reading {_place(wanted, position)} from Kafka {health.settings.where}")
            if not isinstance(failure, TransientError):
                raise failure
            health.note(error)
    return position


def _offset_refused(consumer: Consumer, health: ClientHealth, wanted: OffsetRange, position: int) -> TicdcReplayError:
    """The broker has no offset *position*: either it was removed, or the log never came so far."""
    bounds = _bounds(consumer, wanted)
    if bounds is None:
        return health.explain(f"reading {_place(wanted, position)}")
    low, high = bounds
    if position < low:
        return ExpiredRangeError(
            f"Kafka no longer holds {wanted.topic}[{wanted.partition}] offsets {position} to {min(low, wanted.end) - 1} of the "
            f"range {wanted.start} to {wanted.end - 1}: the oldest offset is {low}. They were removed after they were pinned; "
            "replay a later window, or raise retention.ms of the topic"
        )
    return _truncated(wanted, high)


def _truncated(wanted: OffsetRange, high: int) -> TopicChangedError:
    return TopicChangedError(
        f"{wanted.topic}[{wanted.partition}] ends at offset {high}, before the end {wanted.end} of the pinned range: the topic "
        "was recreated, or an unclean leader election lost messages. Check the topic, then pin the window again"
    )


def _diagnose(
    consumer: Consumer, health: ClientHealth, wanted: OffsetRange, position: int, idle_timeout_s: float
) -> TicdcReplayError:
    """Why nothing came for the whole idle time."""
    what = f"reading {_place(wanted, position)}, nothing came for {idle_timeout_s:g} s"
    bounds = _bounds(consumer, wanted)
    if bounds is None:
        return health.explain(what)
    if bounds[1] < wanted.end:
        return _truncated(wanted, bounds[1])
    return TransientError(
        f"{what} from Kafka {health.settings.where} although the partition holds {bounds[0]} to {bounds[1]}"
    )


def _bounds(consumer: Consumer, wanted: OffsetRange) -> tuple[int, int] | None:
    """Oldest offset and end of the log, None where no broker answers."""
    try:
        return consumer.get_watermark_offsets(TopicPartition(wanted.topic, wanted.partition), _BOUNDS_TIMEOUT_S)  # type: ignore[no-any-return]
    except KafkaException as error:
        failure = translate(error.args[0], f"looking up {wanted.topic}[{wanted.partition}]")
        if isinstance(failure, TransientError):
            return None
        raise failure from None


def _place(wanted: OffsetRange, position: int) -> str:
    return f"{wanted.topic}[{wanted.partition}]@{position}"
