"""What became of each version of a row, from what is recorded of loads and what the target has."""

from collections.abc import Mapping

import pytest

from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.trace.fates import FateName, Occurrence, RunLoad, TargetFacts, Version, fates
from ticdc_replay.targets.base import FoundRow

LOADED = {"a": RunLoad("loaded", 1), "b": RunLoad("loaded", 2), "c": RunLoad("loaded", 3)}
"""Windows in their order."""


def version(number: int, *runs: str, put: bool = True, order: VersionOrder = "commit_ts") -> Version:
    """A version in *runs*, each of which has a window of ten: a from 0, b from 10, c from 20."""
    windows = {run: Window("abc".index(run) * 10, "abc".index(run) * 10 + 10) for run in runs}
    occurrences = tuple(Occurrence(run, windows[run], place(number)) for run in runs)
    return Version(number, put, order, occurrences)


def place(number: int) -> EventPlace:
    return EventPlace("topic", 0, number, 0)


def judged(
    versions: list[Version],
    found: FoundRow,
    loads: Mapping[str, RunLoad] = LOADED,
    refused: Mapping[tuple[str, EventPlace], str] = {},
) -> list[FateName]:
    return [each.fate for each in fates(versions, TargetFacts("mirror", found, loads, refused))]


def mirror(version: int | None = None, *, deleted: bool = False, floor_ts: int = 0) -> FoundRow:
    return FoundRow(where="t", version=version, is_deleted=deleted, floor_ts=floor_ts)


HISTORY = [version(1, "a"), version(2, "a"), version(11, "b"), version(21, "c", put=False)]


def test_windows_in_order() -> None:
    assert judged(HISTORY, mirror(21, deleted=True)) == ["folded", "replaced", "replaced", "current"]


def test_a_window_that_was_loaded_after_a_newer_one() -> None:
    loads = LOADED | {"b": RunLoad("loaded", 9)}
    assert judged(HISTORY, mirror(21, deleted=True), loads) == ["folded", "replaced", "superseded", "current"]


def test_a_window_that_is_not_loaded() -> None:
    loads = {"a": RunLoad("loaded", 1), "c": RunLoad("left_out", 3)}
    assert judged(HISTORY, mirror(2), loads) == ["folded", "current", "not_loaded", "left_out"]


def test_a_row_that_was_set_aside_replaces_no_older_one() -> None:
    refused = {("b", place(11)): "column v: NUL"}
    assert judged(HISTORY[:3], mirror(2), refused=refused) == ["folded", "current", "set_aside"]


def test_below_the_floor_only_what_the_target_has_counts() -> None:
    assert judged(HISTORY, mirror(21, deleted=True, floor_ts=15)) == ["folded", "below_floor", "below_floor", "current"]
    assert judged(HISTORY[:3], mirror(11, floor_ts=15)) == ["folded", "below_floor", "current"]


def test_a_window_by_offset_is_below_the_floor_as_a_whole() -> None:
    rows = [version(1 << 48, "a", order="place"), version(2 << 48, "b", order="place")]
    found = FoundRow(where="t", version=2 << 48, order="place", floor_ts=10)
    assert judged(rows, found) == ["below_floor", "current"]


@pytest.mark.parametrize("found", [mirror(), mirror(2)])
def test_a_version_that_the_target_should_have(found: FoundRow) -> None:
    assert judged(HISTORY[:3], found)[-1] == "missing"
    assert judged(HISTORY[:3], found)[0] == "folded"


def test_a_version_that_no_changelog_has() -> None:
    (*_, last) = fates(HISTORY[:3], TargetFacts("mirror", mirror(99), LOADED, {}))
    assert (last.fate, last.detail) == ("replaced", "by 99, which is in no changelog that was read")


def test_of_one_commit_ts_the_put_is_later_than_the_delete() -> None:
    rows = [version(5, "a", put=False), version(5, "a")]
    assert judged(rows, mirror(5)) == ["folded", "current"]
    assert judged(rows, mirror(5, deleted=True)) == ["current", "missing"]


def test_a_version_in_several_runs_is_loaded_with_the_first() -> None:
    both = [version(1, "a", "b"), version(21, "c")]
    loads = {"b": RunLoad("loaded", 9), "c": RunLoad("loaded", 3)}
    assert judged(both, mirror(21), loads) == ["superseded", "current"]
    assert judged(both, mirror(21), loads | {"a": RunLoad("loaded", 1)}) == ["replaced", "current"]


def test_a_target_that_was_not_looked_at() -> None:
    found = FoundRow(where="t", not_looked="run a query")
    assert judged(HISTORY[:3], found) == ["folded", "replaced", "loaded"]


def test_a_table_that_was_forgotten() -> None:
    assert judged(HISTORY[:1], mirror(), {"a": RunLoad("forgotten", 1)}) == ["forgotten"]


def test_targets_that_keep_every_version_or_the_last_of_each_window() -> None:
    loads = LOADED | {"b": RunLoad("outdated", 2)}
    every, last = (FoundRow(where="f", keeps=keeps, not_looked="files") for keeps in ("all", "window"))
    assert judged(HISTORY, every, loads) == ["held", "held", "replaced", "held"]
    assert judged(HISTORY, last, loads) == ["folded", "held", "replaced", "held"]
    assert judged(HISTORY, every, loads, {("c", place(21)): "why"})[-1] == "set_aside"


def test_a_history_that_was_looked_at_lacks_what_is_newer_than_its_newest_version() -> None:
    assert judged(HISTORY, FoundRow(where="t", keeps="all", version=21, is_deleted=True)) == ["held"] * 4
    assert judged(HISTORY, FoundRow(where="t", keeps="all", version=11)) == ["held", "held", "held", "missing"]
    assert judged(HISTORY, FoundRow(where="t", keeps="all")) == ["missing"] * 4
