"""How far a changefeed has come, as its topic shows it."""

from collections.abc import Callable

import pytest

from tests.integration.snapshot.feed import Feed, at
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import WatermarkStatus, watermark_status

pytestmark = pytest.mark.integration

RequestFor = Callable[..., PinRequest]
MakeFeed = Callable[..., Feed]


def states(status: WatermarkStatus) -> list[str]:
    return [each.state for each in status.partitions]


def test_a_window_is_reached_once_every_partition_carried_a_resolved_ts_at_its_end(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(2)
    feed.seconds(50, 120)
    feed.resolved(120, 0)
    feed.flush()
    status = watermark_status(request_for(feed.topic), settings)
    assert states(status) == ["reached", "lagging"]
    assert not status.reached
    assert status.resolved_ts == at(119)
    assert f"{feed.topic}[1] at {at(119)}" in str(status)
    feed.resolved(120, 1)
    feed.flush()
    status = watermark_status(request_for(feed.topic), settings)
    assert status.reached
    assert status.resolved_ts == at(120)


def test_the_last_resolved_ts_is_found_behind_many_rows(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed()
    feed.resolved(121, 0, recorded=60)
    for number in range(9_000):
        feed.row(0, 61 + number / 1000)
    feed.flush()
    status = watermark_status(request_for(feed.topic), settings)
    assert status.reached
    assert status.partitions[0].resolved_ts == at(121)


def test_a_partition_that_never_held_a_message_is_not_waited_for(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(3, writes_to=2)
    feed.seconds(50, 121)
    status = watermark_status(request_for(feed.topic), settings)
    assert states(status) == ["reached", "reached", "unused"]
    assert status.reached


def test_an_empty_partition_that_partition_num_counts_is_waited_for(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(3, writes_to=2)
    feed.seconds(50, 121)
    status = watermark_status(request_for(feed.topic, partition_num=3), settings)
    assert states(status) == ["reached", "reached", "lagging"]
    assert not status.reached


def test_old_messages_in_a_partition_beyond_partition_num_are_not_waited_for(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(2)
    feed.row(1, 10)
    feed.seconds(50, 121, 0)
    assert states(watermark_status(request_for(feed.topic, partition_num=1), settings)) == ["reached", "unused"]
    # Without partition-num it may be a partition whose next resolved-ts is on its way.
    assert states(watermark_status(request_for(feed.topic), settings)) == ["reached", "lagging"]


def test_messages_without_any_resolved_ts_are_told_from_lagging(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(2)
    feed.seconds(50, 121, 0)
    feed.row(1, 70)
    feed.flush()
    assert states(watermark_status(request_for(feed.topic), settings)) == ["reached", "silent"]


def test_a_topic_without_messages_has_not_reached_anything(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    status = watermark_status(request_for(make_feed(2).topic), settings)
    assert states(status) == ["unused", "unused"]
    assert not status.reached
    assert status.resolved_ts is None


def test_a_missing_topic_is_said_by_name(settings: KafkaSettings, request_for: RequestFor) -> None:
    with pytest.raises(TopicChangedError, match="no-such-topic does not exist"):
        watermark_status(request_for("no-such-topic"), settings)
