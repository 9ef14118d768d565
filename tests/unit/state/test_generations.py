"""Which run of a window is newer, on SQLite and on PostgreSQL."""

import time

from tests.support.processes import at_once
from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run

NOON, LATER = Window(1000, 2000), Window(2000, 3000)


def pinned(input_hash: str, at_ms: int = 1) -> WindowManifest:
    return WindowManifest("shop", NOON, input_hash, f"manifests/{input_hash}.json", at_ms)


def test_a_run_keeps_its_generation_and_one_that_comes_later_is_newer(state: StateStore) -> None:
    first = state.generations.of_run("shop", NOON, "run a", "input")
    second = state.generations.of_run("shop", NOON, "run b", "input")
    assert first is not None
    assert second is not None
    assert first < second
    assert state.generations.of_run("shop", NOON, "run a", "input") == first
    assert state.generations.of_run("shop", NOON, "run b", "input") == second


def test_generations_grow_over_all_windows_of_a_pipeline(state: StateStore) -> None:
    given = [state.generations.of_run("shop", window, "run", "input") for window in (NOON, LATER, Window(0, 1000))]
    assert len(set(given)) == 3
    assert given == sorted(given, key=lambda number: number or 0)


def test_a_run_from_before_there_were_generations_is_older_than_those_since(state: StateStore) -> None:
    for name, started_at_ms in (("first", 1_000), ("second", 2_000)):
        state.runs.record(
            Run(
                pipeline="shop",
                run_hash=name,
                window=NOON,
                input_hash="input",
                status="done",
                started_at_ms=started_at_ms,
            )
        )
    newest = state.generations.of_run("shop", NOON, "run", "input")
    second = state.generations.of_run("shop", NOON, "second", "input")
    first = state.generations.of_run("shop", NOON, "first", "input")
    assert None not in (first, second, newest)
    assert 0 < (first or 0) < (second or 0) < (newest or 0)
    assert state.generations.of_run("shop", NOON, "first", "input") == first
    assert state.generations.advance("shop", NOON, "first") > (newest or 0)


def test_runs_that_decode_the_same_rows_of_different_tables_have_one_generation(state: StateStore) -> None:
    some = state.generations.of_run("shop", NOON, "some tables", "input", "rows")
    assert state.generations.of_run("shop", NOON, "all tables", "input", "rows") == some
    assert state.generations.of_run("shop", LATER, "all tables", "input", "rows") != some


def test_a_run_of_an_input_that_the_window_does_not_have_any_more_gets_none(state: StateStore) -> None:
    state.manifests.register(pinned("old"))
    assert state.generations.of_run("shop", NOON, "run a", "old") is not None
    state.manifests.register(pinned("new", 2), replaces=pinned("old"))
    assert state.generations.of_run("shop", NOON, "run a", "old") is None
    assert state.generations.of_run("shop", NOON, "run c", "old") is None
    assert state.generations.of_run("shop", NOON, "run b", "new") is not None


def test_a_reload_is_newer_than_all_and_brings_runs_of_the_same_rows_along(state: StateStore) -> None:
    state.generations.of_run("shop", NOON, "some tables", "input", "rows")
    state.generations.of_run("shop", NOON, "all tables", "input", "rows")
    newer = state.generations.of_run("shop", NOON, "later library", "input")
    given = state.generations.advance("shop", NOON, "some tables")
    assert newer is not None
    assert given > newer
    assert state.generations.of_run("shop", NOON, "all tables", "input", "rows") == given
    assert state.generations.of_run("shop", NOON, "later library", "input") == newer
    assert state.generations.advance("shop", NOON, "some tables") > given


def test_a_state_store_that_is_made_again_gives_larger_generations(state: StateStore) -> None:
    before = int(time.time() * 1000) - 10_000  # the clocks of both databases are this machine's
    given = state.generations.of_run("shop", NOON, "run", "input")
    assert given is not None
    assert given > before


def _give(number: int, url: str) -> int:
    store = open_state(url)
    given = store.generations.of_run("shop", NOON, f"run {number}", "input")
    store.close()
    assert given is not None
    return given


def test_processes_that_ask_at_the_same_time_get_different_generations(url: str) -> None:
    open_state(url).close()
    given = at_once(4, _give, url)
    assert len(set(given)) == 4
