"""DDL of whole databases, told of the tables that a target has."""

from pathlib import Path

import pytest

from tests.changelogs import Changelog
from tests.growth import assert_linear
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import kind_of
from ticdc_replay.targets.base import Load, StoreAddress
from ticdc_replay.targets.database_ddl import told_of


def load_of(changelog: Changelog) -> Load:
    return Load(
        index=changelog.write(),
        selection=("*.*",),
        tables=(),
        named=frozenset(),
        artifacts=StoreAddress("file:///artifacts", None),
        target="mirror",
        attempt="0" * 16,
        quarantine_values=False,
        stopping=frozenset(),
        reload=False,
    )


def told(load: Load) -> list[tuple[int, str, str]]:
    return [
        (each.commit_ts, str(each.table), kind_of(change)) for each in load.index.changes for change in each.changes
    ]


def test_the_ddls_of_a_database_at_one_commit_are_told_once_of_each_table(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path, 100, 200).ddl(150, "DROP DATABASE shop", table="shop")
    changelog.ddl(150, "DROP DATABASE `Shop`", table="Shop").ddl(160, "DROP DATABASE shop", table="shop")
    changelog.ddl(170, "DROP DATABASE nothing", table="nothing")
    found = told_of(load_of(changelog), [TableName("shop", "t"), TableName("Shop", "u"), TableName("other", "t")])
    assert told(found) == [
        (150, "Shop.u", "dropped"),
        (150, "shop.t", "dropped"),
        (160, "Shop.u", "dropped"),
        (160, "shop.t", "dropped"),
    ]
    assert found.tables == (TableName("Shop", "u"), TableName("shop", "t"))


@pytest.mark.parametrize(("database", "later"), [("shop", 0), ("empty", 1)], ids=["at-once", "empty"])
def test_ddls_of_databases_take_time_as_they_and_the_tables_are_many(tmp_path: Path, database: str, later: int) -> None:
    def made(count: int) -> tuple[Load, list[TableName]]:
        changelog = Changelog(tmp_path / str(count), 0, 10_000)
        for n in range(count):
            changelog.ddl(10 + later * n, f"DROP DATABASE {database} /*{n}*/", table=database)
        return load_of(changelog), [TableName("shop", f"t{n}") for n in range(count)]

    loads = {count: made(count) for count in (1_000, 2_000)}
    assert_linear(lambda count: told_of(*loads[count]), 1_000)
