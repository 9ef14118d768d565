"""The Parquet target: the window's changelog and its fold, complete when their manifest is there."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.examples import examples
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets import last_versions
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load
from ticdc_replay.targets.parquet import files

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
NO_KEY = table("shop.log", {"line": TEXT}, key=[])


def run(
    changes: Changelog,
    lake: Path,
    execute: Any = in_process,
    reload: bool = False,
    generation: int = 0,
    **settings: Any,
) -> LoadReport:
    target = {"type": "parquet", "name": "lake", "uri": lake.as_uri(), **settings}
    return load(changes.job(target, reload=reload, generation=generation), Connections(), execute)


def manifest(lake: Path) -> dict[str, Any]:
    (path,) = lake.glob("pipeline/loads/window=*/run=*.json")
    return json.loads(path.read_bytes())


def rows_in(lake: Path, kind: str) -> list[tuple[Any, ...]]:
    found = []
    for file in manifest(lake)[kind]:
        table = pq.read_table(lake / file["name"], partitioning=None).to_pylist()
        assert len(table) == file["rows"]
        for row in table:
            image = row["after"] or row["before"]
            found.append((row["_op"], row["_commit_ts"], *image.values()))
    return sorted(found, key=repr)


def current(lake: Path, table: str = "orders") -> dict[str, Any]:
    """The entry of a table's window; every file that it lists is there, and whole."""
    entry = json.loads((lake / f"pipeline/current/schema=shop/table={table}/window=0-100.json").read_bytes())
    for file in (*entry["changelog"], *entry["fold"]):
        assert pq.read_table(lake / file["name"], partitioning=None).num_rows == file["rows"]
    return entry


def content(lake: Path) -> dict[str, bytes]:
    return {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


@pytest.fixture
def changelog(tmp_path: Path) -> Changelog:
    rows = [put(10, id=1, v="a"), put(20, id=1, v="b"), put(10, id=2, v="a"), delete(30, id=2), put(5, id=3, v="a")]
    return Changelog(tmp_path / "artifacts", 0, 100).rows(ORDERS, rows, files=3)


def test_a_window_leaves_its_changelog_and_the_last_version_of_each_row(changelog: Changelog, tmp_path: Path) -> None:
    report = run(changelog, tmp_path / "lake")
    assert rows_in(tmp_path / "lake", "fold") == [
        ("delete", 30, 2, None),
        ("insert", 20, 1, "b"),
        ("insert", 5, 3, "a"),
    ]
    assert len(rows_in(tmp_path / "lake", "changelog")) == 5
    (orders,) = report.tables
    assert (orders.events, orders.keys, orders.folded, orders.upserted, orders.tombstones) == (5, 3, 2, 2, 1)


def test_files_lie_where_hive_and_spark_find_them(changelog: Changelog, tmp_path: Path) -> None:
    run(changelog, tmp_path / "lake")
    folders = {path.rpartition("/")[0] for path in content(tmp_path / "lake") if "/fold/" in path}
    (folder,) = folders
    assert folder.startswith("pipeline/fold/schema=shop/table=orders/version=")
    assert folder.endswith(f"/window=0-100/run={changelog.run_hash}")


def test_a_repeat_changes_no_byte(changelog: Changelog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = run(changelog, lake)
    before = content(lake)
    again = run(changelog, lake)
    assert [table.outcome for table in again.tables] == ["done_before"]
    assert (again.tables[0].events, again.tables[0].keys) == (first.tables[0].events, first.tables[0].keys)
    reloaded = run(changelog, lake, reload=True)
    assert [table.outcome for table in reloaded.tables] == ["loaded"]
    assert content(lake) == before


@pytest.mark.parametrize("broken_after", range(7))
def test_a_load_that_broke_anywhere_is_not_there_and_can_be_repeated(
    changelog: Changelog, tmp_path: Path, broken_after: int
) -> None:
    lake, left = tmp_path / "lake", iter(range(broken_after))

    def breaking(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = []
        for task in tasks:
            if next(left, None) is None:
                raise TransientError("executor lost")
            results.append(work(task))
        return results

    with pytest.raises(TransientError, match="executor lost"):  # 3 files to copy, 1 bucket, 3 files to fold
        run(changelog, lake, execute=breaking)
    assert not list(lake.glob("pipeline/loads/**/*.json"))
    run(changelog, lake)
    whole = tmp_path / "whole"
    run(changelog, whole)
    assert {name: bytes_ for name, bytes_ in content(lake).items() if "/loads/" not in name} == {
        name: bytes_ for name, bytes_ in content(whole).items() if "/loads/" not in name
    }


BOTH, CHANGELOG, FOLD = {}, {"fold": False}, {"changelog": False}


@pytest.mark.parametrize("reload", [True, False])
@pytest.mark.parametrize(("before", "after"), [(BOTH, FOLD), (BOTH, CHANGELOG), (FOLD, BOTH), (CHANGELOG, FOLD)])
def test_other_options_give_what_they_ask_for(
    changelog: Changelog, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], reload: bool
) -> None:
    run(changelog, tmp_path / "lake", **before)
    report = run(changelog, tmp_path / "lake", reload=reload, **after)
    run(changelog, tmp_path / "fresh", **after)
    assert report.tables[0].outcome == "loaded"
    assert current(tmp_path / "lake") == current(tmp_path / "fresh")
    listed = {**manifest(tmp_path / "lake"), "tables": None}
    assert listed == {**manifest(tmp_path / "fresh"), "tables": None}


@pytest.mark.parametrize("broken_after", range(10))
def test_a_reload_that_broke_anywhere_leaves_readers_whole_files_and_can_be_repeated(
    changelog: Changelog, tmp_path: Path, broken_after: int
) -> None:
    lake, left = tmp_path / "lake", iter(range(broken_after))
    run(changelog, lake, changelog=False)
    before = current(lake)

    def step() -> None:
        if next(left, None) is None:
            raise TransientError("worker lost")

    def breaking(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = []
        for task in tasks:
            step()
            results.append(work(task))
        return results

    class BreakingStore(FileStore):
        def put(self, name: str, content: bytes) -> None:
            step()
            super().put(name, content)

        def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
            step()
            super().update(name, change)

    with pytest.MonkeyPatch.context() as patch:  # a mark, 3 files to copy, 1 bucket, 3 files to fold, 2 entries
        patch.setattr(FileStore, "open", classmethod(lambda cls, uri, connection: BreakingStore(Path(uri[7:]))))
        with pytest.raises(TransientError, match="worker lost"):
            run(changelog, lake, execute=breaking, reload=True)
    reloaded = broken_after == 9
    assert (current(lake) != before) is reloaded
    assert len(rows_in(lake, "fold")) == 3
    assert rows_in(lake, "changelog") == []
    assert [table.outcome for table in run(changelog, lake).tables] == ["loaded"]
    assert len(current(lake)["changelog"]) == 3


@pytest.mark.parametrize("task", ["copy_files", "winning_rows"])
def test_a_file_that_breaks_while_it_is_written_leaves_the_one_before(
    changelog: Changelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    lake = tmp_path / "lake"
    run(changelog, lake)
    before = content(lake)
    whole = getattr(files, task)

    def broken(*arguments: Any, **named: Any) -> Iterator[Any]:
        result = whole(*arguments, **named)
        if result is not None:
            yield next(result)
        raise OSError("connection lost")

    def broken_at_once(*arguments: Any, **named: Any) -> None:
        Path(arguments[1]).write_bytes(b"half")
        raise OSError("connection lost")

    monkeypatch.setattr(files, task, broken if task == "winning_rows" else broken_at_once)
    with pytest.raises(TransientError, match="connection lost"):
        run(changelog, lake, reload=True)
    assert content(lake) == before


def test_of_several_runs_of_a_window_the_one_loaded_last_is_current(changelog: Changelog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    again = Changelog(tmp_path / "again", 0, 100, run="b").rows(ORDERS, [put(10, id=1, v="a")])
    for each, generation in ((changelog, 1), (again, 2), (changelog, 1)):
        run(each, lake, generation=generation)
    assert current(lake)["run_hash"] == again.run_hash, "the third load had nothing to do"
    run(changelog, lake, reload=True, generation=3)
    assert current(lake)["run_hash"] == changelog.run_hash
    assert len(list(lake.glob("pipeline/loads/window=0-100/run=*.json"))) == 2


OTHERS = ["a-b", "orders%2E", "orders.2", "orders2", "ordres", "Été/ö"]
"""Names that sort around ``orders``, as text and as parts of a path."""


def repinned(folder: Path, lake: Path, **settings: Any) -> tuple[Changelog, Changelog]:
    """A run with many tables is loaded, then one of the same window that has ``orders`` only, with *settings*."""
    first = Changelog(folder / "first", 0, 100).rows(ORDERS, [put(10, id=1, v="a")])
    for name in OTHERS:
        first.rows(table(f"shop.{name}", {"id": INT}), [put(20, id=1)]).ddl(50, "TRUNCATE", table=f"shop.{name}")
    first.rows(table("billing.orders", {"id": INT}), [put(20, id=1)])
    run(first, lake)
    other = Changelog(folder / "other", 100, 200).rows(table("shop.ordres", {"id": INT}), [put(120, id=1)])
    run(other, lake)
    second = Changelog(folder / "second", 0, 100, run="b").rows(ORDERS, [put(10, id=1, v="b")])
    load(second.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()}, **settings), Connections(), in_process)
    return first, second


def entries(lake: Path, window: str = "0-100") -> dict[str, tuple[str, int]]:
    """By table: the run that its entry tells of, and how many files and DDL it lists."""
    found = {}
    for path in lake.glob(f"pipeline/current/*/*/window={window}.json"):
        entry = json.loads(path.read_bytes())
        listed = [*entry["changelog"], *entry["fold"], *entry["ddl"]]
        found[f"{entry['table']['schema']}.{entry['table']['table']}"] = (entry["run_hash"], len(listed))
    return found


def test_a_table_that_only_an_earlier_run_of_the_window_had_is_left_without_files(tmp_path: Path) -> None:
    first, second = repinned(tmp_path, tmp_path / "lake")
    assert entries(tmp_path / "lake") == {
        "shop.orders": (second.run_hash, 2),
        "billing.orders": (second.run_hash, 0),
        **{f"shop.{name}": (second.run_hash, 0) for name in OTHERS},
    }
    assert [files for _, files in entries(tmp_path / "lake", "100-200").values()] == [2]
    before = content(tmp_path / "lake")
    run(second, tmp_path / "lake", reload=True)
    assert content(tmp_path / "lake") == before
    run(first, tmp_path / "lake", reload=True)
    assert entries(tmp_path / "lake")["shop.ordres"] == (first.run_hash, 3)


def test_a_run_for_some_tables_leaves_what_the_window_has_of_others(tmp_path: Path) -> None:
    first, second = repinned(tmp_path, tmp_path / "lake", tables=("shop.ORDERS?", "shop.orders"))
    found = entries(tmp_path / "lake")
    assert (found["shop.orders"], found["shop.orders2"]) == ((second.run_hash, 2), (second.run_hash, 0))
    assert (found["shop.ordres"], found["billing.orders"]) == ((first.run_hash, 3), (first.run_hash, 2))


def test_a_run_without_any_change_leaves_the_window_without_files(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(Changelog(tmp_path / "first", 0, 100).rows(ORDERS, [put(10, id=1, v="a")]), lake)
    empty = Changelog(tmp_path / "second", 0, 100, run="b")
    run(empty, lake)
    assert entries(lake) == {"shop.orders": (empty.run_hash, 0)}


def test_a_load_that_broke_before_it_emptied_every_table_is_repeated(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = Changelog(tmp_path / "first", 0, 100).rows(ORDERS, [put(10, id=1, v="a")])
    for name in OTHERS:
        first.rows(table(f"shop.{name}", {"id": INT}), [put(20, id=1)])
    run(first, lake)
    second = Changelog(tmp_path / "second", 0, 100, run="b").rows(ORDERS, [put(10, id=1, v="b")])
    left = iter(range(4))  # a mark, and three entries

    class BreakingStore(FileStore):
        def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
            if next(left, None) is None:
                raise TransientError("worker lost")
            super().update(name, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "open", classmethod(lambda cls, uri, connection: BreakingStore(Path(uri[7:]))))
        with pytest.raises(TransientError, match="worker lost"):
            run(second, lake)
    assert [run_hash for run_hash, _ in entries(lake).values()].count(second.run_hash) == 3
    run(second, lake)
    assert {run_hash for run_hash, _ in entries(lake).values()} == {second.run_hash}


def test_each_table_has_its_own_files_and_ddl(tmp_path: Path) -> None:
    items = table("shop.orders_items", {"id": INT})
    changelog = Changelog(tmp_path / "artifacts", 0, 100).rows(ORDERS, [put(1, id=1, v="x")])
    changelog.rows(items, [put(2, id=1)]).ddl(50, "TRUNCATE TABLE orders_items", table="shop.orders_items")
    lake = tmp_path / "lake"
    run(changelog, lake)
    found = {name: current(lake, name) for name in ("orders", "orders_items")}
    for name, entry in found.items():
        assert [len(entry[kind]) for kind in ("changelog", "fold")] == [1, 1]
        assert all(f"/table={name}/" in entry[kind][0]["name"] for kind in ("changelog", "fold"))
    assert [[ddl["commit_ts"] for ddl in entry["ddl"]] for entry in found.values()] == [[], [50]]


def test_a_task_that_runs_twice_does_no_harm(changelog: Changelog, tmp_path: Path) -> None:
    def twice(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        in_process(work, tasks, name)
        return in_process(work, tasks, name)

    run(changelog, tmp_path / "lake", execute=twice)
    assert len(rows_in(tmp_path / "lake", "fold")) == 3


def test_nothing_of_the_attempt_stays_in_the_artefacts(changelog: Changelog, tmp_path: Path) -> None:
    run(changelog, tmp_path / "lake")
    assert not [path for path in content(tmp_path / "artifacts") if "loads/" in path]


def test_tables_without_key_have_a_changelog_and_no_fold(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path / "artifacts", 0, 100).rows(NO_KEY, [put(1, line="x"), put(2, line="x")])
    report = run(changelog, tmp_path / "lake")
    assert (len(rows_in(tmp_path / "lake", "changelog")), rows_in(tmp_path / "lake", "fold")) == (2, [])
    assert report.tables[0].outcome == "loaded"


def test_without_a_changelog_a_table_without_key_is_reported_as_left_out(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path / "artifacts", 0, 100).rows(NO_KEY, [put(1, line="x")])
    report = run(changelog, tmp_path / "lake", changelog=False)
    assert (report.tables[0].outcome, report.tables[0].events) == ("without_key", 1)


def test_versions_of_a_schema_fold_together_and_keep_their_layout(tmp_path: Path) -> None:
    wider = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=50)
    narrow_key = table("shop.orders", {"id": ColumnType("int", declared=True), "v": TEXT}, valid_from=20)
    changelog = Changelog(tmp_path / "artifacts", 0, 100)
    changelog.rows(narrow_key, [put(21, id=1, v="old"), put(22, id=2, v="old")], files=2)
    changelog.rows(wider, [put(60, id=1, v="new", n=7)])
    run(changelog, tmp_path / "lake")
    assert rows_in(tmp_path / "lake", "fold") == [("insert", 22, 2, "old"), ("insert", 60, 1, "new", 7)]


def test_ddl_of_the_window_is_told_in_the_manifest(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path / "artifacts", 0, 100).rows(ORDERS, [put(1, id=1, v="x")])
    run(changelog.ddl(50, "TRUNCATE TABLE orders"), tmp_path / "lake")
    assert [(ddl["commit_ts"], ddl["query"]) for ddl in manifest(tmp_path / "lake")["ddl"]] == [
        (50, "TRUNCATE TABLE orders")
    ]


ROWS = st.lists(
    st.builds(
        lambda op, ts, id_: Row(op, ts, {"id": id_, "v": f"{ts}"}, partial=op == "delete"),
        st.sampled_from(["update", "delete"]),
        st.integers(1, 5),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda row: (row.op, row.commit_ts, row.cells["id"]),
)


@settings(max_examples=examples(0.25), deadline=None)
@given(rows=ROWS, files=st.integers(1, 4), bucket_rows=st.integers(1, 50))
def test_the_fold_does_not_depend_on_files_or_buckets(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], files: int, bucket_rows: int
) -> None:
    folder = tmp_path_factory.mktemp("fold")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_versions, "BUCKET_ROWS", bucket_rows)
        run(Changelog(folder / "artifacts", 0, 100).rows(ORDERS, rows, files=files), folder / "lake")
    last = {row.cells["id"]: row for row in sorted(rows, key=lambda row: (row.commit_ts, row.op != "delete"))}
    expected = [(row.op, row.commit_ts, row.cells["id"]) for row in last.values()]
    assert sorted(row[:3] for row in rows_in(folder / "lake", "fold")) == sorted(expected)
