"""Pinning many partitions: what is found, and how little is read for it."""

import time
from collections.abc import Callable, Iterable

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, Feed, at
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain import tso
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka import beginnings
from ticdc_replay.kafka.beginnings import Take
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot import resolved
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.state import StateStore
from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

Pin = Callable[[PinRequest], Manifest]
MakeFeed = Callable[..., Feed]
RequestFor = Callable[..., PinRequest]


@pytest.fixture
def pin(settings: KafkaSettings, artifacts: ObjectStore, state: StateStore) -> Pin:
    return lambda request: pin_window(request, settings, artifacts, None, state).manifest


class Searched:
    """Counts what the search for resolved-ts is given."""

    def __init__(self) -> None:
        self.messages: dict[Partition, int] = {}

    def read(self, settings: KafkaSettings, ranges: Iterable[OffsetRange], take: Take) -> None:
        def counting(partition: Partition, messages: list[RawMessage]) -> bool:
            self.messages[partition] = self.messages.get(partition, 0) + len(messages)
            return take(partition, messages)

        beginnings.read_beginnings(settings, ranges, counting)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Searched:
    counter = Searched()
    monkeypatch.setattr(resolved, "read_beginnings", counter.read)
    return counter


def test_a_hundred_partitions_in_topics_of_rules_are_pinned_as_one(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, settings: KafkaSettings
) -> None:
    main = make_feed(20)
    tables = ["orders", "items", "people", "places"]
    feeds = [main, *(make_feed(20, name=f"{main.topic}_shop_{table}") for table in tables)]
    for each in feeds:
        each.seconds(48, 123)
    rule = DispatchRule(TableFilter(("shop.*",)), topic=TopicExpression(f"{main.topic}_{{schema}}_{{table}}"))
    request = request_for(main.topic)
    request = msgspec.structs.replace(
        request, changefeed=msgspec.structs.replace(request.changefeed, dispatch=Dispatch((rule,)))
    )
    status = watermark_status(request, settings)
    assert status.reached, str(status)
    assert [each.resolved_ts for each in status.partitions] == [at(122)] * 100
    manifest = pin(request)
    assert manifest.grade == "proven"
    assert {topic.topic for topic in manifest.topics} == {each.topic for each in feeds}
    pins = [part for topic in manifest.topics for part in topic.partitions]
    # Two messages a second from second 48 on: all of the pre-roll is there, and the 146th is the resolved-ts of second 120.
    assert {(part.range.start, part.range.end, part.resolved_ts) for part in pins} == {(0, 146, at(120))}
    assert len(pins) == 100


def test_with_hours_of_lag_the_end_is_found_without_reading_them(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, searched: Searched
) -> None:
    lag = 4 * 3_600
    feed = make_feed(3)
    for second in range(-4_000, 300):
        feed.resolved(second, recorded=second + lag)
    feed.flush()
    manifest = pin(request_for(feed.topic))
    assert [(part.range.end, part.resolved_ts) for part in manifest.topics[0].partitions] == [(4_121, at(120))] * 3
    # The first partition is asked where the changefeed stood at some moments, of the others one fetch is read.
    assert all(searched.messages[Partition(feed.topic, number)] < 1_500 for number in (1, 2))


def test_the_first_resolved_ts_is_found_where_partitions_are_not_in_step(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(3)
    feed.seconds(40, 118)
    for second in range(118, 140):  # of the second partition all comes half a minute later, of the third at once
        for partition, late in ((0, 10), (1, 40), (2, 0.1)):
            feed.resolved(second, partition, recorded=second + late)
    feed.flush()
    parts = pin(request_for(feed.topic)).topics[0].partitions
    assert [(part.range.end, part.resolved_ts) for part in parts] == [(159, at(120))] * 3


def test_a_resolved_ts_that_stepped_back_behind_the_end_takes_nothing_away(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(40, 122)
    for second in range(90, 119):  # TiCDC restarted, and is not where it was yet
        feed.row(0, second, recorded=second + 60)
        feed.resolved(second, recorded=second + 60.5)
    feed.flush()
    (part,) = pin(request_for(feed.topic)).topics[0].partitions
    assert (part.range.end, part.resolved_ts) == (162, at(120))


def test_all_that_the_partitions_hold_is_read_where_windows_are_pinned_to_the_head(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(2)
    feed.seconds(40, 130)
    feed.row(1, 100, recorded=131)  # sent again
    feed.flush()
    first = pin(request_for(feed.topic))
    head = pin(request_for(feed.topic, Window(at(61), at(120)), pin="head"))
    assert [part.range.end for part in first.topics[0].partitions] == [162, 162]
    assert [part.range.end for part in head.topics[0].partitions] == [180, 181]
    for manifest in (first, head):
        assert manifest.grade == "proven"
        assert [part.resolved_ts for part in manifest.topics[0].partitions] == [at(120)] * 2
        assert [part.evidence for part in manifest.topics[0].partitions] == [161] * 2
    assert head.input_hash != msgspec.structs.replace(head, pin="first").input_hash


def test_where_brokers_give_records_their_time_the_range_is_found_by_it(
    producer: Producer, make_topic: Callable[..., str], request_for: RequestFor, pin: Pin, settings: KafkaSettings
) -> None:
    topic = make_topic(2, {"message.timestamp.type": "LogAppendTime"})
    feed = Feed(producer, topic, 2)
    # Changes of the last three minutes come now, with the time of their arrival.
    now = time.time() - START_MS / 1000
    seconds = [now - 180 + second for second in range(180)]
    for second in seconds:
        feed.row(0, second)
        feed.resolved(second)
    feed.flush()
    window = Window(at(seconds[60]), at(seconds[120]))
    manifest = pin(request_for(topic, window))
    assert manifest.grade == "proven"
    for part, per_second in zip(manifest.topics[0].partitions, (2, 1), strict=True):
        assert (part.range.start, part.range.end) == (0, 121 * per_second)
        assert part.start_margin_ms is not None
        assert part.start_margin_ms > 0


def test_a_range_may_end_behind_the_last_record_of_a_partition(
    kafka: Kafka,
    producer: Producer,
    make_topic: Callable[..., str],
    request_for: RequestFor,
    pin: Pin,
    settings: KafkaSettings,
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    feed = Feed(producer, topic, 1)
    transactional = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    transactional.init_transactions(PATIENCE_S)
    feed.seconds(40, 121)
    transactional.begin_transaction()
    transactional.produce(topic, b"?", partition=0, timestamp=START_MS + 121_000)
    transactional.flush()
    transactional.abort_transaction()
    partition, consumer = TopicPartition(topic, 0), Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    # The broker answers before the marker stands in the log.
    wait_for("the end of the transaction", lambda: consumer.get_watermark_offsets(partition, PATIENCE_S)[1] > 162)
    consumer.close()
    (part,) = pin(request_for(topic, pin="head")).ranges()
    assert (part.start, part.end) == (10, 164)  # the aborted record and its marker are no messages
    read = [message.offset for messages in read_range(settings, part) for message in messages]
    assert read == list(range(10, 162))
    assert tso.physical_ms(at(120)) - START_MS == 120_000
