"""Pinning windows by offset: what was recorded in their time, whole and without overlap from one to the next."""

from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, at
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain.errors import ExpiredRangeError, UnprovenWindowError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state import StateStore
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.runs import Run
from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

Pin = Callable[..., Manifest]
Record = Callable[..., None]

FIRST, SECOND, THIRD = Window(at(0), at(60)), Window(at(60), at(120)), Window(at(120), at(180))


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(2, {"retention.ms": "-1"})


@pytest.fixture
def record(kafka: Kafka, topic: str) -> Record:
    """Records a message of each of the *seconds*, which nobody looks into: windows by offset are found by time."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})

    def produce(*seconds: int, partition: int = 0) -> None:
        for second in seconds:
            producer.produce(topic, b"{}", b"", partition=partition, timestamp=START_MS + second * 1000)
        assert producer.flush(PATIENCE_S) == 0

    return produce


@pytest.fixture
def pin(
    topic: str,
    request_for: Callable[..., PinRequest],
    settings: KafkaSettings,
    artifacts: ObjectStore,
    state: StateStore,
) -> Pin:
    def make(window: Window, *, repin: bool = False, unproven: str = "allow") -> Manifest:
        changefeed = Changefeed(protocol="canal-json", topic=topic, timezone="UTC")
        request = request_for(topic, window, unproven=unproven, ends_by_time=True, by_offset=True)
        request = msgspec.structs.replace(request, changefeed=changefeed)
        return pin_window(request, settings, artifacts, None, state, repin=repin).manifest

    return make


def test_a_window_is_what_was_recorded_from_its_start_to_its_end(topic: str, record: Record, pin: Pin) -> None:
    record(0, 59, 60, 61, 119, 120)
    record(30, 90, partition=1)
    found = pin(SECOND)
    assert found.grade == "offset"
    assert found.ranges() == [OffsetRange(topic, 0, 2, 5), OffsetRange(topic, 1, 1, 2)]
    (reason,) = found.reasons
    assert "protocol=canal-json with these options sends rows without commitTs" in reason


def test_such_windows_stop_the_run_unless_the_policy_allows_them(record: Record, pin: Pin) -> None:
    record(0, 70, 130)
    with pytest.raises(UnprovenWindowError, match="without commitTs"):
        pin(SECOND, unproven="stop")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_windows_in_any_order_share_no_message_and_miss_none(
    topic: str, record: Record, pin: Pin, order: tuple[int, ...]
) -> None:
    record(-5, 10, 55, 60, 58, 70, 119, 120, 121, 100, 200)  # times step back where a producer sends again
    windows = (FIRST, SECOND, THIRD)
    for at_ in order:
        pin(windows[at_])
    ranges = [pin(window).ranges()[0] for window in windows]
    assert ranges == [OffsetRange(topic, 0, 1, 3), OffsetRange(topic, 0, 3, 7), OffsetRange(topic, 0, 7, 10)]


def test_what_comes_after_its_window_was_pinned_goes_to_the_next_one(topic: str, record: Record, pin: Pin) -> None:
    record(10, 59)
    assert pin(FIRST).ranges() == [OffsetRange(topic, 0, 0, 2)]
    record(58, 61, 130, 131)
    record(40, partition=1)
    assert pin(SECOND).ranges() == [OffsetRange(topic, 0, 2, 4), OffsetRange(topic, 1, 0, 1)]
    assert pin(THIRD).ranges() == [OffsetRange(topic, 0, 4, 6)]
    # The first one anew now has them too: to apply a message twice changes nothing.
    assert pin(FIRST, repin=True).ranges() == [OffsetRange(topic, 0, 0, 3), OffsetRange(topic, 1, 0, 1)]


def test_a_window_goes_on_where_the_loaded_run_ended_though_the_window_before_was_pinned_anew(
    topic: str, record: Record, pin: Pin, state: StateStore
) -> None:
    record(10, 59)
    loaded(state, pin(FIRST), "lake", 1)
    record(58)
    anew = pin(FIRST, repin=True)
    record(61, 130, 131)
    assert pin(SECOND).ranges() == [OffsetRange(topic, 0, 2, 4)]
    loaded(state, anew, "lake", 2)
    assert pin(SECOND, repin=True).ranges() == [OffsetRange(topic, 0, 3, 4)]
    loaded(state, anew, "warehouse", 2)
    assert pin(SECOND, repin=True).ranges() == [OffsetRange(topic, 0, 3, 4)]


def loaded(state: StateStore, manifest: Manifest, target: str, generation: int) -> None:
    """A run of *manifest* is in *target*."""
    run_hash = f"run of {manifest.input_hash}"
    of = {"pipeline": manifest.pipeline, "run_hash": run_hash, "window": manifest.window}
    state.runs.record(Run(**of, input_hash=manifest.input_hash, status="published", started_at_ms=1))
    state.coverage.record(
        [
            Coverage(
                **of,
                target=target,
                place=f"place of {target}",
                selection=("*.*",),
                grade="offset",
                quality="complete",
                tables=(),
                loaded_at_ms=1,
                generation=generation,
            )
        ]
    )


def test_a_window_that_kafka_has_partly_forgotten_is_refused(
    topic: str, record: Record, pin: Pin, admin: AdminClient
) -> None:
    record(10, 65, 70, 130)
    delete_before(admin, topic, 2)
    with pytest.raises(ExpiredRangeError, match="the oldest time that can be replayed"):
        pin(SECOND)
    assert pin(THIRD).ranges() == [OffsetRange(topic, 0, 3, 4)]


def test_messages_between_two_windows_that_are_gone_are_missed(
    topic: str, record: Record, pin: Pin, admin: AdminClient
) -> None:
    record(10)
    pin(FIRST)
    record(50, 51, 59, 61, 130)
    delete_before(admin, topic, 2)
    with pytest.raises(ExpiredRangeError, match="ended at offset 1, and Kafka holds what came from 2 on"):
        pin(SECOND)


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(PATIENCE_S)
