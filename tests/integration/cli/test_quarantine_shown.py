"""What ``quarantine show`` says of a message: once for the message, not for each of its events."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner

from demo.embedded_stack.kafka import Kafka
from tests.support.open_protocol import columns, message, resolved, row
from tests.support.replayed_windows import decode
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changelog.files.set_aside import read_entries
from ticdc_replay.cli.main import app
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.pin import pin

pytestmark = pytest.mark.integration

START_MS = 1_760_000_000_000


def at(second: int) -> int:
    return tso.from_ms(START_MS + second * 1000)


def test_a_message_of_many_bad_events_is_shown_once(
    kafka: Kafka, producer: Producer, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(1, {"retention.ms": "-1"})
    bad = [row(at(20), new={"id": columns(number)["id"]}, ccl="s3://b/x") for number in range(40)]
    for second, events in ((0, [resolved(at(0))]), (20, [row(at(20), new=columns(7)), *bad]), (40, [resolved(at(40))])):
        sent = message(events, 0)
        producer.produce(topic, sent.value, sent.key, partition=0, timestamp=START_MS + second * 1000 + 100)
    assert producer.flush(PATIENCE_S) == 0
    pipeline = tmp_path / "shop.yaml"
    declared = {
        "name": "shop",
        "changefeed": {"sink_uri": f"kafka://b:9092/{topic}?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (tmp_path / "artifacts").as_uri(),
        "tables": ["s.*"],
        "schedule": {"start": "2020-01-01T00:00:00Z"},
        "policies": {"quarantine": "continue", "claim_check_missing": "quarantine"},
        "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
    }
    pipeline.write_text(yaml.safe_dump(declared))
    extra = {"bootstrap.servers": kafka.bootstrap}
    connections = tmp_path / "connections.yaml"
    connections.write_text(yaml.safe_dump({"kafka": {"conn_type": "kafka", "extra": extra}}))
    connections.chmod(0o600)
    known = Connections({"kafka": Connection(conn_id="kafka", conn_type="kafka", extra=extra)})
    with ReplayContext(load_pipeline(pipeline), known) as context:
        entries = read_entries(context.artifacts, decode(context, pin(context, Window(at(10), at(40)))))
    assert len(entries) > 30

    def shown(place: str) -> str:
        done = CliRunner().invoke(app, ["quarantine", "show", str(pipeline), place, "--connections", str(connections)])
        assert done.exit_code == 0, done.output
        return done.output

    place = f"{topic}[0]@{entries[0].offset}"
    whole = shown(place)
    assert all(f"{entry.coordinates} in quarantine" in whole for entry in entries)
    assert whole.count("as this version reads it") == whole.count("\nvalue:") == 1
    one = shown(entries[3].coordinates)
    assert one.count(" in quarantine") == one.count("\nvalue:") == 1
