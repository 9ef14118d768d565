"""The workload that the figures come from: real messages of ``shop.orders``, repeated with other keys and times.

About 860 bytes per event with its key; 60 % inserts, 30 % updates, 10 % deletes; batches of up to 16 events.
"""

import re
from collections.abc import Iterator, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ticdc_replay.domain import tso
from ticdc_replay.domain.messages import RawMessage

# All these numbers keep their length, so that the length prefixes of the frames stay right.
_COMMIT_TS = re.compile(rb'"ts":(\d{18})')
_ROW_ID = re.compile(rb'"rid":(\d{7})')
_KEY_CELL = re.compile(rb'("o_id":\{"t":8,"h":true,"f":11,"v":)(\d{7})')
KEY_SPAN = 30_000


def repeated(messages: Sequence[RawMessage], repeats: int) -> Iterator[RawMessage]:
    """*messages*, which are those of the workload capture, *repeats* times: each time other keys and later commits."""
    times = [int(found) for message in messages for found in _COMMIT_TS.findall(message.key or b"")]
    span = max(times) - min(times) + tso.from_ms(1000)
    for repeat in range(repeats):
        for message in messages:
            if repeat and b'"t":2}' in (message.key or b""):
                continue
            yield _shifted(message, repeat * span, repeat * KEY_SPAN)


def _shifted(message: RawMessage, time: int, key: int) -> RawMessage:
    key_bytes = _COMMIT_TS.sub(lambda found: b'"ts":%d' % (int(found[1]) + time), message.key or b"")
    key_bytes = _ROW_ID.sub(lambda found: b'"rid":%d' % (int(found[1]) + key), key_bytes)
    value = _KEY_CELL.sub(lambda found: found[1] + b"%d" % (int(found[2]) + key), message.value or b"")
    shifted_ms = message.timestamp_ms + tso.physical_ms(time)
    return message._replace(key=key_bytes, value=value, timestamp_ms=shifted_ms)


def publish(bootstrap: str, topic: str, messages: Sequence[RawMessage], partitions: int) -> None:
    """Send *messages* to a new *topic*: rows in turn to each partition, DDL and resolved events to all, as TiCDC does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 100_000,
        }
    )
    for at, message in enumerate(messages):
        row = b'"t":1}' in (message.key or b"")
        for partition in [at % partitions] if row else range(partitions):
            while True:
                try:
                    producer.produce(topic, message.value, message.key, partition, timestamp=message.timestamp_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take all messages within 120 s")
