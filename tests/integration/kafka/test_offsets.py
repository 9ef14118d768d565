"""Looking up topics, bounds and offsets by time at a real broker."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, TransientError
from ticdc_replay.kafka.offsets import POLL_S, Bounds, Offsets, Partition, RecordPlace
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

FIRST_MS = 1_700_000_000_000
MakeTopic = Callable[..., str]


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    return KafkaSettings.from_connection(
        Connection(conn_id="kafka_test", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap})
    )


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic(kafka: Kafka, make_topic: MakeTopic) -> str:
    """Partition 0 holds ten records, a second apart; partition 1 holds none."""
    name = make_topic(partitions=2, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for number in range(10):
        producer.produce(name, b"v", partition=0, timestamp=FIRST_MS + number * 1000)
    assert producer.flush(PATIENCE_S) == 0
    return name


def test_offsets_by_time_are_the_first_at_or_after_it(settings: KafkaSettings, topic: str) -> None:
    full, empty = Partition(topic, 0), Partition(topic, 1)
    with Offsets(settings) as offsets:
        third = RecordPlace(2, FIRST_MS + 2000)
        assert offsets.at_or_after({full: FIRST_MS + 2000, empty: FIRST_MS}) == {full: third, empty: None}
        assert offsets.at_or_after({full: FIRST_MS + 2001}) == {full: RecordPlace(3, FIRST_MS + 3000)}
        assert offsets.at_or_after({full: 0}) == {full: RecordPlace(0, FIRST_MS)}
        assert offsets.at_or_after({full: FIRST_MS + 9001}) == {full: None}
        assert offsets.at_or_after({}) == {}


def test_a_look_up_ends_when_the_answer_comes(settings: KafkaSettings, topic: str) -> None:
    took = []
    with Offsets(settings) as offsets:
        for _ in range(50):
            started = time.monotonic()
            offsets.at_or_after({Partition(topic, 0): FIRST_MS})
            took.append(time.monotonic() - started)
    # The fastest, for a busy machine answers late. It would be as long as a look for lost brokers if one had to end first.
    assert min(took) < POLL_S


def test_a_record_of_a_time_that_no_commit_has_counts_as_of_the_last(
    settings: KafkaSettings, kafka: Kafka, make_topic: MakeTopic
) -> None:
    name = make_topic(config={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"v", partition=0, timestamp=1 << 62)
    assert producer.flush(PATIENCE_S) == 0
    with Offsets(settings) as offsets:
        for ms in (-(1 << 62), -4, -3, -2, -1, 0, (1 << 45) - 1, (1 << 63) + 5):
            found = offsets.at_or_after({Partition(name, 0): ms})
            assert found == {Partition(name, 0): RecordPlace(0, (1 << 45) - 1)}


def test_bounds_follow_removed_records(settings: KafkaSettings, admin: AdminClient, topic: str) -> None:
    removed = TopicPartition(topic, 0, 4)
    admin.delete_records([removed])[removed].result(PATIENCE_S)
    with Offsets(settings) as offsets:
        assert offsets.bounds([Partition(topic, 0), Partition(topic, 1)]) == {
            Partition(topic, 0): Bounds(4, 10),
            Partition(topic, 1): Bounds(0, 0),
        }


def test_how_long_messages_are_kept_follows_the_topics_configuration(
    settings: KafkaSettings, make_topic: MakeTopic
) -> None:
    for_ever = make_topic(config={"retention.ms": "-1"})
    compacted = make_topic(config={"cleanup.policy": "compact", "retention.ms": "5000"})
    both = make_topic(config={"cleanup.policy": "compact,delete", "retention.ms": "5000"})
    by_default = make_topic()
    with Offsets(settings) as offsets:
        kept = offsets.retention_ms([for_ever, compacted, both, by_default])
        assert kept == {for_ever: -1, compacted: -1, both: 5000, by_default: 7 * 86_400_000}
        assert offsets.retention_ms([]) == {}
        policies = offsets.cleanup_policies([compacted, both])
        assert policies == {compacted: frozenset({"compact"}), both: frozenset({"compact", "delete"})}


def test_only_topics_that_exist_are_found_and_a_recreated_one_has_another_id(
    settings: KafkaSettings, admin: AdminClient, topic: str, make_topic: MakeTopic
) -> None:
    with Offsets(settings) as offsets:
        before = offsets.topics([topic, "no-such-topic"])
        assert list(before) == [topic]
        assert before[topic].partitions == (Partition(topic, 0), Partition(topic, 1))
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        wait_for(f"topic {topic} to go", lambda: not offsets.topics([topic]))
        make_topic(name=topic)
        after = offsets.topics([topic])
        assert after[topic].topic_id != before[topic].topic_id


def test_a_broker_that_is_away_is_transient_and_wrong_credentials_are_not(kafka: Kafka) -> None:
    away = KafkaSettings.from_connection(Connection(conn_id="kafka_away", conn_type="kafka", host="127.0.0.1", port=9))
    with Offsets(away, request_timeout_s=2) as offsets, pytest.raises(TransientError, match="kafka_away"):
        offsets.topics(["t"])
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": kafka.sasl_mechanism}
    extra["bootstrap.servers"] = kafka.sasl_bootstrap
    wrong = Connection(conn_id="kafka_wrong", conn_type="kafka", login="replay", password="wrong", extra=extra)
    with (
        Offsets(KafkaSettings.from_connection(wrong)) as offsets,
        pytest.raises(AuthenticationError, match="kafka_wrong"),
    ):
        offsets.topics(["t"])
