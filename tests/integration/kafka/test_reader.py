"""Reading a pinned range from a real broker."""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, ExpiredRangeError, TopicChangedError, TransientError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

MakeTopic = Callable[..., str]
KEPT = {"retention.ms": "-1"}
"""The records are years old."""


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    connection = Connection(conn_id="kafka_test", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap})
    return KafkaSettings.from_connection(connection)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on asking a broker that is away why nothing comes."""
    monkeypatch.setattr("ticdc_replay.kafka.reader._BOUNDS_TIMEOUT_S", 1.0)


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


def produce(settings: KafkaSettings, topic: str, values: list[bytes], first_ms: int = 1_700_000_000_000) -> None:
    producer = Producer({"bootstrap.servers": settings.options["bootstrap.servers"], "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"k", partition=0, timestamp=first_ms + number)
    assert producer.flush(PATIENCE_S) == 0


def offsets(batches: Iterator[list[RawMessage]]) -> list[int]:
    return [message.offset for batch in batches for message in batch]


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    partition = TopicPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(PATIENCE_S)


def test_exactly_the_range_is_read_although_the_log_goes_on(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(config=KEPT)
    produce(settings, topic, [b"%d" % number for number in range(5_000)])
    messages = [message for batch in read_range(settings, OffsetRange(topic, 0, 1_000, 4_321)) for message in batch]
    assert [message.offset for message in messages] == list(range(1_000, 4_321))
    assert messages[0] == RawMessage(topic, 0, 1_000, 1_700_000_001_000, b"k", b"1000")


def test_messages_of_64_mib_are_read(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    size = 64 << 20
    topic = make_topic(config={**KEPT, "max.message.bytes": str(80 << 20)})
    producer = Producer(
        {"bootstrap.servers": settings.options["bootstrap.servers"], "message.max.bytes": 80 << 20, "linger.ms": 0}
    )
    for number in range(2):
        producer.produce(topic, bytes([number]) * size, partition=0)
        assert producer.flush(PATIENCE_S) == 0
    sized = msgspec.structs.replace(settings, max_message_bytes=size)
    messages = [message for batch in read_range(sized, OffsetRange(topic, 0, 0, 2)) for message in batch]
    assert [(len(message.value or b""), (message.value or b"")[0]) for message in messages] == [(size, 0), (size, 1)]


def test_an_empty_range_asks_no_broker(settings: KafkaSettings) -> None:
    assert list(read_range(settings, OffsetRange("no-such-topic", 0, 7, 7))) == []


def test_a_range_that_ends_in_an_aborted_transaction_ends(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(config=KEPT)
    producer = Producer(
        {"bootstrap.servers": settings.options["bootstrap.servers"], "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(PATIENCE_S)
    for values, commit in (((b"a", b"b"), True), ((b"x", b"y"), False)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    # Offsets: a b (marker) x y (marker); x and y were aborted.
    started = time.monotonic()
    assert offsets(read_range(settings, OffsetRange(topic, 0, 0, 6), idle_timeout_s=PATIENCE_S)) == [0, 1]
    assert time.monotonic() - started < PATIENCE_S / 2, (
        "the end of the range was waited for until nothing came any more"
    )


def test_offsets_that_compaction_removed_are_no_error(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "200",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "300",
        }
    )
    end = 0

    def left_after_compaction() -> list[int]:
        nonlocal end
        produce(settings, topic, [b"v"] * 5, first_ms=int(time.time() * 1000))
        end += 5
        time.sleep(0.5)
        found = offsets(read_range(settings, OffsetRange(topic, 0, 0, end)))
        return found if found[0] > 0 else []

    left = wait_for("the broker to compact", left_after_compaction)
    assert left[-1] == end - 1
    assert offsets(read_range(settings, OffsetRange(topic, 0, 0, left[0]))) == []


def test_offsets_removed_between_pin_and_read_are_an_expired_range(
    settings: KafkaSettings, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(config=KEPT)
    produce(settings, topic, [b"v"] * 100)
    delete_before(admin, topic, 40)
    with pytest.raises(ExpiredRangeError, match=r"offsets 10 to 39 .* oldest offset is 40"):
        list(read_range(settings, OffsetRange(topic, 0, 10, 100)))
    assert offsets(read_range(settings, OffsetRange(topic, 0, 40, 100))) == list(range(40, 100))


def test_offsets_removed_while_they_are_read_are_an_expired_range(
    settings: KafkaSettings, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(config=KEPT)
    count = 400  # of 256 KiB: 100 MiB, more than the client fetches ahead
    produce(settings, topic, [bytes(256 * 1024)] * count)
    batches = read_range(settings, OffsetRange(topic, 0, 0, count))
    assert next(batches)[0].offset == 0
    delete_before(admin, topic, count - 1)
    with pytest.raises(ExpiredRangeError, match=f"oldest offset is {count - 1}"):
        list(batches)


def test_a_log_that_ends_before_the_range_is_a_changed_topic(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(config=KEPT)
    produce(settings, topic, [b"v"] * 10)
    with pytest.raises(TopicChangedError, match="ends at offset 10, before the end 20"):
        list(read_range(settings, OffsetRange(topic, 0, 0, 20), idle_timeout_s=2))
    with pytest.raises(TopicChangedError, match="ends at offset 10, before the end 20"):
        list(read_range(settings, OffsetRange(topic, 0, 15, 20), idle_timeout_s=2))


def test_a_topic_that_is_gone_is_a_changed_topic(settings: KafkaSettings) -> None:
    with pytest.raises(TopicChangedError, match="no-such-topic"):
        list(read_range(settings, OffsetRange("no-such-topic", 0, 0, 1), idle_timeout_s=5))


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_away_is_transient() -> None:
    away = KafkaSettings.from_connection(Connection(conn_id="kafka_away", conn_type="kafka", host="127.0.0.1", port=9))
    with pytest.raises(TransientError, match=r"kafka_away.*Connection refused"):
        list(read_range(away, OffsetRange("t", 0, 0, 1), idle_timeout_s=2))


class RestartableKafka(Kafka):
    """A broker that starts again at the ports that it had."""

    def _properties(self) -> str:
        known = self.folder / "server.properties"
        return known.read_text() if known.exists() else super()._properties()


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_stops_in_mid_read_is_transient_and_one_that_comes_back_is_read_on(tmp_path: Path) -> None:
    with RestartableKafka(tmp_path / "kafka") as own:
        settings = KafkaSettings.from_connection(
            Connection(conn_id="kafka_own", conn_type="kafka", extra={"bootstrap.servers": own.bootstrap})
        )
        own_admin = AdminClient({"bootstrap.servers": own.bootstrap})
        create_topic(own_admin, "t", 1, KEPT)
        produce(settings, "t", [bytes(256 * 1024)] * 400)
        hasty = read_range(settings, OffsetRange("t", 0, 0, 400), idle_timeout_s=9)
        patient = read_range(settings, OffsetRange("t", 0, 0, 400), idle_timeout_s=PATIENCE_S)
        next(hasty)
        first = next(patient)
        own.stop()
        with pytest.raises(TransientError, match=r"t\[0\]@\d+.*kafka_own"):
            list(hasty)
        own.start()
        assert [message.offset for message in first] + offsets(patient) == list(range(400))


def test_wrong_credentials_are_an_authentication_error_that_waits_for_no_timeout(kafka: Kafka) -> None:
    extra = {
        "bootstrap.servers": kafka.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": kafka.sasl_mechanism,
    }
    wrong = Connection(
        conn_id="kafka_wrong", conn_type="kafka", login=kafka.sasl_username, password="not-the-password", extra=extra
    )
    started = time.monotonic()
    with pytest.raises(AuthenticationError, match="kafka_wrong") as caught:
        list(read_range(KafkaSettings.from_connection(wrong), OffsetRange("t", 0, 0, 1), idle_timeout_s=PATIENCE_S))
    assert time.monotonic() - started < PATIENCE_S / 2
    assert "not-the-password" not in str(caught.value)


def test_right_credentials_are_used(kafka: Kafka, settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(config=KEPT)
    produce(settings, topic, [b"v"])
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": kafka.sasl_mechanism}
    host, port = kafka.sasl_bootstrap.split(":")
    right = Connection(
        conn_id="kafka_sasl",
        conn_type="kafka",
        host=host,
        port=int(port),
        login=kafka.sasl_username,
        password=kafka.sasl_password,
        extra=extra,
    )
    assert offsets(read_range(KafkaSettings.from_connection(right), OffsetRange(topic, 0, 0, 1))) == [0]


@pytest.mark.usefixtures("impatient")
def test_tls_against_a_plain_listener_says_that_the_handshake_failed(kafka: Kafka) -> None:
    extra = {"bootstrap.servers": kafka.bootstrap, "security.protocol": "SSL"}
    tls = KafkaSettings.from_connection(Connection(conn_id="kafka_tls", conn_type="kafka", extra=extra))
    with pytest.raises(TransientError, match=r"kafka_tls.*SSL_HANDSHAKE"):
        list(read_range(tls, OffsetRange("t", 0, 0, 1), idle_timeout_s=1))
