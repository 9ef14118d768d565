"""Rows from below a floor that may be still to come, by what is recorded of windows; with real runs: ``integration/stages``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.floor_guards import still_to_come
from ticdc_replay.state.coverage import Coverage, CoveredTable
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ReplayContext]:
    pipeline = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://b:9092/topic?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "k"},
        "artifacts": tmp_path.as_uri(),
        "tables": ["shop.*"],
        "schedule": {"start": "2026-03-01T06:00:00Z"},
        "targets": [{"name": "warehouse", "type": "postgres", "connection": "w"}],
    }
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(pipeline))
    with ReplayContext(load_pipeline(file), Connections()) as made:
        yield made


def loaded(
    context: ReplayContext, start: int, end: int, *, run: str = "a", input_hash: str = "i", **members: Any
) -> None:
    """A run of a window is held by the mirrors, for all tables or as *members* of its coverage say."""
    window, run_hash = Window(start, end), f"{run} {start} {end}"
    told: dict[str, Any] = {"selection": ("shop.*",), "quality": "complete", "tables": (), **members}
    told = {"target": "warehouse", "place": context.places["warehouse"], **told}
    context.state.runs.record(
        Run(
            pipeline="shop",
            run_hash=run_hash,
            window=window,
            input_hash=input_hash,
            status="done",
            started_at_ms=1,
        )
    )
    context.state.coverage.record(
        [
            Coverage(
                pipeline="shop",
                window=window,
                run_hash=run_hash,
                grade="proven",
                loaded_at_ms=1,
                **told,
            )
        ]
    )


def pinned(context: ReplayContext, start: int, end: int, input_hash: str) -> None:
    window = Window(start, end)
    before = context.state.manifests.of_window("shop", window)
    context.state.manifests.register(WindowManifest("shop", window, input_hash, "name", 1), replaces=before)


def coming(context: ReplayContext, table: TableName, start: int, end: int) -> list[str]:
    return still_to_come(context, "warehouse", table, Window(start, end), ())


def not_loaded(*windows: Window) -> list[str]:
    return [f"{window} is not loaded: load it" for window in windows]


def test_gaps_count_from_the_first_window_of_the_table_on(context: ReplayContext) -> None:
    loaded(context, 10, 20, tables=(CoveredTable(ORDERS, "complete"),))
    loaded(context, 30, 40, selection=("shop.it*",))
    loaded(context, 50, 60)
    assert coming(context, ORDERS, 0, 70) == not_loaded(Window(20, 50), Window(60, 70))
    assert coming(context, ORDERS, 25, 55) == not_loaded(Window(25, 50))
    assert coming(context, ORDERS, 25, 30) == not_loaded(Window(25, 30))
    assert coming(context, ORDERS, 65, 70) == not_loaded(Window(65, 70))
    assert coming(context, ORDERS, 12, 18) == coming(context, ORDERS, 0, 10) == []
    assert coming(context, ITEMS, 0, 55) == not_loaded(Window(20, 30), Window(40, 50))


def test_a_mirror_that_was_forgotten_or_left_out_holds_nothing(context: ReplayContext) -> None:
    loaded(context, 10, 20)
    for start, quality in ((20, "forgotten"), (30, "left_out")):
        loaded(context, start, start + 10, tables=(CoveredTable(ORDERS, quality),))
    assert coming(context, ORDERS, 0, 40) == not_loaded(Window(20, 40))
    assert coming(context, ITEMS, 0, 40) == []


def test_a_window_that_was_pinned_anew_counts_once_a_run_of_that_is_loaded(context: ReplayContext) -> None:
    pinned(context, 10, 20, "i")
    loaded(context, 10, 20)
    assert coming(context, ORDERS, 0, 20) == []
    pinned(context, 10, 20, "j")
    (line,) = coming(context, ORDERS, 0, 20)
    assert line.startswith(f"{Window(10, 20)} was pinned again")
    loaded(context, 10, 20, run="b", input_hash="j", selection=("shop.items",))
    assert (coming(context, ORDERS, 0, 20), coming(context, ITEMS, 0, 20)) == ([line], [])
    loaded(context, 10, 20, run="c", input_hash="j")
    assert coming(context, ORDERS, 0, 20) == []
    assert coming(context, ORDERS, 20, 30) == not_loaded(Window(20, 30))


def test_windows_that_a_target_has_where_it_was_before_are_not_loaded(context: ReplayContext) -> None:
    loaded(context, 10, 20, place="postgres w, schema old")
    loaded(context, 20, 30)
    (line,) = coming(context, ORDERS, 0, 25)
    assert line.startswith(f"{Window(10, 20)} is not loaded here, but elsewhere")
    assert "(postgres w, schema old)" in line
    loaded(context, 10, 20)
    assert coming(context, ORDERS, 0, 25) == []


def test_windows_count_that_the_mirror_got_while_its_target_had_another_name(context: ReplayContext) -> None:
    loaded(context, 10, 20, target="mirror")
    loaded(context, 30, 40)
    assert coming(context, ORDERS, 0, 40) == not_loaded(Window(20, 30))
    loaded(context, 10, 20, target="mirror", run="b", place="postgres other", tables=())
    assert coming(context, ORDERS, 0, 40) == not_loaded(Window(20, 30))
