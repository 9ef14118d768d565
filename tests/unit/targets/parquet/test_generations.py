"""An older run's load never replaces what a newer run of its window has left in the Parquet target."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import SupersededError, TransientError
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load

ORDERS = table("shop.orders", {"id": ColumnType("bigint", declared=True)})
LINES = table("shop.lines", {"id": ColumnType("bigint", declared=True)})


def run(changes: Changelog, lake: Path, execute: Any = in_process, shape: Sequence[Any] = (), **job: Any) -> LoadReport:
    target: dict[str, object] = {"type": "parquet", "name": "lake", "uri": lake.as_uri(), "shape": shape}
    return load(changes.job(target, **job), Connections(), execute)


def run_while(changes: Changelog, lake: Path, happens: Callable[[], object], **job: Any) -> None:
    """Load *changes*; something *happens* once its files are written, before they are listed."""

    def executed(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name == "write the last version of each row":
            happens()
        return results

    run(changes, lake, executed, **job)


def listed(lake: Path, table: str = "orders") -> str | None:
    """The run whose files the window's entry lists; None where there is no entry."""
    path = lake / f"pipeline/current/schema=shop/table={table}/window=0-100.json"
    return json.loads(path.read_bytes())["run_hash"] if path.exists() else None


def files(lake: Path) -> list[object]:
    """The files that the window's entry of the table ``orders`` lists."""
    entry = json.loads((lake / "pipeline/current/schema=shop/table=orders/window=0-100.json").read_bytes())
    return [*entry["changelog"], *entry["fold"]]


def changelog(folder: Path, name: str, *tables: Any) -> Changelog:
    made = Changelog(folder / "artifacts", 0, 100, name)
    for schema in tables:
        made.rows(schema, [put(10, id=1)])
    return made


def test_a_load_whose_files_were_written_before_a_newer_run_came_is_refused(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", ORDERS)
    with pytest.raises(SupersededError, match=f"is older than run {new.run_hash}"):
        run_while(old, lake, lambda: run(new, lake, generation=2), generation=1)
    assert listed(lake) == new.run_hash
    assert not list(lake.glob(f"pipeline/loads/*/run={old.run_hash}.json"))


def test_a_load_that_begins_after_a_newer_run_is_refused_and_a_reload_is_not(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", ORDERS)
    run(new, lake, generation=2)
    for older in (1, 0):
        with pytest.raises(SupersededError):
            run(old, lake, generation=older)
    assert listed(lake) == new.run_hash
    assert not list(lake.rglob(f"run={old.run_hash}")), "refused before a file is written"
    run(old, lake, generation=3, reload=True)
    assert listed(lake) == old.run_hash


def test_a_newer_run_that_lists_a_table_at_the_last_moment_keeps_its_files(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", ORDERS)
    came: list[str] = []

    class Watched(FileStore):
        def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
            if "/current/" in name and not came:
                came.append(name)
                run(new, lake, generation=2)  # between the older load's last look and its entry
            super().update(name, change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "open", classmethod(lambda cls, uri, connection: Watched(Path(uri[7:]))))
        with pytest.raises(SupersededError):
            run(old, lake, generation=1)
    assert came
    assert listed(lake) == new.run_hash


def test_a_newer_run_without_rows_of_a_table_keeps_the_older_one_s_out(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", LINES)
    with pytest.raises(SupersededError):
        run_while(old, lake, lambda: run(new, lake, generation=2), generation=1)
    assert (listed(lake), files(lake)) == (new.run_hash, [])
    assert listed(lake, "lines") == new.run_hash


def test_a_newer_run_without_rows_of_a_table_that_comes_between_the_older_one_s_last_look_and_its_entry_counts(
    tmp_path: Path,
) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", LINES)
    came: list[str] = []

    class Paused(FileStore):
        """As a store that compares when it writes, with a pause of the machine just before."""

        def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
            found = self.get(name) if self.info(name) else None
            wanted = change(found)
            if "/current/" in name and not came:
                came.append(name)
                run(new, lake, generation=2)
            super().update(name, lambda again: wanted if again == found else change(again))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "open", classmethod(lambda cls, uri, connection: Paused(Path(uri[7:]))))
        with pytest.raises(SupersededError):
            run(old, lake, generation=1)
    assert came
    assert (listed(lake), files(lake)) == (new.run_hash, [])
    assert listed(lake, "lines") == new.run_hash


def test_a_newer_run_that_broke_knows_in_its_repeat_what_the_older_one_was_about_to_list(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", LINES)

    def breaks() -> None:
        raise TransientError("executor lost")

    for made, generation in ((old, 1), (new, 2)):
        with pytest.raises(TransientError):
            run_while(made, lake, breaks, generation=generation)
    run(new, lake, generation=2)
    assert (listed(lake), files(lake)) == (new.run_hash, [])


def test_a_newer_run_of_other_tables_refuses_nothing(tmp_path: Path) -> None:
    lake, old, new = tmp_path / "lake", changelog(tmp_path, "old", ORDERS), changelog(tmp_path, "new", LINES)
    run(new, lake, generation=2, tables=("shop.lines",))
    run(old, lake, generation=1, tables=("shop.orders",))
    assert (listed(lake), listed(lake, "lines")) == (old.run_hash, new.run_hash)


def test_two_attempts_of_one_run_end_as_one(tmp_path: Path) -> None:
    lake, old = tmp_path / "lake", changelog(tmp_path, "old", ORDERS)
    run_while(old, lake, lambda: run(old, lake, generation=1), generation=1)
    assert listed(lake) == old.run_hash


def test_a_load_of_the_same_generation_does_not_take_away_what_another_has_added_meanwhile(tmp_path: Path) -> None:
    lake, one, other = tmp_path / "lake", changelog(tmp_path, "one", ORDERS), changelog(tmp_path, "other", ORDERS)
    with pytest.raises(TransientError, match="another load has changed"):
        run_while(one, lake, lambda: run(other, lake, generation=1), generation=1)
    assert listed(lake) == other.run_hash
    run(one, lake, generation=1)
    assert listed(lake) == one.run_hash


def test_of_two_first_loads_with_different_shapes_one_lists_nothing(tmp_path: Path) -> None:
    """The other one comes before this one has written any file."""
    lake, later = tmp_path / "lake", changelog(tmp_path, "later", ORDERS)
    plain, others = changelog(tmp_path, "plain", LINES, ORDERS), [later]

    def executed(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        while others:
            run(others.pop(), lake, shape=[{"constants": {"_run": "run"}}])
        return in_process(work, tasks, name)

    with pytest.raises(TransientError, match="recorded `shape` was changed"):
        run(plain, lake, executed)
    assert listed(lake) == later.run_hash
