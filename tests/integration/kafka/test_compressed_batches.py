"""Batches that Kafka's own compression shrinks to nearly nothing: what a worker takes to read them."""

import json
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.conftest import MakeTopic
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

_MIB = 1 << 20
_READ = """
import json, sys
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TicdcReplayError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings

topic, end, extra = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
settings = KafkaSettings.from_connection(Connection("kafka", "kafka", extra=extra))
sizes, failed = [], ""
try:
    for batch in read_range(settings, OffsetRange(topic, 0, 0, end), idle_timeout_s=200):
        sizes += [len(message.value) for message in batch]
except TicdcReplayError as error:
    failed = f"{type(error).__name__}: {error}"
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"messages": len(sizes), "bytes": sum(sizes), "failed": failed, "peak": peak * 1024}))
"""


def publish(kafka: Kafka, topic: str, codec: str, messages: int) -> None:
    """One batch of *messages* of 1 MiB of zeros each."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec,
            "linger.ms": 60_000,
            "batch.size": 1 << 30,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    failed: list[Any] = []
    for _ in range(messages):
        producer.produce(topic, bytes(_MIB), partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None] * messages


def read(kafka: Kafka, topic: str, messages: int, **extra: Any) -> dict[str, Any]:
    """What a process that reads *messages* of *topic* says, its largest resident set among it."""
    options = json.dumps({"bootstrap.servers": kafka.bootstrap, **extra})
    process = subprocess.run(
        [sys.executable, "-c", _READ, topic, str(messages), options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    found: dict[str, Any] = json.loads(process.stdout)
    return found


def test_a_batch_of_zstd_is_decompressed_up_to_a_limit_and_the_error_says_which(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    publish(kafka, topic, "zstd", 200)
    refused = read(kafka, topic, 200)
    assert refused["messages"] == 0
    assert "PermanentError" in refused["failed"]
    assert "receive.message.max.bytes" in refused["failed"]
    assert refused["peak"] < 300 * _MIB
    allowed = read(kafka, topic, 200, **{"receive.message.max.bytes": 512 * _MIB})
    assert (allowed["failed"], allowed["messages"], allowed["bytes"]) == ("", 200, 200 * _MIB)


def test_a_batch_of_gzip_takes_what_it_holds_and_no_copy_of_it(kafka: Kafka, make_topic: MakeTopic) -> None:
    # The client decompresses it whole, whatever its settings: the topic's max.message.bytes is what bounds it.
    topic = make_topic()
    publish(kafka, topic, "gzip", 200)
    found = read(kafka, topic, 200)
    assert (found["failed"], found["messages"], found["bytes"]) == ("", 200, 200 * _MIB)
    assert found["peak"] < 450 * _MIB
