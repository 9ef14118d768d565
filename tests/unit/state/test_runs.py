"""What is kept of runs."""

from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore
from ticdc_replay.state.runs import Run

NOON = Window(1000, 2000)


def test_a_run_is_recorded_again_as_it_goes_on(state: StateStore) -> None:
    run = Run(
        pipeline="shop",
        run_hash="r",
        window=NOON,
        input_hash="a",
        status="running",
        started_at_ms=1,
        counts={"rows": 1},
    )
    done = Run(
        pipeline="shop", run_hash="r", window=NOON, input_hash="a", status="done", started_at_ms=1, finished_at_ms=9,
        index="runs/r/index.json", counts={"rows": 2**40},
    )  # fmt: skip
    state.runs.record(run)
    assert state.runs.get("shop", "r") == run
    state.runs.record(done)
    assert state.runs.get("shop", "r") == done
    assert state.runs.all("shop") == [done]
    assert state.runs.get("shop", "other") is None
