"""Captures in real topics: what TiCDC sent, under names that no other test has."""

import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support.waiting import PATIENCE_S
from ticdc_replay.captures import Capture


class Topics:
    """The topics of one capture; *make_topic* takes the number of partitions, settings and a name."""

    def __init__(self, capture: Capture, make_topic: Callable[..., Any]) -> None:
        self._capture = capture
        self._prefix = f"capture-{uuid.uuid4().hex[:8]}"
        self.default = f"{self._prefix}-default"
        partitions = {self.default: 1}
        for message in capture.messages():
            name = self.name(message.topic)
            partitions[name] = max(partitions.get(name, 1), message.partition + 1)
        for name, count in partitions.items():
            make_topic(count, {"retention.ms": "-1"}, name)

    def name(self, captured: str) -> str:
        """The name of the topic that is called *captured* in the capture; a rule there begins with ``cap_``."""
        return f"{self._prefix}_{captured.removeprefix('cap_')}" if captured.startswith("cap_") else self.default

    def publish(self, bootstrap: str, framed: Callable[[bytes | None], bytes | None] = lambda part: part) -> None:
        """Send the capture's messages, keys and values as *framed* changes them."""
        producer = Producer({"bootstrap.servers": bootstrap})
        for message in self._capture.messages():
            place: dict[str, Any] = {"partition": message.partition, "timestamp": message.timestamp_ms}
            topic = self.name(message.topic)
            producer.produce(topic, framed(message.value), framed(message.key), on_delivery=_delivered, **place)
        assert producer.flush(PATIENCE_S) == 0


def _delivered(error: KafkaError | None, _message: Message) -> None:
    assert error is None
