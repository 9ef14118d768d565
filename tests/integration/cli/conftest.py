"""A pipeline of a changefeed in a real topic, and the command that is given it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import Feed, at
from ticdc_replay.cli.main import app
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext

CLAIM_CHECK = """
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
claim-check-storage-uri = "{uri}"
"""


class Shop:
    """The pipeline *shop* in *folder*: its topic is written by ``feed``, its claim-check store is the folder ``claims``."""

    window = Window(at(60), at(120))

    def __init__(
        self, folder: Path, feed: Feed, bootstrap: str, contexts: list[ReplayContext], **sections: Any
    ) -> None:
        self.feed = feed
        self.folder = folder
        self.claims = folder / "claims"
        self.claims.mkdir(exist_ok=True)
        self._contexts = contexts
        self._kafka = Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap})
        self.file = folder / "shop.yaml"
        connections = folder / "connections.yaml"
        connections.touch(mode=0o600)
        connections.write_text(yaml.safe_dump({"kafka": {"conn_type": "kafka", "extra": self._kafka.extra}}))
        pipeline: dict[str, Any] = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{feed.topic}?protocol=open-protocol",
                "timezone": "UTC",
                "config": CLAIM_CHECK.format(uri=self.claims.as_uri()),
            },
            "connections": {"kafka": "kafka"},
            "artifacts": (folder / "artifacts").as_uri(),
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "window": {"pre_roll_seconds": 10, "clock_skew_seconds": 5, "claim_check_margin_hours": 24 * 365 * 10},
            "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        }
        for name, values in sections.items():
            pipeline[name] = {**pipeline.get(name, {}), **values} if isinstance(values, dict) else values
        self.file.write_text(yaml.safe_dump(pipeline))

    def context(self) -> ReplayContext:
        """The stages' context, closed after the test."""
        self._contexts.append(ReplayContext(load_pipeline(self.file), Connections({"kafka": self._kafka})))
        return self._contexts[-1]

    def command(self, verb: str, *options: str, window: Window | None = None) -> Result:
        """What ``ticdc-replay`` answers to *verb*, for *window* if one is given."""
        moments = [] if window is None else ["--from", str(window.from_ts), "--to", str(window.to_ts)]
        arguments = [verb, str(self.file), *moments, *options, "--connections", str(self.folder / "connections.yaml")]
        return CliRunner().invoke(app, arguments)


@pytest.fixture
def make_shop(
    kafka: Kafka, producer: Producer, make_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[..., Shop]]:
    """Makes the pipeline over a new topic of so many partitions; other sections of its file by name."""
    contexts: list[ReplayContext] = []

    def make(partitions: int = 1, **sections: Any) -> Shop:
        topic = make_topic(partitions, {"retention.ms": "-1"})
        return Shop(tmp_path, Feed(producer, topic, partitions), kafka.bootstrap, contexts, **sections)

    yield make
    for context in contexts:
        context.__exit__()
