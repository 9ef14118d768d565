"""What a pipeline's file asks for when a window is pinned."""

from pathlib import Path

import pytest

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, UnprovenWindowError, WindowBoundsError
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.watermark import pin_request

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


CANAL = PIPELINE.replace("protocol=open-protocol", "protocol=canal-json")
POSTGRES = "{name: mirror, type: postgres, connection: db}"


def without_proof(targets: str, unproven: str = "allow") -> str:
    """A pipeline whose rows carry no commitTs."""
    text = CANAL.format(start_ts=f"target_ts: {END}")
    text = text.replace('{name: lake, type: parquet, uri: "file:///lake"}', targets)
    return text + f"policies: {{unproven: {unproven}}}\n"


def test_windows_by_offset_are_what_was_recorded_in_their_time(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(without_proof(POSTGRES))
    minute = Window(END + tso.from_ms(1), END + tso.from_ms(60_001))
    with ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context:
        request = pin_request(context, minute, SchemaHistory())
    # Rows that committed up to target-ts may be recorded after it, so the window may lie behind.
    assert request.by_offset
    assert request.ends_by_time
    first_ms = tso.physical_ms(minute.from_ts)
    assert (request.read_from_ms, request.needed_from_ms, request.end_ms) == (first_ms, first_ms, first_ms + 60_000)
    assert request.over_ms > request.end_ms


@pytest.mark.parametrize("option", ["", "&required-acks=1&enable-tidb-extension=true"])
def test_where_no_window_can_be_proven_the_policy_stops_before_kafka_is_asked(tmp_path: Path, option: str) -> None:
    text = without_proof(POSTGRES, "stop").replace("protocol=canal-json", f"protocol=canal-json{option}")
    (tmp_path / "shop.yaml").write_text(text)
    with (
        ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context,
        pytest.raises(
            UnprovenWindowError, match=r"no window of this changefeed can be proven.*policies\.unproven: allow"
        ),
    ):
        pin_request(context, Window(1, 2), SchemaHistory())


def test_windows_by_offset_are_for_mirrors_only(tmp_path: Path) -> None:
    both = POSTGRES + '\n  - {name: lake, type: parquet, uri: "file:///lake"}'
    (tmp_path / "shop.yaml").write_text(without_proof(both))
    with (
        ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({})) as context,
        pytest.raises(ConfigError, match=r"targets: lake can't be loaded: no row has commitTs"),
    ):
        pin_request(context, Window(1, 2), SchemaHistory())
