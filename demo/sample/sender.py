"""Sends a history as TiCDC does: batches, dispatching, watermarks, a restart that sends again."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from demo.sample import open_protocol
from demo.sample.history import LOGICAL_BITS, Change
from demo.sample.open_protocol import DDL, Event

LAG_MS = 350
"""A record's time is this much after the commit, as in the captures."""


class Message(NamedTuple):
    """One Kafka record, before it has an offset."""

    partition: int
    timestamp_ms: int
    key: bytes
    value: bytes


class Delivery(NamedTuple):
    """A change as it is sent once: restamped, the claim-check object (if any) under the name in it."""

    change: Change
    event: Event


class Sender:
    """The sending side of one changefeed, one topic, index-value dispatcher. ``messages`` is what it sent, in order."""

    def __init__(self, partitions: int, max_batch_size: int, max_message_bytes: int) -> None:
        self.messages: list[Message] = []
        self._partitions = partitions
        self._max_batch_size = max_batch_size
        self._max_message_bytes = max_message_bytes
        self._batches: list[list[Delivery]] = [[] for _ in range(partitions)]
        self._clocks = [0] * partitions

    def send(self, deliveries: Sequence[Delivery], watermarks: Sequence[int]) -> None:
        """Send *deliveries*, which are in commitTs order, with each of *watermarks* (TSO, rising) after what it covers.

        A watermark with the commitTs of a DDL is sent before that DDL, as the classic architecture does.
        """
        waiting = iter(watermarks)
        watermark = next(waiting, None)
        for delivery in deliveries:
            ts, is_ddl = delivery.change.ts, delivery.event.head["t"] == DDL
            while watermark is not None and (watermark < ts or (is_ddl and watermark == ts)):
                self._broadcast(watermark, open_protocol.resolved(watermark))
                watermark = next(waiting, None)
            if is_ddl:
                self._broadcast(ts, delivery.event)
            else:
                self._add(delivery)
        while watermark is not None:
            self._broadcast(watermark, open_protocol.resolved(watermark))
            watermark = next(waiting, None)
        self.flush()

    def restart(self, at_ms: int) -> None:
        """Be a new process from *at_ms* (ms since the epoch) on: no record has an earlier time any more."""
        self._clocks = [max(clock, at_ms + LAG_MS) for clock in self._clocks]

    def flush(self) -> None:
        """Send the batches that are not full."""
        for partition in range(self._partitions):
            self._flush(partition)

    def _add(self, delivery: Delivery) -> None:
        partition = open_protocol.index_value_partition(delivery.event, self._partitions)
        batch = self._batches[partition]
        size = sum(each.event.size for each in batch) + delivery.event.size
        if len(batch) == self._max_batch_size or (batch and size > self._max_message_bytes):
            self._flush(partition)
        self._batches[partition].append(delivery)

    def _flush(self, partition: int) -> None:
        batch = self._batches[partition]
        if batch:
            self._emit(partition, batch[-1].change.ts, [each.event for each in batch])
            self._batches[partition] = []

    def _broadcast(self, ts: int, event: Event) -> None:
        self.flush()
        for partition in range(self._partitions):
            self._emit(partition, ts, [event])

    def _emit(self, partition: int, ts: int, events: Sequence[Event]) -> None:
        self._clocks[partition] = max(self._clocks[partition], (ts >> LOGICAL_BITS) + LAG_MS)
        self.messages.append(Message(partition, self._clocks[partition], *open_protocol.join(events)))


def with_offsets(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Each message with the offset it gets in its partition."""
    ends: dict[int, int] = {}
    for message in messages:
        offset = ends.get(message.partition, 0)
        ends[message.partition] = offset + 1
        yield offset, message
