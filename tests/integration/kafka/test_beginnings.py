"""Reading the first messages of many ranges with one consumer, from a real broker."""

import re
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ExpiredRangeError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

MakeTopic = Callable[..., str]


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    extra = {"bootstrap.servers": kafka.bootstrap}
    return KafkaSettings.from_connection(Connection(conn_id="kafka_test", conn_type="kafka", extra=extra))


@pytest.fixture
def make_full_topic(kafka: Kafka, make_topic: MakeTopic) -> Callable[[int, int], str]:
    """Makes a topic of so many partitions, each with so many messages that tell their place."""

    def make(partitions: int, messages: int) -> str:
        topic = make_topic(partitions)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "enable.idempotence": True})
        for offset in range(messages):
            for partition in range(partitions):
                producer.produce(topic, f"{partition}@{offset}".encode() + b"." * 500, partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        return topic

    return make


class Taken:
    """Keeps what it is given, and has enough of a partition after so many messages."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.messages: dict[Partition, list[RawMessage]] = {}

    def __call__(self, partition: Partition, messages: list[RawMessage]) -> bool:
        kept = self.messages.setdefault(partition, [])
        assert len(kept) < self.enough, f"{partition} had enough"
        kept += messages
        return len(kept) >= self.enough


def test_each_range_is_read_in_order_until_there_is_enough_of_it_or_it_is_over(
    settings: KafkaSettings, make_full_topic: Callable[[int, int], str]
) -> None:
    topics = [make_full_topic(40, 300), make_full_topic(3, 300)]
    whole = [OffsetRange(topics[0], at, at, 300) for at in range(40)]
    short = [OffsetRange(topics[1], at, 290, 290 + 5 * at) for at in range(3)]
    taken = Taken(enough=200)
    read_beginnings(settings, [*whole, *short], taken)
    assert taken.messages.keys() == {Partition(part.topic, part.partition) for part in (*whole, *short[1:])}
    for part in (*whole, *short[1:]):
        messages = taken.messages[Partition(part.topic, part.partition)]
        assert [message.offset for message in messages] == list(range(part.start, part.start + len(messages)))
        assert all(message.value.startswith(b"%d@%d." % (part.partition, message.offset)) for message in messages)  # type: ignore[union-attr]
        assert len(messages) >= min(200, part.length)
        assert messages[-1].offset < part.end


def test_a_range_may_end_among_offsets_that_hold_no_message(
    kafka: Kafka, settings: KafkaSettings, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for value in (b"kept", b"aborted"):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, value, partition=partition)
        producer.flush()
        producer.commit_transaction() if value == b"kept" else producer.abort_transaction()
    # Offsets: kept, marker, aborted, marker.
    taken = Taken(enough=9)
    read_beginnings(settings, [OffsetRange(topic, 0, 0, 4), OffsetRange(topic, 1, 1, 3)], taken)
    assert {
        partition.number: [found.value for found in messages] for partition, messages in taken.messages.items()
    } == {0: [b"kept"]}


def test_a_partition_that_lost_its_beginning_is_told_and_all_others_are_read(
    kafka: Kafka, settings: KafkaSettings, make_full_topic: Callable[[int, int], str]
) -> None:
    topic = make_full_topic(3, 20)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    cut = TopicPartition(topic, 1, 10)
    admin.delete_records([cut])[cut].result(PATIENCE_S)
    taken = Taken(enough=100)
    with pytest.raises(ExpiredRangeError, match=re.escape(f"{topic}[1] offsets 5 to 9 ")):
        read_beginnings(settings, [OffsetRange(topic, at, 5, 20) for at in range(3)], taken)
    assert {partition.number: len(messages) for partition, messages in taken.messages.items()} == {0: 15, 2: 15}
