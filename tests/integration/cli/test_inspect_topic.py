"""``ticdc-replay inspect`` on a real topic."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from demo.embedded_stack.kafka import Kafka
from tests.support.open_protocol import columns, message, resolved, row
from tests.support.waiting import PATIENCE_S
from ticdc_replay.cli.main import app

pytestmark = pytest.mark.integration
KEPT = {"retention.ms": "-1"}


@pytest.fixture
def topic(kafka: Kafka, make_topic: Callable[..., str]) -> str:
    """Ten messages in partition 1 of a topic with two."""
    name = make_topic(2, KEPT)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for number in range(10):
        raw = (
            message([row(number + 1, new=columns(number, f"value {number}"))], 0)
            if number < 9
            else message([resolved(99)], 0)
        )
        producer.produce(name, raw.value, raw.key, 1, timestamp=1_700_000_000_000 + number)
    assert producer.flush(PATIENCE_S) == 0
    return name


def inspect(*options: object) -> Result:
    return CliRunner().invoke(app, ["inspect", *map(str, options)])


def offsets(result: Result) -> list[str]:
    return [line.split()[0].rpartition("@")[2] for line in result.stdout.splitlines() if "]@" in line]


def test_a_whole_partition_is_shown(kafka: Kafka, topic: str) -> None:
    result = inspect("--bootstrap", kafka.bootstrap, "--topic", topic, "--partition", 1)
    assert result.exit_code == 0, result.stderr
    assert offsets(result) == [str(number) for number in range(10)]
    assert "v = value 3" in result.stdout
    assert "watermark" in result.stdout


def test_a_range_is_shown(kafka: Kafka, topic: str) -> None:
    result = inspect("--bootstrap", kafka.bootstrap, "--topic", topic, "--partition", 1, "--from", 3, "--to", 6)
    assert offsets(result) == ["3", "4", "5"]


def test_an_empty_partition_shows_nothing_and_says_so(kafka: Kafka, topic: str) -> None:
    result = inspect("--bootstrap", kafka.bootstrap, "--topic", topic, "--partition", 0)
    assert (result.exit_code, offsets(result)) == (0, [])
    assert "partition 0 holds no message in this range" in result.stderr


@pytest.mark.parametrize(("topic_suffix", "partition"), [("-not-there", 0), ("", 7)])
def test_what_does_not_exist_is_an_error(kafka: Kafka, topic: str, topic_suffix: str, partition: int) -> None:
    result = inspect("--bootstrap", kafka.bootstrap, "--topic", topic + topic_suffix, "--partition", partition)
    assert result.exit_code == 2
    assert f"{topic}{topic_suffix}[{partition}] does not exist" in result.stderr


def test_a_pipeline_tells_topic_and_connection(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        f"""
name: inspected
changefeed: {{sink_uri: "kafka://elsewhere:9092/{topic}?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: brokers}}
artifacts: file:///tmp/unused
schedule: {{start: "2026-01-01T00:00:00Z"}}
targets: [{{name: lake, type: parquet, uri: "file:///tmp/unused"}}]
"""
    )
    connections = tmp_path / "connections.yaml"
    connections.touch(mode=0o600)
    connections.write_text(f'brokers: {{conn_type: kafka, extra: {{"bootstrap.servers": "{kafka.bootstrap}"}}}}')
    options = ("--pipeline", tmp_path / "pipeline.yaml", "--connections", connections)
    result = inspect(*options, "--partition", 1, "--limit", 2)
    assert result.exit_code == 0, result.stderr
    assert offsets(result) == ["0", "1"]
