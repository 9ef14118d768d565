"""Pinning a window of a changefeed that sends no resolved-ts: time ends it, and nothing proves it."""

import re
import time
from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, at
from tests.support import debezium_messages
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import UnprovenWindowError, WatermarkNotReachedError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.state import StateStore
from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

Pin = Callable[[PinRequest], Manifest]


@pytest.fixture
def pin(settings: KafkaSettings, artifacts: ObjectStore, state: StateStore) -> Pin:
    return lambda request: pin_window(request, settings, artifacts, None, state).manifest


@pytest.fixture
def topic(kafka: Kafka, make_topic: Callable[..., str]) -> str:
    """Debezium's rows of the seconds 40 to 199, one a second in each of two partitions, of three; recorded 300 ms later."""
    name = make_topic(3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for second in range(40, 200):
        message = debezium_messages.row(after={"id": second}, fields=(debezium_messages.ID,), ts=at(second))
        for partition in (0, 1):
            recorded = START_MS + second * 1000 + 300
            producer.produce(name, message.value, message.key, partition=partition, timestamp=recorded)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def request_of(topic: str, request_for: Callable[..., PinRequest]) -> Callable[..., PinRequest]:
    """The window of the seconds 60 to 119; a skew of 5 s, a pre-roll of 10 s and 30 s for the lag."""

    def make(window: Window | None = None, unproven: str = "allow") -> PinRequest:
        changefeed = Changefeed(protocol="debezium", topic=topic, timezone="UTC")
        return msgspec.structs.replace(
            request_for(topic, window, unproven=unproven), changefeed=changefeed, ends_by_time=True
        )

    return make


def test_the_range_ends_where_the_allowance_for_lag_is_over(
    topic: str, request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    manifest = pin(request_of())
    # Seconds 45 (skew and pre-roll before 60) to 154 (30 of lag and 5 of skew behind 120) are read.
    assert manifest.ranges() == manifest.live_ranges() == [OffsetRange(topic, part, 5, 115) for part in (0, 1)]
    assert manifest.grade == "unproven"
    (reason,) = manifest.reasons
    assert "(protocol=debezium) sends no resolved-ts" in reason
    assert [part.start_margin_ms for part in manifest.topics[0].partitions] == [300, 300, None]


def test_such_windows_stop_the_run_unless_the_policy_allows_them(
    request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    with pytest.raises(UnprovenWindowError, match=r"window\.lag_seconds"):
        pin(request_of(unproven="stop"))


def test_a_window_from_before_the_first_row_tells_both_doubts(request_of: Callable[..., PinRequest], pin: Pin) -> None:
    reasons = pin(request_of(Window(at(30), at(60)))).reasons
    assert ["first sign in Kafka" in reason for reason in reasons] == [False, True]


def test_what_the_topic_holds_is_all_where_nothing_came_since(
    topic: str, request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    assert pin(request_of(Window(at(180), at(260)))).ranges() == [OffsetRange(topic, part, 125, 160) for part in (0, 1)]


def test_a_release_that_sends_none_against_its_options_has_to_be_declared(
    settings: KafkaSettings, request_of: Callable[..., PinRequest]
) -> None:
    status = watermark_status(msgspec.structs.replace(request_of(), ends_by_time=False), settings)
    assert not status.reached
    assert "changefeed.sends_resolved_ts" in str(status)


def test_a_window_is_waited_for_until_the_allowance_is_over(
    settings: KafkaSettings, request_of: Callable[..., PinRequest], pin: Pin
) -> None:
    assert watermark_status(request_of(), settings).reached
    now_ms = int(time.time() * 1000)
    window = Window(tso.from_ms(now_ms - 60_000), tso.from_ms(now_ms - 10_000))
    # An allowance that a slow machine can't outlive.
    recent = msgspec.structs.replace(request_of(window), lag_ms=3_600_000)
    status = watermark_status(recent, settings)
    assert not status.reached
    until = tso.to_datetime(tso.from_ms(now_ms + 3_595_000)).isoformat(" ", "seconds")
    assert f"rows are waited for until {until}" in str(status)
    with pytest.raises(WatermarkNotReachedError, match=re.escape(until)):
        pin(recent)
