"""A changefeed that writes each table to a topic of its own."""

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.snapshot.feed import Feed, at
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain.errors import TopicChangedError, UnprovenWindowError, WatermarkNotReachedError
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.pin import PinnedManifest, pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.topics import verify_topics
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.state import StateStore
from ticdc_replay.state.sparse_index import Stretch
from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

Pin = Callable[..., PinnedManifest]


class Topics(NamedTuple):
    """The feeds of a changefeed's topics: the default one, and that of shop.orders. Beside them is a topic of others."""

    main: Feed
    orders: Feed


@pytest.fixture
def topics(make_feed: Callable[..., Feed]) -> Topics:
    main = make_feed()
    make_feed(name=f"{main.topic}_hr_people")
    return Topics(main=main, orders=make_feed(2, name=f"{main.topic}_shop_orders"))


@pytest.fixture
def request_of(request_for: Callable[..., PinRequest]) -> Callable[..., PinRequest]:
    def make(topics: Topics, *arguments: Window, **fields: object) -> PinRequest:
        request = request_for(topics.main.topic, *arguments, **fields)
        rule = DispatchRule(
            TableFilter(("shop.*",)), topic=TopicExpression(f"{topics.main.topic}_{{schema}}_{{table}}")
        )
        return msgspec.structs.replace(
            request, changefeed=msgspec.structs.replace(request.changefeed, dispatch=Dispatch((rule,)))
        )

    return make


@pytest.fixture
def pin(settings: KafkaSettings, artifacts: ObjectStore, state: StateStore) -> Pin:
    def pin(request: PinRequest, *, repin: bool = False) -> PinnedManifest:
        return pin_window(request, settings, artifacts, None, state, repin=repin)

    return pin


def states(request: PinRequest, settings: KafkaSettings) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in watermark_status(request, settings).partitions:
        found.setdefault(each.partition.topic, []).append(each.state)
    return found


def test_the_window_is_pinned_in_the_default_topic_and_in_those_of_the_rules(
    topics: Topics, request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 130)
    manifest = pin(request_of(topics)).manifest
    assert [topic.topic for topic in manifest.topics] == [topics.main.topic, topics.orders.topic]
    assert manifest.grade == "proven"
    assert [len(topic.partitions) for topic in manifest.topics] == [1, 2]


def test_topics_without_a_wanted_table_are_left_alone(
    topics: Topics, request_of: Callable[..., PinRequest], pin: Pin, make_feed: Callable[..., Feed]
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 130)
    make_feed(name=f"{topics.main.topic}_shop_items").seconds(0, 70)
    with pytest.raises(WatermarkNotReachedError, match="_shop_items"):
        pin(request_of(topics))
    manifest = pin(request_of(topics, tables=("shop.orders",))).manifest
    assert [topic.topic for topic in manifest.topics] == [topics.main.topic, topics.orders.topic]


def test_a_window_that_was_pinned_for_fewer_tables_is_pinned_anew(
    topics: Topics, request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 130)
    pin(request_of(topics, tables=("shop.orders", "hr.*")))
    assert pin(request_of(topics, tables=("shop.orders",))).reused
    with pytest.raises(
        TopicChangedError, match=r"pinned over the topics of shop\.orders, hr\.\*; .* shop\.\*: pin it again"
    ):
        pin(request_of(topics, tables=("shop.*",)))
    assert not pin(request_of(topics, tables=("shop.*",)), repin=True).reused


def test_each_topic_is_waited_for(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    expected = {topics.main.topic: ["reached"], topics.orders.topic: ["lagging", "lagging"]}
    assert states(request_of(topics), settings) == expected


def test_a_topic_that_was_made_just_now_is_waited_for_until_its_first_resolved_ts(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings, make_feed: Callable[..., Feed]
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 130)
    new = make_feed(name=f"{topics.main.topic}_shop_new")
    now = time.time() - 1_760_000_000
    new.row(0, 119, recorded=now)
    new.flush()
    assert states(request_of(topics), settings)[new.topic] == ["lagging"]
    new.resolved(121, recorded=now + 1)
    new.flush()
    assert states(request_of(topics), settings)[new.topic] == ["reached"]


@pytest.mark.parametrize("statement", ["DROP TABLE `shop`.`orders`", "RENAME TABLE `shop`.`orders` TO `shop`.`old`"])
def test_a_topic_whose_table_is_gone_is_not_waited_for(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings, pin: Pin, statement: str
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, statement)
    topics.orders.flush()
    assert states(request_of(topics), settings)[topics.orders.topic] == ["retired", "retired"]
    manifest = pin(request_of(topics)).manifest
    assert manifest.grade == "proven"
    assert [part.range.end for part in manifest.topics[1].partitions] == [201, 201], "up to the DDL"
    assert len(manifest.live_ranges()) == 3


def test_a_table_that_came_again_is_waited_for(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, "DROP TABLE `shop`.`orders`")
    topics.orders.ddl(101, "CREATE TABLE `shop`.`orders` (`id` INT PRIMARY KEY)")
    topics.orders.flush()
    assert states(request_of(topics), settings)[topics.orders.topic] == ["lagging", "lagging"]


@pytest.mark.parametrize(("old_name", "old_state"), [("`shop`.`old`", "retired"), ("`old`", "lagging")])
def test_a_table_that_was_renamed_back_is_waited_for(
    topics: Topics,
    request_of: Callable[..., PinRequest],
    settings: KafkaSettings,
    make_feed: Callable[..., Feed],
    old_name: str,
    old_state: str,
) -> None:
    """The RENAME back is sent to the topic of the other name. Its text may leave out the schema: then it ends no table there."""
    old = make_feed(name=f"{topics.main.topic}_shop_old")
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, "RENAME TABLE `shop`.`orders` TO `shop`.`old`")
    topics.orders.flush()
    old.seconds(101, 102)
    assert states(request_of(topics), settings)[topics.orders.topic] == ["retired", "retired"]
    old.ddl(102, f"RENAME TABLE {old_name} TO `Shop`.`Orders`")
    old.flush()
    expected = {topics.main.topic: ["reached"], topics.orders.topic: ["lagging", "lagging"], old.topic: [old_state]}
    assert states(request_of(topics), settings) == expected


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_topic_is_waited_for_where_ddl_after_the_drop_can_not_be_read(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings, elsewhere: bool
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, "DROP TABLE `shop`.`orders`")
    feed = topics.main if elsewhere else topics.orders
    feed.ddl(130, "CREATE TABLE `shop`.`orders` (`id` INT PRIMARY KEY)", readable=False)
    feed.flush()
    topics.orders.flush()
    assert states(request_of(topics), settings)[topics.orders.topic] == ["lagging", "lagging"]


def test_a_topic_that_goes_on_after_the_drop_is_waited_for(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, "DROP TABLE `shop`.`orders`")
    topics.orders.row(0, 99)  # a copy
    topics.orders.flush()
    assert states(request_of(topics), settings)[topics.orders.topic] == ["retired", "retired"]
    topics.orders.row(0, 101)
    topics.orders.flush()
    assert states(request_of(topics), settings)[topics.orders.topic] == ["lagging", "lagging"]


def test_a_topic_that_was_emptied_tells_nothing(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings, admin: AdminClient
) -> None:
    topics.main.seconds(0, 130)
    topics.orders.seconds(0, 100)
    topics.orders.ddl(100, "DROP TABLE `shop`.`orders`")
    topics.orders.flush()
    ends = [TopicPartition(topics.orders.topic, partition, OFFSET_END) for partition in topics.orders.partitions]
    for removed in admin.delete_records(ends).values():
        removed.result(PATIENCE_S)
    assert states(request_of(topics), settings)[topics.orders.topic] == ["lagging", "lagging"]


def test_a_declared_topic_is_read_as_long_as_something_came(
    topics: Topics, request_of: Callable[..., PinRequest], settings: KafkaSettings, pin: Pin
) -> None:
    topics.main.seconds(0, 200)
    topics.orders.seconds(0, 100)
    declared = {topics.orders.topic: at(99)}
    assert states(request_of(topics, retired_topics=declared), settings)[topics.orders.topic] == ["retired"] * 2
    manifest = pin(request_of(topics, retired_topics=declared)).manifest
    assert [topic.topic for topic in manifest.topics] == [topics.main.topic, topics.orders.topic]
    later = request_of(topics, Window(at(120), at(180)), retired_topics=declared)
    assert list(states(later, settings)) == [topics.main.topic]
    foreign = request_of(topics, retired_topics={topics.orders.topic: None})
    assert list(states(foreign, settings)) == [topics.main.topic]


def test_a_window_that_is_pinned_anew_after_a_topic_was_deleted_is_unproven_until_that_is_declared(
    topics: Topics,
    request_of: Callable[..., PinRequest],
    pin: Pin,
    settings: KafkaSettings,
    artifacts: ObjectStore,
    state: StateStore,
    admin: AdminClient,
) -> None:
    topics.main.seconds(0, 200)
    topics.orders.seconds(0, 200)
    first = pin(request_of(topics)).manifest
    identity = first.identities[topics.orders.topic]
    state.sparse_index.record("shop", [Stretch(identity, 0, 0, 10, None, None)])  # as its decode does
    name = topics.orders.topic
    admin.delete_topics([name])[name].result(PATIENCE_S)
    wait_for(f"topic {name} to go", lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics)
    with pytest.raises(UnprovenWindowError, match=f"topic {name} no longer exists"):
        pin(request_of(topics), repin=True)
    for _ in range(2):
        found = pin(request_of(topics, unproven="allow"), repin=True).manifest
        assert (found.grade, [topic.topic for topic in found.topics]) == ("unproven", [topics.main.topic])
    verify_topics(found, settings)
    later = request_of(topics, Window(at(120), at(180)))
    with pytest.raises(UnprovenWindowError, match="retired_topics"):
        pin(later)
    in_window = request_of(topics, unproven="allow", retired_topics={name: at(110)})
    assert pin(in_window, repin=True).manifest.grade == "unproven", "rows of the window came until second 110"
    assert pin(request_of(topics, retired_topics={name: at(59)}), repin=True).manifest.grade == "proven"


def test_a_topic_of_a_rule_that_was_deleted_and_made_again_leaves_the_window_unproven(
    topics: Topics,
    request_of: Callable[..., PinRequest],
    pin: Pin,
    make_feed: Callable[..., Feed],
    admin: AdminClient,
) -> None:
    topics.main.seconds(0, 200)
    topics.orders.seconds(0, 200)
    pin(request_of(topics))
    name = topics.orders.topic
    admin.delete_topics([name])[name].result(PATIENCE_S)
    wait_for(f"topic {name} to go", lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics)
    make_feed(name=name).seconds(100, 200)
    with pytest.raises(UnprovenWindowError, match=f"topic {name} was recreated"):
        pin(request_of(topics), repin=True)
    later = request_of(topics, Window(at(120), at(180)))
    assert pin(later, repin=True).manifest.grade == "proven"


def test_a_topic_that_was_deleted_is_missed(
    topics: Topics, request_of: Callable[..., PinRequest], pin: Pin, admin: AdminClient
) -> None:
    topics.main.seconds(0, 200)
    topics.orders.seconds(0, 200)
    pin(request_of(topics))
    name = topics.orders.topic
    admin.delete_topics([name])[name].result(PATIENCE_S)
    wait_for(f"topic {name} to go", lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics)
    later = Window(at(120), at(180))
    with pytest.raises(TopicChangedError, match="no longer exists"):
        pin(request_of(topics, later))
    manifest = pin(request_of(topics, later, retired_topics={name: at(110)})).manifest
    assert [topic.topic for topic in manifest.topics] == [topics.main.topic]


def test_a_name_of_avro_selects_the_topics_of_all_tables_that_have_it(
    make_feed: Callable[..., Feed], request_of: Callable[..., PinRequest], topics: Topics, pin: Pin
) -> None:
    main = topics.main.topic
    for table in ("a-b", "a_b", "a_c"):
        make_feed(name=f"{main}_shop_{table}")
    request = request_of(topics, tables=("shop.a_b",), ends_by_time=True, unproven="allow")
    avro = msgspec.structs.replace(request.changefeed, protocol="avro", enable_tidb_extension=True)
    manifest = pin(msgspec.structs.replace(request, changefeed=avro)).manifest
    assert [topic.topic for topic in manifest.topics] == [main, f"{main}_shop_a-b", f"{main}_shop_a_b"]
