"""What a pipeline's file asks for when a window is pinned."""

from pathlib import Path

import pytest

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, WindowBoundsError
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.watermark import pin_request

PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol
  timezone: UTC
  {start_ts}
connections: {{kafka: kafka}}
artifacts: file:///replay
schedule: {{start: "2026-03-02T00:00:00Z"}}
targets:
  - {{name: lake, type: parquet, uri: "file:///lake"}}
"""


@pytest.mark.parametrize(("line", "start_ts"), [("", None), ("start_ts: 464626526453760000", 464626526453760000)])
def test_the_declared_start_of_the_changefeed_is_what_pinning_goes_by(
    tmp_path: Path, line: str, start_ts: int | None
) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(start_ts=line))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context:
        assert pin_request(context, Window(1, 2), SchemaHistory()).start_ts == start_ts


END = 464626526453760000


@pytest.mark.parametrize(("to_ts", "resolved_ts"), [(END - 5, END - 5), (END, END), (END + 1, END)])
def test_a_window_is_complete_with_the_changefeed_s_last_resolved_ts(
    tmp_path: Path, to_ts: int, resolved_ts: int
) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(start_ts=f"target_ts: {END}"))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context:
        assert pin_request(context, Window(1, to_ts), SchemaHistory()).resolved_ts == resolved_ts


def test_a_window_beyond_the_changefeed_s_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(start_ts=f"target_ts: {END}"))
    with (
        ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context,
        pytest.raises(WindowBoundsError, match=f"End the window at TSO {END + 1}"),
    ):
        pin_request(context, Window(1, END + 2), SchemaHistory())


@pytest.mark.parametrize(("protocol", "what"), [("canal-json", "rows"), ("avro&enable-tidb-extension=true", "deletes")])
def test_a_changefeed_whose_rows_have_no_commit_ts_is_refused_before_kafka_is_asked(
    tmp_path: Path, protocol: str, what: str
) -> None:
    text = PIPELINE.format(start_ts="").replace("protocol=open-protocol", f"protocol={protocol}")
    text = text.replace("connections: {kafka: kafka}", "connections: {kafka: kafka, schema_registry: registry}")
    if "avro" not in protocol:
        text = text.replace(", schema_registry: registry", "")
    (tmp_path / "shop.yaml").write_text(text)
    with (
        ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context,
        pytest.raises(ConfigError, match=rf"{what} carry no commitTs"),
    ):
        pin_request(context, Window(1, 2), SchemaHistory())
