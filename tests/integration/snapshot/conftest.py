"""A changefeed in a real topic, stores in folders, and the request that pins its second minute."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import Feed, at
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.storage import ObjectStore, open_store


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    extra = {"bootstrap.servers": kafka.bootstrap}
    return KafkaSettings.from_connection(Connection(conn_id="kafka_test", conn_type="kafka", extra=extra))


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def make_feed(producer: Producer, make_topic: Callable[..., str]) -> Callable[..., Feed]:
    """Makes a topic of so many partitions and a feed that writes to some or all of them."""

    def make(
        partitions: int = 1, *, writes_to: int | None = None, name: str | None = None, cleanup: str = "delete"
    ) -> Feed:
        topic = make_topic(partitions, {"retention.ms": "-1", "cleanup.policy": cleanup}, name)
        return Feed(producer, topic, partitions if writes_to is None else writes_to)

    return make


@pytest.fixture
def artifacts(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "artifacts").as_uri())


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    store = open_state(f"sqlite:///{tmp_path}/state.db")
    yield store
    store.close()


@pytest.fixture
def request_for() -> Callable[..., PinRequest]:
    """The request for the window from second 60 to second 120 of a topic; other fields, also of the changefeed, by name."""

    def make(topic: str, window: Window | None = None, **fields: Any) -> PinRequest:
        in_changefeed = {name: fields.pop(name) for name in ("partition_num", "required_acks") if name in fields}
        changefeed = Changefeed(protocol="open-protocol", topic=topic, timezone="UTC", **in_changefeed)
        request = PinRequest(
            pipeline="shop",
            changefeed=changefeed,
            window=window or Window(at(60), at(120)),
            tables=("*.*",),
            start_ts=None,
            pre_roll_ms=10_000,
            clock_skew_ms=5_000,
            lag_ms=30_000,
            claim_check_margin_ms=3_600_000,
            list_store=True,
            unproven="stop",
            decompressed_max_bytes=1 << 20,
            schemas=SchemaHistory(),
        )
        return msgspec.structs.replace(request, **fields)

    return make
