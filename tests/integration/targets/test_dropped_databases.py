"""DROP DATABASE that is loaded before older windows, which have the first rows of a table: the target knows it of no DDL."""

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PolicyStopError, SupersededError, TransientError
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

ORDERS = table("shop.orders", {"id": ColumnType("int"), "v": ColumnType("int")})
LINES = table("shop.lines", {"id": ColumnType("int"), "v": ColumnType("int")})
ALL = "SELECT id, v FROM shop.orders ORDER BY id"
DROPS = {
    "database": ("DROP DATABASE shop", "shop"),
    "schema": ("DROP SCHEMA IF EXISTS SHOP", "Shop"),
    "table": ("DROP TABLE orders", "shop.orders"),
}
ORDERS_OF_THREE = [*permutations(range(3))]


def before(artifacts: Path, **how: Any) -> Changelog:
    return Changelog(artifacts, 0, 100, **how).rows(ORDERS, [put(10, id=1, v=1), put(11, id=2, v=1)])


def dropped(artifacts: Path, drop: str = "database", **how: Any) -> Changelog:
    query, name = DROPS[drop]
    return Changelog(artifacts, 100, 200, **how).ddl(150, query, table=name)


def after(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=2, v=2)])


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("order", ORDERS_OF_THREE, ids=str)
def test_a_mirror_has_no_row_from_before_it(mirror: Mirror, artifacts: Path, drop: str, order: tuple[int, ...]) -> None:
    windows = [before(artifacts), dropped(artifacts, drop), after(artifacts)]
    for number in order:
        mirror.load(windows[number], drop="apply")
    assert mirror.rows(ALL) == [(2, 2)]
    for number in order:
        mirror.load(windows[number], drop="apply", reload=True)
    assert mirror.rows(ALL) == [(2, 2)]


@pytest.mark.parametrize("drop", DROPS)
def test_policies_stop_none_of_which_no_table_is_mirrored_and_rows_from_before_it_are_left_out(
    mirror: Mirror, artifacts: Path, drop: str
) -> None:
    mirror.load(dropped(artifacts, drop), drop="stop")
    assert mirror.load_table(before(artifacts), drop="stop").below_floor == 2
    assert mirror.load_table(after(artifacts), drop="stop").upserted == 1
    assert mirror.rows(ALL) == [(2, 2)]


def test_what_a_policy_stops_is_not_remembered(mirror: Mirror, artifacts: Path) -> None:
    others = table("shop.others", {"id": ColumnType("int")})
    mirror.load(Changelog(artifacts, 0, 50).rows(others, [put(10, id=1)]))
    with pytest.raises(PolicyStopError, match=r"shop\.others at 150"):
        mirror.load(dropped(artifacts), drop="stop")
    mirror.load(before(artifacts))
    assert len(mirror.rows(ALL)) == 2
    with pytest.raises(PolicyStopError, match=r"shop\.orders at 150[\s\S]*shop\.others at 150"):
        mirror.load(dropped(artifacts), drop="stop")


def test_other_databases_and_other_pipelines_are_left_alone(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shops", table="shops"), drop="apply")
    other = dropped(artifacts)
    other.pipeline = "us"
    mirror.load(other, drop="apply")
    mirror.load(before(artifacts))
    assert len(mirror.rows(ALL)) == 2


def test_pipelines_of_one_upstream_know_it_of_each_other(mirror: Mirror, artifacts: Path) -> None:
    other = dropped(artifacts)
    other.pipeline = "us"
    mirror.load(other, drop="apply")
    mirror.load(before(artifacts), {"same_upstream_as": ["us"]})
    assert mirror.rows("SELECT floor_ts FROM _ticdc_replay.tables") == [(151,)]


def test_windows_by_offset_from_before_it_are_left_out_as_a_whole(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(dropped(artifacts, order="place"), drop="apply")
    rows = Changelog(artifacts, 0, 100, order="place").rows(ORDERS, [put(1, id=1, v=1)])
    assert mirror.load_table(rows).below_floor == 1
    later = Changelog(artifacts, 200, 300, order="place").rows(ORDERS, [put(9, id=2, v=2)])
    assert mirror.load_table(later).upserted == 1


def test_a_window_by_offset_with_rows_beside_it_stops_though_another_run_of_it_was_loaded(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(dropped(artifacts, order="place"), drop="apply")
    both = dropped(artifacts, order="place", run="b").rows(ORDERS, [put(5, id=1, v=1)])
    with pytest.raises(PolicyStopError, match=r"shop\.orders at 150"):
        mirror.load(both, drop="apply")


def test_a_database_that_is_dropped_while_the_first_rows_are_staged_is_not_missed(
    mirror: Mirror, artifacts: Path
) -> None:
    def staged(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            mirror.load(dropped(artifacts), drop="apply")
        return results

    with pytest.raises(TransientError, match=r"database of .* was dropped"):
        load(before(artifacts).job(TARGET), mirror.connections, staged)
    assert mirror.load_table(before(artifacts)).below_floor == 2


def anew(artifacts: Path, **how: Any) -> Changelog:
    """The window of the DROP, decoded anew: there was none, but a row."""
    return Changelog(artifacts, 100, 200, run="anew", **how).rows(ORDERS, [put(120, id=2, v=2)])


@pytest.mark.parametrize("drop", DROPS)
def test_another_mirror_of_the_pipeline_is_left_alone(mirror: Mirror, artifacts: Path, drop: str) -> None:
    for window in (before(artifacts), dropped(artifacts, drop)):
        mirror.load(window, drop="apply")
    state_of_100: dict[str, object] = {"name": "march", "schema": "march"}
    mirror.load(before(artifacts), state_of_100)
    assert mirror.rows("SELECT id FROM march.orders ORDER BY id") == [(1,), (2,)]
    mirror.load(dropped(artifacts, drop), state_of_100, drop="apply")
    assert mirror.rows("SELECT to_regclass('march.orders')") == [(None,)]


@pytest.mark.parametrize("drop", ["database", "schema"])
@pytest.mark.parametrize("same", [{"name": "renamed"}, {"name": "other", "schema": "shop"}])
def test_it_counts_whatever_the_target_is_called_that_loads_the_same_mirrors(
    mirror: Mirror, artifacts: Path, drop: str, same: dict[str, object]
) -> None:
    mirror.load(dropped(artifacts, drop), same)
    assert mirror.load_table(before(artifacts)).below_floor == 2


@pytest.mark.parametrize("tables", [("*.*",), ("shop.orders",)])
def test_a_newer_run_of_its_window_takes_it_back(mirror: Mirror, artifacts: Path, tables: tuple[str, ...]) -> None:
    mirror.load(dropped(artifacts), generation=1)
    mirror.load(Changelog(artifacts, 100, 200, run="anew"), generation=2, tables=tables)
    mirror.load(dropped(artifacts), generation=1, tables=("shop.lines",))
    assert mirror.load_table(before(artifacts), generation=3).upserted == 2


def test_a_run_for_other_tables_and_an_older_one_take_nothing_back(mirror: Mirror, artifacts: Path) -> None:
    nothing = Changelog(artifacts, 100, 200, run="anew")
    mirror.load(dropped(artifacts), generation=2)
    mirror.load(nothing, generation=3, tables=("shop.lines",))
    mirror.load(nothing, generation=1)
    mirror.load(nothing, {"schema": "elsewhere"}, generation=4)
    assert mirror.load_table(before(artifacts)).below_floor == 2


def test_it_counts_for_the_tables_that_its_load_was_for(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(dropped(artifacts), tables=("shop.lines",))
    assert mirror.load_table(before(artifacts)).upserted == 2
    mirror.load(dropped(artifacts), drop="apply", tables=("shop.orders",))
    assert mirror.rows("SELECT to_regclass('shop.orders')") == [(None,)]


def test_what_comes_out_of_the_quarantine_adds_to_it(mirror: Mirror, artifacts: Path) -> None:
    run = dropped(artifacts)
    redrive = Changelog(artifacts, 100, 200, run="redrive").ddl(160, "DROP DATABASE shop", table="shop")
    redrive.redrives = run.run_hash
    redrive.rows(LINES, [put(120, id=1, v=1)])
    for each in (run, redrive, run, redrive):
        mirror.load(each, generation=5)
    mirror.load(run, generation=6, reload=True)
    mirror.load(before(artifacts))
    floors = "SELECT source_table, floor_ts FROM _ticdc_replay.tables ORDER BY 1"
    assert mirror.rows(floors) == [("lines", 161), ("orders", 161)]
    mirror.forget("shop.orders")
    mirror.load(anew(artifacts), generation=7)
    mirror.load(before(artifacts), reload=True)
    assert mirror.rows(ALL) == [(1, 1), (2, 2)]


def test_rows_out_of_the_quarantine_from_before_it_are_left_out(mirror: Mirror, artifacts: Path) -> None:
    run = dropped(artifacts)
    redrive = Changelog(artifacts, 100, 200, run="redrive").rows(ORDERS, [put(120, id=1, v=1), put(170, id=2, v=2)])
    redrive.redrives = run.run_hash
    for each in (run, redrive):
        mirror.load(each)
    assert mirror.rows(ALL) == [(2, 2)]


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("order", ORDERS_OF_THREE, ids=str)
def test_a_mirror_that_is_built_anew_does_not_know_what_was_taken_back(
    mirror: Mirror, artifacts: Path, drop: str, order: tuple[int, ...]
) -> None:
    windows = [before(artifacts), dropped(artifacts, drop), after(artifacts)]
    for number in order:
        mirror.load(windows[number], drop="apply")
    mirror.execute("DROP TABLE shop.orders")
    mirror.forget("shop.orders")
    windows[1] = anew(artifacts)
    for number in order:
        mirror.load(windows[number], drop="apply", reload=True)
    assert mirror.rows(ALL) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("order", ORDERS_OF_THREE, ids=str)
def test_a_mirror_that_is_built_anew_is_told_of_it_again(
    mirror: Mirror, artifacts: Path, drop: str, order: tuple[int, ...]
) -> None:
    windows = [before(artifacts), dropped(artifacts, drop), after(artifacts)]
    for number in order:
        mirror.load(windows[number], drop="apply")
    mirror.execute("DROP TABLE shop.orders")
    mirror.forget("shop.orders")
    mirror.load(Changelog(artifacts, 0, 100, run="lines").rows(LINES, [put(10, id=1, v=1)]), tables=("shop.lines",))
    for number in order:
        mirror.load(windows[number], drop="apply", reload=True)
    assert mirror.rows(ALL) == [(2, 2)]
    lines = mirror.rows("SELECT floor_ts FROM _ticdc_replay.tables WHERE source_table = 'lines'")
    assert lines == ([(151,)] if drop != "table" else [(0,)])


@pytest.mark.parametrize("drop", DROPS)
def test_a_floor_that_is_raised_by_hand_is_not_below_it(mirror: Mirror, artifacts: Path, drop: str) -> None:
    mirror.load(dropped(artifacts, drop))
    raised = mirror.raise_floor("shop.orders", 5)
    assert (raised.before, raised.now) == (151, 151)
    assert mirror.raise_floor("shop.orders", 170).now == 170
    assert mirror.load_table(before(artifacts)).below_floor == 2


def test_a_window_that_takes_it_back_while_the_first_rows_are_staged_is_not_missed(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(dropped(artifacts), generation=1)
    before(artifacts)

    def staged(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            mirror.load(Changelog(artifacts, 100, 200, run="anew"), generation=2)
        return results

    with pytest.raises(TransientError, match=r"database of .* was dropped"):
        load(before(artifacts).job(TARGET), mirror.connections, staged)
    assert mirror.load_table(before(artifacts)).upserted == 2


def test_a_ledger_of_an_older_version_learns_to_remember(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 300, 400).rows(ORDERS, [put(310, id=3, v=3)]))
    mirror.execute("DROP TABLE _ticdc_replay.dropped_databases")
    mirror.load(dropped(artifacts), drop="apply")
    mirror.load(before(artifacts))
    assert mirror.rows(ALL) == [(3, 3)]


def test_what_an_older_version_remembered_counts_until_the_mirror_is_forgotten(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 300, 400).rows(LINES, [put(310, id=3, v=3)]))
    mirror.execute(
        "DROP TABLE _ticdc_replay.dropped_databases; CREATE TABLE _ticdc_replay.dropped_databases (pipeline text NOT NULL, "
        "schema_name text NOT NULL, floor_ts bigint NOT NULL, PRIMARY KEY (pipeline, schema_name)); "
        "INSERT INTO _ticdc_replay.dropped_databases VALUES ('pipeline', 'shop', 151)"
    )
    assert mirror.load_table(before(artifacts)).below_floor == 2
    mirror.forget("shop.orders")
    assert mirror.load_table(before(artifacts)).upserted == 2


class Lake:
    """A Parquet target, and what it has of ``shop.orders``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, changelog: Changelog, *, while_copying: Changelog | None = None, **job: Any) -> None:
        def execute(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
            results = in_process(work, tasks, name)
            if while_copying is not None and name.startswith("copy"):
                self.load(while_copying)
            return results

        target: dict[str, object] = {"type": "parquet", "name": "lake", "uri": self.folder.as_uri()}
        load(changelog.job(target, **job), Connections({}), execute)

    @property
    def entries(self) -> list[dict[str, Any]]:
        found = self.folder.glob("pipeline/current/schema=shop/table=orders/window=*.json")
        return [json.loads(path.read_bytes()) for path in found]

    def emptied_in(self, from_ts: int) -> int | None:
        """What the entry of the window that begins at *from_ts* tells; None where there is none."""
        found = [entry["emptied_ts"] for entry in self.entries if entry["window"]["from_ts"] == from_ts]
        return found[0] if found else None

    @property
    def emptied_ts(self) -> int:
        return max((entry["emptied_ts"] for entry in self.entries), default=0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("order", ORDERS_OF_THREE, ids=str)
def test_files_tell_that_no_row_from_before_it_is_left(
    lake: Lake, artifacts: Path, drop: str, order: tuple[int, ...]
) -> None:
    windows = [before(artifacts), dropped(artifacts, drop), after(artifacts)]
    for number in order:
        lake.load(windows[number])
    assert lake.emptied_ts == 150
    for number in order:
        lake.load(windows[number], reload=True)
    assert lake.emptied_ts == 150


def test_files_of_other_databases_are_left_alone(lake: Lake, artifacts: Path) -> None:
    lake.load(Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shops", table="shops"))
    lake.load(before(artifacts))
    assert lake.emptied_ts == 0


def test_a_database_that_is_dropped_while_the_first_files_are_written_is_not_missed(
    lake: Lake, artifacts: Path
) -> None:
    lake.load(before(artifacts), while_copying=dropped(artifacts))
    assert lake.emptied_ts == 150


@pytest.mark.parametrize("generations", [(0, 0), (1, 2)], ids=str)
@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("order", ORDERS_OF_THREE, ids=str)
def test_files_do_not_tell_of_it_once_a_newer_run_of_its_window_has_none(
    lake: Lake, artifacts: Path, drop: str, order: tuple[int, ...], generations: tuple[int, int]
) -> None:
    windows = [before(artifacts), dropped(artifacts, drop), after(artifacts)]
    for number in order:
        lake.load(windows[number], generation=generations[0])
    lake.load(anew(artifacts), generation=generations[1])
    assert lake.emptied_ts == 0
    lake.load(before(artifacts), generation=generations[1], reload=True)
    assert lake.emptied_ts == 0


def test_the_window_of_the_drop_tells_of_it_as_if_it_had_known_the_table(lake: Lake, tmp_path: Path) -> None:
    known, late = Lake(tmp_path / "known"), lake
    for number in (0, 1):
        known.load((before, dropped)[number](tmp_path / "artifacts"), generation=5)
        late.load((dropped, before)[number](tmp_path / "artifacts"), generation=5)
    assert late.emptied_in(0) == 0
    assert [each for each in late.entries if each["window"]["from_ts"] == 100] == [
        each for each in known.entries if each["window"]["from_ts"] == 100
    ]


def test_files_do_not_tell_a_table_of_it_that_its_load_was_not_for(lake: Lake, artifacts: Path) -> None:
    lake.load(dropped(artifacts), generation=2, tables=("shop.lines",))
    lake.load(before(artifacts), generation=3)
    assert lake.emptied_in(100) is None
    lake.load(anew(artifacts), generation=1, tables=("shop.orders",))
    assert lake.emptied_in(100) == 0


def test_a_run_for_other_tables_and_an_older_one_take_nothing_from_files(lake: Lake, artifacts: Path) -> None:
    nothing = Changelog(artifacts, 100, 200, run="anew")
    lake.load(dropped(artifacts), generation=2)
    lake.load(nothing, generation=3, tables=("shop.lines",))
    with pytest.raises(SupersededError):
        lake.load(anew(artifacts), generation=1)
    lake.load(before(artifacts), generation=4)
    assert lake.emptied_in(100) == 150


def test_files_know_what_a_run_for_fewer_tables_took_back(lake: Lake, artifacts: Path) -> None:
    lake.load(dropped(artifacts), generation=2)
    lake.load(Changelog(artifacts, 100, 200, run="anew"), generation=3, tables=("shop.orders",))
    lake.load(before(artifacts), generation=4)
    assert lake.emptied_ts == 0


def test_what_comes_out_of_the_quarantine_adds_to_what_files_tell(lake: Lake, artifacts: Path) -> None:
    run = dropped(artifacts)
    nothing = Changelog(artifacts, 100, 200, run="nothing")
    again = Changelog(artifacts, 100, 200, run="again").ddl(160, "DROP DATABASE shop", table="shop")
    rows = Changelog(artifacts, 100, 200, run="rows").rows(ORDERS, [put(120, id=1, v=1)])
    for each in (nothing, again, rows):
        each.redrives = run.run_hash
    for each in (run, nothing, again, run):
        lake.load(each, generation=5)
    lake.load(before(artifacts))
    assert lake.emptied_in(100) == 160
    lake.load(rows, generation=5)
    assert (lake.emptied_in(100), sum(len(entry["fold"]) for entry in lake.entries)) == (160, 2)
    lake.load(anew(artifacts), generation=6)
    assert lake.emptied_ts == 0


def interrupted_at(monkeypatch: pytest.MonkeyPatch, part: str, happens: Callable[[], None]) -> None:
    """Have something happen once just before a file is replaced whose name has *part*."""
    came: list[str] = []
    update = FileStore.update

    def watched(self: FileStore, name: str, change: Callable[[bytes | None], bytes]) -> None:
        if part in name and not came:
            came.append(name)
            happens()
        update(self, name, change)

    monkeypatch.setattr(FileStore, "update", watched)


@pytest.mark.parametrize("part", ["generations/window=100-200", "orders/window=100-200", "orders/window=0-100"])
def test_a_run_that_takes_it_back_while_files_are_about_to_tell_of_it_counts(
    lake: Lake, artifacts: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    lake.load(dropped(artifacts), generation=1)
    interrupted_at(monkeypatch, part, lambda: lake.load(Changelog(artifacts, 100, 200, run="anew"), generation=2))
    lake.load(before(artifacts), generation=1)
    assert lake.emptied_ts == 0


@pytest.mark.parametrize("part", ["generations/window=100-200", "orders/window=100-200", "orders/window=0-100"])
def test_a_load_that_broke_while_files_were_about_to_tell_of_it_can_be_repeated(
    lake: Lake, artifacts: Path, part: str
) -> None:
    def breaks() -> None:
        raise TransientError("executor lost")

    lake.load(dropped(artifacts), generation=1)
    with pytest.MonkeyPatch.context() as patch:
        interrupted_at(patch, part, breaks)
        with pytest.raises(TransientError, match="executor lost"):
            lake.load(before(artifacts), generation=1)
    lake.load(dropped(artifacts), generation=1, reload=True)
    lake.load(before(artifacts), generation=1)
    assert lake.emptied_ts == 150
