"""Whether Kafka still has what a changelog of which files are gone was decoded from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.waiting import PATIENCE_S
from ticdc_replay.decode.plan.lost_files import require_range
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin

if TYPE_CHECKING:
    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = pytest.mark.integration


def test_a_log_that_ends_before_the_range_can_not_be_decoded_again(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for _ in range(10):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    settings = KafkaSettings.from_connection(Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}))
    with Offsets(settings) as offsets:
        topic_id = offsets.topics([topic])[topic].topic_id

    def pinned(end: int) -> Manifest:
        pin = PartitionPin(OffsetRange(topic, 0, 0, end), live=True, resolved_ts=None, start_margin_ms=None)
        return Manifest(
            pipeline="shop",
            changefeed_hash="f" * 64,
            window=Window(1, 2),
            grade="proven",
            topics=(TopicPin(topic, topic_id, (pin,)),),
            pinned_at_ms=0,
        )

    require_range(pinned(10), settings, "a file is gone")
    with pytest.raises(
        TopicChangedError, match=r"a file is gone\. .* ends at offset 10, before the end 15 of the range"
    ):
        require_range(pinned(15), settings, "a file is gone")
