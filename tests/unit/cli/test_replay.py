"""``ticdc-replay snapshot`` and ``run`` refuse what can't be right before they ask any server."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ticdc_replay.cli.main import app

PIPELINE = """\
name: shop
changefeed: {{sink_uri: "kafka://broker:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: shop_kafka}}
artifacts: {artifacts}
tables: [shop.*, hr.people]
schedule: {{start: "2026-03-02T00:00:00Z"}}
targets:
  - {{name: warehouse, type: postgres, connection: shop_kafka}}
  - {{name: lake, type: parquet, uri: "file:///lake"}}
"""


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(artifacts=(tmp_path / "artifacts").as_uri()))
    nobody = '{"conn_type": "postgres", "host": "192.0.2.1"}'
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", nobody)

    def invoke(verb: str, *options: str, start: str = "2026-03-02T00:00:00Z", end: str = "2026-03-02T01:00:00Z"):
        arguments = [verb, str(tmp_path / "shop.yaml"), "--from", start, "--to", end, *options]
        return CliRunner().invoke(app, arguments)

    return invoke


@pytest.mark.parametrize("verb", ["snapshot", "run"])
@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("yesterday", "2026-03-02T01:00:00Z", "'yesterday' is neither a TSO nor an ISO 8601 time"),
        (
            "2026-03-02T01:00:00Z",
            "2026-03-02T00:00:00Z",
            "the start 464627485900800000 (2026-03-02T01:00:00.000Z) is not before the end 464626542182400000 (2026-03-02T00",
        ),
    ],
)
def test_a_window_that_is_none(invoke, verb, start, end, message):
    result = invoke(verb, start=start, end=end)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_target_that_the_pipeline_does_not_have(invoke):
    result = invoke("run", "--target", "lake", "--target", "lage")
    assert result.exit_code == 2
    assert "--target: lage is not in the pipeline; its targets: warehouse, lake" in result.stderr


def test_tables_that_are_not_within_the_pipeline_s(invoke):
    result = invoke("run", "--table", "shop.orders", "--table", "hr.*", "--table", "*.orders")
    assert result.exit_code == 2
    assert "tables hr.*, *.orders, which no pattern of pipeline shop covers: shop.*, hr.people" in result.stderr


def test_tables_that_are_no_pattern(invoke):
    result = invoke("run", "--table", "orders")
    assert result.exit_code == 2
    assert "'orders' is not of the form schema.table" in result.stderr
