"""An older run's load never commits to a mirror after a newer run of its window, whenever it gets there."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import SupersededError, TransientError
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import SourceWindow
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
LINES = table("shop.lines", {"id": INT, "v": TEXT})
ALL = "SELECT id, v FROM shop.orders ORDER BY id"


def load_while(mirror: Mirror, changelog: Changelog, happens: Callable[[], object], **job: Any) -> None:
    """Load *changelog*; something *happens* once its rows are staged."""

    def staged(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            happens()
        return results

    load(changelog.job(TARGET, **job), mirror.connections, staged)


def broken(artifacts: Path, from_ts: int = 0, to_ts: int = 100) -> Changelog:
    return Changelog(artifacts, from_ts, to_ts, "broken").rows(ORDERS, [put(50, id=1, v="broken")])


def repaired(artifacts: Path, from_ts: int = 0, to_ts: int = 100) -> Changelog:
    return Changelog(artifacts, from_ts, to_ts, "repaired").rows(ORDERS, [put(50, id=1, v="repaired")])


def test_a_load_whose_rows_were_staged_before_a_newer_run_came_is_refused(mirror: Mirror, artifacts: Path) -> None:
    with pytest.raises(SupersededError, match=r"older than run .* start it with reload"):
        load_while(mirror, broken(artifacts), lambda: mirror.load(repaired(artifacts), generation=2), generation=1)
    assert mirror.rows(ALL) == [(1, "repaired")]
    assert mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]


def test_a_load_that_begins_after_a_newer_run_is_refused_and_a_reload_is_not(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(repaired(artifacts), generation=2)
    for older in (1, 0):
        with pytest.raises(SupersededError):
            mirror.load(broken(artifacts), generation=older)
    assert mirror.rows(ALL) == [(1, "repaired")]
    mirror.load(broken(artifacts), generation=3, reload=True)
    assert mirror.rows(ALL) == [(1, "broken")]


def test_a_repeat_has_the_generation_that_is_there_and_is_done_before(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(broken(artifacts), generation=1)
    mirror.load(repaired(artifacts), generation=2)
    assert [report.outcome for report in mirror.load(repaired(artifacts), generation=2).tables] == ["done_before"]
    assert [report.outcome for report in mirror.load(broken(artifacts), generation=1).tables] == ["done_before"]
    assert mirror.rows(ALL) == [(1, "repaired")]


def test_a_newer_run_that_breaks_keeps_the_older_one_out(mirror: Mirror, artifacts: Path) -> None:
    def breaks() -> None:
        raise TransientError("executor lost")

    with pytest.raises(TransientError, match="executor lost"):
        load_while(mirror, repaired(artifacts), breaks, generation=2)
    with pytest.raises(SupersededError):
        mirror.load(broken(artifacts), generation=1)
    mirror.load(repaired(artifacts), generation=2)
    assert mirror.rows(ALL) == [(1, "repaired")]


def test_a_newer_run_without_rows_of_a_table_keeps_the_older_one_s_out(mirror: Mirror, artifacts: Path) -> None:
    empty = Changelog(artifacts, 0, 100, "repaired")
    with pytest.raises(SupersededError):
        load_while(mirror, broken(artifacts), lambda: mirror.load(empty, generation=2), generation=1)
    assert mirror.rows("SELECT to_regclass('shop.orders')") == [(None,)]


def test_a_newer_run_of_other_tables_refuses_nothing(mirror: Mirror, artifacts: Path) -> None:
    other = Changelog(artifacts, 0, 100, "other").rows(LINES, [put(50, id=1, v="a")])
    mirror.load(other, generation=2, tables=("shop.lines",))
    mirror.load(broken(artifacts), generation=1, tables=("shop.orders",))
    assert mirror.rows(ALL) == [(1, "broken")]


def test_of_overlapping_windows_an_older_run_does_not_come_after_a_newer_one_that_began_later(
    mirror: Mirror, artifacts: Path
) -> None:
    wide = repaired(artifacts, 0, 200)
    with pytest.raises(TransientError, match="overlapping window"):
        load_while(mirror, broken(artifacts), lambda: mirror.load(wide, generation=2), generation=1)
    assert mirror.rows(ALL) == [(1, "repaired")]


def test_an_overlapping_window_that_is_loaded_later_is_loaded(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(repaired(artifacts, 0, 200), generation=2)
    rest = Changelog(artifacts, 100, 300).rows(ORDERS, [put(250, id=2, v="b")])
    mirror.load(rest, generation=1)
    assert mirror.rows(ALL) == [(1, "repaired"), (2, "b")]


def test_a_window_that_takes_rows_from_a_wider_one_gives_way_to_a_newer_run_of_that_one(
    mirror: Mirror, artifacts: Path
) -> None:
    wide, sources = repaired(artifacts, 0, 200), (SourceWindow(Window(0, 200), 1),)
    with pytest.raises(SupersededError, match="takes rows from a changelog of window"):
        load_while(mirror, broken(artifacts), lambda: mirror.load(wide, generation=2), generation=3, sources=sources)
    with pytest.raises(SupersededError):
        mirror.load(broken(artifacts), generation=3, sources=sources)
    assert mirror.rows(ALL) == [(1, "repaired")]
    mirror.load(broken(artifacts), generation=3, sources=(SourceWindow(Window(0, 200), 2),))
    assert mirror.rows(ALL) == [(1, "broken")]


def test_windows_that_touch_say_nothing_of_each_other(mirror: Mirror, artifacts: Path) -> None:
    later = Changelog(artifacts, 100, 200).rows(ORDERS, [put(150, id=2, v="b")])
    load_while(mirror, broken(artifacts), lambda: mirror.load(later, generation=2), generation=1)
    assert mirror.rows(ALL) == [(1, "broken"), (2, "b")]


@pytest.mark.parametrize(
    ("newer", "older"),
    [({"name": "renamed"}, {}), ({"name": "other", "schema": "shop"}, {}), ({}, {"name": "other", "schema": "shop"})],
)
def test_a_newer_run_counts_whatever_the_target_is_called_that_loads_the_same_mirrors(
    mirror: Mirror, artifacts: Path, newer: dict[str, object], older: dict[str, object]
) -> None:
    mirror.load(repaired(artifacts), newer, generation=2)
    with pytest.raises(SupersededError):
        mirror.load(broken(artifacts), older, generation=1)
    assert mirror.rows(ALL) == [(1, "repaired")]


def test_targets_that_are_called_alike_and_have_other_mirrors_say_nothing_of_each_other(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(repaired(artifacts), {"schema": "elsewhere"}, generation=2)
    mirror.load(broken(artifacts), generation=1)
    mirror.load(broken(artifacts), {"schema": "third"}, generation=1)
    assert mirror.rows(ALL) == [(1, "broken")]
    assert mirror.rows("SELECT v FROM elsewhere.orders") == [("repaired",)]


def test_marks_of_an_older_version_count_for_the_target_of_that_name(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(repaired(artifacts), generation=2)
    mirror.execute(
        "ALTER TABLE _ticdc_replay.generations DROP COLUMN mirror_schema; "
        "ALTER TABLE _ticdc_replay.generations ADD PRIMARY KEY (pipeline, target, from_ts, to_ts, selection_hash); "
        "CREATE INDEX generations_newer ON _ticdc_replay.generations (pipeline, target, generation)"
    )
    with pytest.raises(SupersededError):
        mirror.load(broken(artifacts), generation=1)
    mirror.load(repaired(artifacts), generation=3, reload=True)
    assert mirror.rows(ALL) == [(1, "repaired")]


def test_a_ledger_from_before_there_were_generations_gets_them(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(broken(artifacts))
    mirror.execute("DROP TABLE _ticdc_replay.generations")
    assert [report.outcome for report in mirror.load(broken(artifacts), generation=1).tables] == ["done_before"]
    mirror.load(repaired(artifacts), generation=2)
    assert mirror.rows(ALL) == [(1, "repaired")]
