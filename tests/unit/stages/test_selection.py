"""Which tables a run can be for."""

from pathlib import Path

import pytest

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.stages.window.jobs import write_decode_job

PIPELINE = """\
name: shop
changefeed: {{sink_uri: "kafka://broker:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: {artifacts}
tables: {tables}
schedule: {{start: "2026-03-02T00:00:00Z"}}
targets:
  - {{name: lake, type: parquet, uri: "file:///lake"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.yaml"


def pipeline(file: Path, tables: str) -> Pipeline:
    file.write_text(PIPELINE.format(artifacts=(file.parent / "artifacts").as_uri(), tables=tables))
    return load_pipeline(file).pipeline


@pytest.mark.parametrize("wanted", [None, ()])
def test_without_a_choice_all_tables_of_the_pipeline_are_meant(file: Path, wanted: tuple[str, ...] | None) -> None:
    assert selected_tables(pipeline(file, '["shop.*", "hr.people"]'), wanted) == ("shop.*", "hr.people")


@pytest.mark.parametrize("tables", ['["*.*"]', '["shop.*"]', '["shop.o[rd]*", "shop.items_?"]'])
def test_the_pipeline_s_own_patterns_can_be_chosen(file: Path, tables: str) -> None:
    own = pipeline(file, tables).tables
    assert selected_tables(pipeline(file, tables), own) == own


def test_fewer_tables_can_be_chosen_in_any_letter_case(file: Path) -> None:
    assert selected_tables(pipeline(file, '["shop.*"]'), ["Shop.orders", "shop.item?"]) == ("Shop.orders", "shop.item?")


@pytest.mark.parametrize("outside", ["hr.people", "*.orders", "*.*", "shop2.orders"])
def test_other_tables_are_refused_since_their_topics_are_not_pinned(file: Path, outside: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selected_tables(pipeline(file, '["shop.*", "crm.a"]'), ["shop.orders", outside])
    assert f"tables {outside}, which no pattern of pipeline shop covers: shop.*, crm.a." in str(caught.value)


def test_no_job_is_written_for_other_tables(file: Path) -> None:
    pipeline(file, '["shop.*"]')
    with ReplayContext(load_pipeline(file), Connections({})) as context:
        manifest = Manifest(
            pipeline="shop",
            changefeed_hash=context.changefeed.hash,
            window=Window(1, 2),
            grade="proven",
            topics=(),
            pinned_at_ms=0,
        )
        pinned = PinnedManifest(manifest, "manifests/m.json", "file:///m.json", reused=False)
        assert write_decode_job(context, pinned, ("shop.orders",)).uri.startswith("file://")
        with pytest.raises(ConfigError, match=r"hr\.people"):
            write_decode_job(context, pinned, ("hr.people",))
