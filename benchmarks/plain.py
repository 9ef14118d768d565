"""Plain consumption, which Kafka → changelog is measured against: each process reads partitions of its own and drops what comes.

Every message's key and value are taken as bytes, as any consumer must. ``batched`` asks ``Consumer.consume`` for many at a time,
which is the fastest that the client does; ``one_by_one`` polls. Topics hold the ranges that are read, without gaps, and no more.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from ticdc_replay.domain.messages import OffsetRange

BATCH_MESSAGES = 512
"""As good as any: smaller ones cost more calls, larger ones outgrow the processor's cache."""
PROCESSES = 2
TIMEOUT_S = 30

Consume = Callable[[str, Sequence[OffsetRange]], int]


def batched(bootstrap: str, parts: Sequence[OffsetRange]) -> int:
    """Read *parts*; the bytes of their keys and values."""
    consumer = _consumer(bootstrap, parts)
    left = sum(part.length for part in parts)
    size = 0
    while left > 0:
        messages = consumer.consume(min(BATCH_MESSAGES, left), TIMEOUT_S)
        for message in messages:
            key, value = message.key(), message.value()
            size += len(key or b"") + len(value or b"")
        left -= _some(len(messages))
    consumer.close()
    return size


def one_by_one(bootstrap: str, parts: Sequence[OffsetRange]) -> int:
    """As ``batched``, message by message."""
    consumer = _consumer(bootstrap, parts)
    size = 0
    for _ in range(sum(part.length for part in parts)):
        message = consumer.poll(TIMEOUT_S)
        _some(message)
        key, value = message.key(), message.value()
        size += len(key or b"") + len(value or b"")
    consumer.close()
    return size


def _consumer(bootstrap: str, parts: Sequence[OffsetRange]) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "plain", "enable.auto.commit": False})
    consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in parts])
    return consumer


def _some(found: Any) -> Any:
    if not found:
        raise RuntimeError(f"Kafka sent nothing for {TIMEOUT_S} s")
    return found


class Readers:
    """``PROCESSES`` processes that are kept, so that their start does not count."""

    def __init__(self) -> None:
        self._pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(PROCESSES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown()

    def read(self, consume: Consume, bootstrap: str, ranges: Sequence[OffsetRange]) -> int:
        """Read *ranges*, each process its share of them; the bytes of keys and values."""
        return self.share(partial(consume, bootstrap), ranges)

    def share(self, work: Callable[[Sequence[Any]], int], items: Sequence[Any]) -> int:
        """The sum of *work* of *items*, each process its share of them."""
        shares = [items[at::PROCESSES] for at in range(PROCESSES)]
        jobs = [pool.submit(work, share) for pool, share in zip(self._pools, shares, strict=True)]
        return sum(job.result() for job in jobs)
