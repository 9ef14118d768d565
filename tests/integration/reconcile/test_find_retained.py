"""Which topics of a real broker hold messages of a changefeed, and what of them is retained."""

import uuid
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.reconcile.look.coverage import Retained, find_retained
from ticdc_replay.reconcile.look.owners import Owner

pytestmark = pytest.mark.integration


class Topics:
    """Topics whose names begin alike, each with 10 messages in its first partition."""

    def __init__(self, kafka: Kafka, make_topic: Callable[..., str]) -> None:
        self._kafka, self._make_topic = kafka, make_topic
        self.prefix = f"feed-{uuid.uuid4().hex[:8]}"

    def make(self, suffix: str = "") -> str:
        name = self._make_topic(2, {"retention.ms": "-1"}, f"{self.prefix}{suffix}")
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap})
        for _ in range(10):
            producer.produce(name, b"v", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        return name

    def changefeed(self, rules: str = "") -> Changefeed:
        uri = f"kafka://broker:9092/{self.prefix}?protocol=open-protocol"
        return from_sink_uri(uri, f"[sink]\ndispatchers = [{rules}]", "UTC", "here").changefeed

    def retained(
        self,
        changefeed: Changefeed,
        retired: dict[str, int | None] | None = None,
        before: tuple[str, ...] = (),
        earlier: Iterable[Owner] = (),
    ) -> Retained:
        connection = Connection("kafka", "kafka", extra={"bootstrap.servers": self._kafka.bootstrap})
        settings = KafkaSettings.from_connection(connection)
        with Offsets(settings) as offsets:
            return find_retained(changefeed, retired or {}, before, offsets, settings, earlier=earlier)

    def delete_before(self, topic: str, offset: int) -> None:
        partition = TopicPartition(topic, 0, offset)
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap})
        admin.delete_records([partition])[partition].result(PATIENCE_S)

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(PATIENCE_S)


@pytest.fixture
def topics(kafka: Kafka, make_topic: Callable[..., str]) -> Topics:
    return Topics(kafka, make_topic)


def test_what_retention_has_left_of_the_default_topic_counts(topics: Topics) -> None:
    name = topics.make()
    topics.make("_other")
    topics.delete_before(name, 4)
    retained = topics.retained(topics.changefeed())
    assert retained.ranges == (OffsetRange(name, 0, 4, 10),)
    cut, empty = retained.partitions
    assert (cut.low, cut.high, empty.low, empty.high) == (4, 10, 0, 0)
    assert cut.first_ms is not None
    assert empty.first_ms is None
    assert set(retained.topic_ids) == {name}


def test_every_topic_that_a_rule_may_have_sent_a_table_to_counts(topics: Topics) -> None:
    names = [topics.make(suffix) for suffix in ("", "_shop_orders", "_shop_items", "_fixed")]
    rules = (
        f'{{matcher = ["shop.*"], topic = "{topics.prefix}_{{schema}}_{{table}}"}}, '
        f'{{matcher = ["log.*"], topic = "{topics.prefix}_fixed"}}'
    )
    assert set(topics.retained(topics.changefeed(rules)).topic_ids) == set(names)


def test_retired_topics_count_but_not_those_of_other_programs(topics: Topics) -> None:
    names = {suffix: topics.make(suffix) for suffix in ("", "_shop_old", "_shop_foreign", "_elsewhere")}
    rules = f'{{matcher = ["shop.*"], topic = "{topics.prefix}_{{schema}}_{{table}}"}}'
    retired: dict[str, int | None] = {names["_shop_old"]: 5, names["_shop_foreign"]: None, names["_elsewhere"]: 5}
    found = topics.retained(topics.changefeed(rules), retired).topic_ids
    assert set(found) == {names[""], names["_shop_old"], names["_elsewhere"]}


def test_a_topic_that_an_earlier_run_read_counts_as_long_as_it_exists(topics: Topics) -> None:
    default, before = topics.make(), topics.make("_before")
    assert set(topics.retained(topics.changefeed(), before=(before,)).topic_ids) == {default, before}
    topics.delete(before)
    found = topics.retained(topics.changefeed(), before=(before,))
    assert set(found.topic_ids) == {default}
    assert found.gone == (before,)


def test_a_topic_that_was_read_is_no_other_programs(topics: Topics) -> None:
    default, before = topics.make(), topics.make("_before")
    retired: dict[str, int | None] = {before: None}
    assert set(topics.retained(topics.changefeed(), retired).topic_ids) == {default}
    assert set(topics.retained(topics.changefeed(), retired, (before,)).topic_ids) == {default, before}
    topics.delete(before)
    assert topics.retained(topics.changefeed(), retired, (before,)).gone == (before,)


def test_topics_and_rules_that_an_earlier_survey_saw_count_though_the_rule_was_edited(topics: Topics) -> None:
    default, since, seen = topics.make(), topics.make("_shop_orders"), topics.make("_seen")
    before = topics.changefeed(f'{{matcher = ["shop.*"], topic = "{topics.prefix}_{{schema}}_{{table}}"}}')
    owner = Owner(uri="s3://s", pipeline="shop", cluster_id="c", topic_ids={seen: "id"}, dispatch=before.dispatch)
    assert set(topics.retained(topics.changefeed()).topic_ids) == {default}
    assert set(topics.retained(topics.changefeed(), earlier=[owner]).topic_ids) == {default, since, seen}


def test_without_its_default_topic_nothing_is_known_of_a_changefeed(topics: Topics) -> None:
    with pytest.raises(TopicChangedError, match="does not exist"):
        topics.retained(topics.changefeed())
