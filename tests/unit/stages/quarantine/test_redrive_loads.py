"""Into which targets a re-drive is loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.store_stages.test_replayable import WINDOW, accept, pin, recorded, redriven
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.redrive import write_redrive_loads
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.quarantine import Redrive

PIPELINE = """
name: shop
changefeed: {{sink_uri: "kafka://b:9092/topic?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {folder}
schedule: {{start: "2026-03-01T00:00:00Z"}}
targets:
  - {{name: first, type: parquet, uri: "file:///first"}}
  - {{name: second, type: parquet, uri: "file:///second"}}
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[ReplayContext]:
    """A run that set the messages 4 and 7 aside; both targets hold it."""
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(folder=(tmp_path / "artifacts").as_uri()))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections()) as context:
        input_hash = pin(context).removeprefix("manifests/").removesuffix(".json")
        recorded(context, "run", 4, 7, input_hash=input_hash)
        for target, place in context.places.items():
            made = Coverage(
                pipeline="shop", target=target, place=place, window=WINDOW, run_hash="run", selection=("*.*",), grade="proven",
                quality="quarantine", tables=(), loaded_at_ms=1,
            )  # fmt: skip
            context.state.coverage.record([made])
        yield context


def loaded(context: ReplayContext, run: str, target: str) -> None:
    context.state.quarantine.record_redrive(Redrive("shop", "run", run, target, 1, context.place_of(target)))


def targets_of(context: ReplayContext, run: str, *targets: str) -> list[str]:
    return [loads.target for loads in write_redrive_loads(context, run, targets)]


def test_a_re_drive_goes_where_one_of_its_entries_is_open(held: ReplayContext) -> None:
    redriven(held, "one", 4)
    assert targets_of(held, "one") == ["first", "second"]
    loaded(held, "one", "first")
    redriven(held, "two", 4)
    assert targets_of(held, "two") == ["second"], "7 is open in both, but is not what it was for"
    assert targets_of(held, "two", "first") == ["first"], "as it was asked for"
    redriven(held, "three", 4, 7)
    assert targets_of(held, "three") == ["first", "second"]


def test_what_is_open_nowhere_any_more_goes_where_the_window_is(held: ReplayContext) -> None:
    redriven(held, "one", 4)
    accept(held, 4)
    assert targets_of(held, "one") == ["first", "second"]
