"""Which manifest a window has, also where several runs pin it at once."""

from concurrent.futures import ThreadPoolExecutor

from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.manifests import WindowManifest

NOON = Window(1000, 2000)


def pinned(input_hash: str, at_ms: int = 1, window: Window = NOON, pipeline: str = "shop") -> WindowManifest:
    return WindowManifest(pipeline, window, input_hash, f"manifests/{input_hash}.json", at_ms)


def test_a_window_keeps_the_manifest_that_came_first(state: StateStore) -> None:
    assert state.manifests.of_window("shop", NOON) is None
    assert state.manifests.register(pinned("a")) == pinned("a")
    assert state.manifests.register(pinned("b", at_ms=2)) == pinned("a")
    assert state.manifests.of_window("shop", NOON) == pinned("a")


def test_windows_and_pipelines_are_told_apart(state: StateStore) -> None:
    later, other = pinned("b", window=Window(2000, 3000)), pinned("c", pipeline="other")
    for manifest in (pinned("a"), later, other):
        assert state.manifests.register(manifest) == manifest
    assert state.manifests.of_window("shop", NOON) == pinned("a")
    assert state.manifests.of_window("other", NOON) == other


def test_pinning_anew_replaces_the_manifest_only_if_nobody_else_has(state: StateStore) -> None:
    state.manifests.register(pinned("a", at_ms=1))
    assert state.manifests.register(pinned("b", at_ms=2), replaces=pinned("a", at_ms=1)) == pinned("b", at_ms=2)
    assert state.manifests.register(pinned("c", at_ms=3), replaces=pinned("a", at_ms=1)) == pinned("b", at_ms=2)
    assert state.manifests.register(pinned("a", at_ms=4), replaces=pinned("b", at_ms=2)) == pinned("a", at_ms=4)


def test_the_last_manifest_is_the_one_pinned_last_of_any_window(state: StateStore) -> None:
    assert state.manifests.last("shop") is None
    state.manifests.register(pinned("a", at_ms=5))
    state.manifests.register(pinned("b", at_ms=4, window=Window(2000, 3000)))
    assert state.manifests.last("shop") == pinned("a", at_ms=5)


def test_of_runs_that_register_at_the_same_time_all_see_one_winner(url: str) -> None:
    open_state(url).close()

    def register(number: int) -> WindowManifest:
        store = open_state(url)
        try:
            return store.manifests.register(pinned(f"hash{number}", at_ms=number))
        finally:
            store.close()

    with ThreadPoolExecutor(8) as pool:
        winners = set(pool.map(register, range(16)))
    assert len(winners) == 1
