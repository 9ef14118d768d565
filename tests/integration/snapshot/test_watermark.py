"""How far a changefeed has come, as its topic shows it."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.integration.snapshot.feed import START_MS, Feed, at
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import WatermarkStatus, watermark_status

pytestmark = pytest.mark.integration

RequestFor = Callable[..., PinRequest]
MakeFeed = Callable[..., Feed]


RESOLVED_CANAL = (
    "canal-json",
    '{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":"MS","ts":"MS","sql":"",'
    '"sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"watermarkTs":"TS"}}',
)
RESOLVED_SIMPLE = ("simple", '{"version":1,"type":"WATERMARK","commitTs":"TS","buildTs":"MS"}')
RESOLVED_DEBEZIUM = (
    "debezium",
    '{"payload":{"source":{"version":"2.4.0.Final","connector":"TiCDC","name":"c","ts_ms":"MS","snapshot":"false","db":"",'
    '"table":"","server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":0,"query":null,"commit_ts":"TS",'
    '"cluster_id":"c"},"op":"m","ts_ms":"MS","transaction":null}}',
)


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
    feed.resolved(121, 0)
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


def test_a_resolved_ts_later_than_its_record_does_not_end_the_wait_and_is_named(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor
) -> None:
    feed = make_feed(2)
    feed.seconds(50, 100)
    feed.resolved(7300, 1, recorded=100)
    feed.flush()
    request = request_for(feed.topic)
    status = watermark_status(request, settings)
    assert states(status) == ["lagging", "lagging"]
    assert status.resolved_ts == at(99)
    assert f"{feed.topic}[1]@100: resolved-ts {tso.describe(at(7300))} is 7200000 ms later than the time of" in str(
        status
    )
    assert "window.clock_skew_seconds to 14400 or more" in str(status)
    enough = watermark_status(request_for(feed.topic, clock_skew_ms=14_400_000), settings)
    assert states(enough) == ["lagging", "reached"]
    feed.seconds(100, 121)
    assert watermark_status(request, settings).reached, "those of TiCDC count as before"


@pytest.mark.parametrize("rows", [0, 1_000], ids=["alone", "between rows"])
def test_where_clocks_differ_by_more_than_was_allowed_the_wait_says_so(
    settings: KafkaSettings, make_feed: MakeFeed, request_for: RequestFor, rows: int
) -> None:
    feed = make_feed()
    for second in range(60, 180):
        feed.resolved(second, recorded=second - 8)
    for number in range(rows):
        feed.row(0, 180 + number / 1000, recorded=172)
    feed.flush()
    status = watermark_status(request_for(feed.topic), settings)
    assert states(status) == ["lagging"], "not silent"
    assert f"{feed.topic}[0]@119: resolved-ts {tso.describe(at(179))} is 8000 ms later" in str(status)
    assert "does this release send them?" not in str(status)
    assert "window.clock_skew_seconds to 16 or more" in str(status)
    assert watermark_status(request_for(feed.topic, clock_skew_ms=16_000), settings).reached


@pytest.mark.parametrize("resolved", [RESOLVED_CANAL, RESOLVED_SIMPLE, RESOLVED_DEBEZIUM], ids=lambda each: each[0])
def test_a_resolved_ts_later_than_its_record_counts_in_no_protocol(
    settings: KafkaSettings, producer: Producer, make_feed: MakeFeed, request_for: RequestFor, resolved: tuple[str, str]
) -> None:
    protocol, text = resolved
    topic = make_feed().topic
    changefeed = Changefeed(protocol=protocol, topic=topic, timezone="UTC", enable_tidb_extension=True)
    request = request_for(topic, changefeed=changefeed)
    for second, recorded in ((99, 100), (7300, 100)):
        content = text.replace('"TS"', str(at(second))).replace('"MS"', str(tso.physical_ms(at(second))))
        producer.produce(topic, content, b"", partition=0, timestamp=START_MS + recorded * 1000)
    assert producer.flush(PATIENCE_S) == 0
    status = watermark_status(request, settings)
    assert (states(status), status.resolved_ts) == (["lagging"], at(99))
    assert f"{topic}[0]@1: resolved-ts" in str(status)
