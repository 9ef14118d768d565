"""Fixtures: a pipeline in files, with or without a claim-check store. A folder of tests takes them in its ``conftest.py``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.stages.context import ReplayContext

CLAIMS = "file:///claims"
CONFIG = f"""
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
claim-check-storage-uri = "{CLAIMS}"
"""


@pytest.fixture
def make_context(tmp_path: Path) -> Iterator[Callable[[str], ReplayContext]]:
    made = []

    def make(config: str) -> ReplayContext:
        file = tmp_path / "shop.yaml"
        pipeline = {
            "name": "shop",
            "changefeed": {
                "sink_uri": "kafka://b:9092/t?protocol=open-protocol",
                "timezone": "UTC",
                "config": config,
            },
            "connections": {"kafka": "k"},
            "artifacts": (tmp_path / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
        }
        file.write_text(yaml.safe_dump(pipeline))
        made.append(ReplayContext(load_pipeline(file), Connections({})))
        return made[-1]

    yield make
    for context in made:
        context.state.close()


@pytest.fixture
def context(make_context: Callable[[str], ReplayContext]) -> ReplayContext:
    return make_context(CONFIG)
