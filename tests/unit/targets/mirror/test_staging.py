"""How the files of a load are divided among the connections to a mirror."""

from pathlib import Path

import pytest

from tests.support.changelogs import Changelog, put, table
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load, StoreAddress
from ticdc_replay.targets.last_versions import fold_groups
from ticdc_replay.targets.mirror import staging
from ticdc_replay.targets.mirror.planning.table_plan import plan_table
from ticdc_replay.targets.mirror.planning.window_ddl import Floor
from ticdc_replay.targets.mirror.staging import StageTask
from ticdc_replay.targets.postgres.dialect import DIALECT
from ticdc_replay.targets.postgres.section import PostgresTarget

INT = ColumnType("bigint", declared=True)


def tasks_of(index: ChangelogIndex, writers: int, parallelism: int = 100) -> list[StageTask]:
    load = Load(
        index=index,
        selection=("*.*",),
        tables=tuple(index.table_names()),
        named=frozenset(),
        artifacts=StoreAddress("file:///artifacts", None),
        target="mirror",
        attempt="0" * 16,
        quarantine_values=False,
        stopping=frozenset(),
        reload=False,
        parallelism=parallelism,
    )
    config = PostgresTarget(type="postgres", name="mirror", connection="target")
    groups = fold_groups(load, {table: load.index.versions_of(table) for table in load.tables})
    plans = [plan_table(load, config, DIALECT, group.fold.table, Floor(0, 0)) for group in groups]
    return staging.stage_tasks(load, Connection("target", "postgres"), list(zip(plans, groups, strict=True)), writers)


@pytest.fixture
def index(tmp_path: Path) -> ChangelogIndex:
    changelog = Changelog(tmp_path, 0, 100)
    changelog.rows(table("s.big", {"id": INT}), [put(10, id=at) for at in range(40)], files=8)
    return changelog.rows(table("s.small", {"id": INT}), [put(10, id=1)]).write()


def staged_files(found: list[StageTask]) -> list[str]:
    return sorted(piece.fold.files[number] for task in found for piece in task.pieces for number in piece.numbers)


@pytest.mark.parametrize("writers", [1, 3, 100])
def test_every_file_is_staged_once_over_at_most_as_many_connections_as_allowed(
    index: ChangelogIndex, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    monkeypatch.setattr(staging, "MIN_TASK_BYTES", 1)
    found = tasks_of(index, writers)
    assert len(found) == min(writers, 9)
    names = [f"runs/{index.run_hash}/{file.name}" for version in index.tables for file in version.files]
    assert staged_files(found) == sorted(names)


def test_no_two_tasks_share_a_staging_table(index: ChangelogIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MIN_TASK_BYTES", 1)
    stages = [{piece.stage for piece in task.pieces} for task in tasks_of(index, 3)]
    assert sum(map(len, stages)) == len(set.union(*stages))


def test_no_more_tasks_are_made_than_run_at_the_same_time(
    index: ChangelogIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MIN_TASK_BYTES", 1)
    assert len(tasks_of(index, writers=8, parallelism=2)) == 2


def test_a_table_that_fits_into_one_task_stays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MIN_TASK_BYTES", 1)
    changelog = Changelog(tmp_path, 0, 100)
    for name in ("s.a", "s.b", "s.c", "s.d"):
        changelog.rows(table(name, {"id": INT}), [put(10, id=at) for at in range(4)], files=4)
    found = tasks_of(changelog.write(), writers=4)
    assert [len({piece.fold.table for piece in task.pieces}) for task in found] == [1, 1, 1, 1]


def test_a_small_load_takes_one_connection(index: ChangelogIndex) -> None:
    assert len(tasks_of(index, 4)) == 1
