"""Reading what is left of a range from a broker that removes its oldest messages meanwhile."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.retained import RetainedReader
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

VALUE = b"v" * 10_000


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    connection = Connection(conn_id="kafka_test", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap})
    return KafkaSettings.from_connection(connection)


@pytest.fixture
def topic(kafka: Kafka, make_topic: Callable[..., str]) -> str:
    """A topic of 8,000 messages, more than a client fetches ahead."""
    name = make_topic(config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for number in range(8_000):
        producer.produce(name, VALUE, partition=0)
        if number % 2_000 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    return name


def delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    partition = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([partition])[partition].result(PATIENCE_S)


def test_what_was_removed_before_and_while_reading_is_passed_over_and_told(
    kafka: Kafka, settings: KafkaSettings, topic: str
) -> None:
    delete_before(kafka, topic, 100)
    reader = RetainedReader(settings, OffsetRange(topic, 0, 50, 8_000))
    offsets: list[int] = []
    for messages in reader:
        if not offsets:
            delete_before(kafka, topic, 7_900)
        offsets += [message.offset for message in messages]
    first, *rest = reader.removed
    assert first == OffsetRange(topic, 0, 50, 100)
    assert [part.end for part in rest] == [7_900], "what was fetched ahead was read, the rest was gone"
    (gone,) = rest
    assert offsets == [*range(100, gone.start), *range(7_900, 8_000)]


def test_a_range_that_is_gone_as_a_whole_has_no_messages(kafka: Kafka, settings: KafkaSettings, topic: str) -> None:
    delete_before(kafka, topic, 500)
    reader = RetainedReader(settings, OffsetRange(topic, 0, 10, 400))
    assert list(reader) == []
    assert reader.removed == [OffsetRange(topic, 0, 10, 400)]
