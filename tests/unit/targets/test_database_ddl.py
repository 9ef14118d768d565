"""DDL of whole databases, told of the tables that a target has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.changelogs import Changelog
from tests.support.growth import assert_linear
from ticdc_replay.config.target_rules import MIRROR, DdlPolicy
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import kind_of
from ticdc_replay.targets.base import Load, StoreAddress
from ticdc_replay.targets.database_ddl import dropped_databases, with_ddl_of
from ticdc_replay.targets.ddl import emptied_by, words_of


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


def test_the_ddls_of_a_database_are_told_of_each_table_as_long_as_they_count(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path, 100, 200).ddl(150, "DROP DATABASE shop", table="shop")
    changelog.ddl(150, "DROP DATABASE `Shop`", table="Shop").ddl(160, "DROP DATABASE shop", table="shop")
    changelog.ddl(165, "CREATE TABLE shop.t (id INT PRIMARY KEY)", table="shop.t")
    changelog.ddl(170, "DROP DATABASE nothing", table="nothing").ddl(180, "DROP DATABASE shop", table="shop")
    found = with_ddl_of(load_of(changelog), [TableName("shop", "t"), TableName("Shop", "u"), TableName("other", "t")])
    assert told(found) == [
        (160, "shop.t", "dropped"),
        (165, "shop.t", "table_created"),
        (180, "shop.t", "dropped"),
        (180, "Shop.u", "dropped"),
    ]
    assert found.tables == (TableName("Shop", "u"), TableName("shop", "t"))


@pytest.mark.parametrize("query", ["RENAME TABLE `t` TO `archive`.`t`", "ALTER TABLE `t` RENAME AS `archive`.`t`"])
def test_a_rename_that_does_not_tell_the_schema_is_told_of_each_table_of_that_name(tmp_path: Path, query: str) -> None:
    """Classic TiCDC sends the text as it was typed, and the event has the new name."""
    changelog = Changelog(tmp_path, 100, 200).ddl(120, "CREATE TABLE t (id INT PRIMARY KEY)", table="known.t")
    changelog.ddl(150, query, table="archive.t").ddl(160, query, table="archive.t")
    changelog.ddl(170, "FROBNICATE TABLE `u`", table="archive.u")
    mirrored = [TableName("shop", "t"), TableName("Shop", "T"), TableName("shop", "u"), TableName("archive", "t")]
    found = with_ddl_of(load_of(changelog), mirrored)
    assert told(found) == [
        (120, "known.t", "table_created"),
        (150, "archive.t", "not_understood"),
        (160, "archive.t", "not_understood"),
        (160, "known.t", "not_understood"),
        (160, "Shop.T", "not_understood"),
        (160, "shop.t", "not_understood"),
        (170, "archive.u", "not_understood"),
    ]
    assert {TableName("shop", "t"), TableName("Shop", "T")} <= set(found.tables)


def test_many_renames_that_do_not_tell_the_schema_are_told_in_time_as_they_are_many(tmp_path: Path) -> None:
    def load(count: int) -> Load:
        changelog = Changelog(tmp_path / str(count), 0, 10_000)
        for number in range(count):
            changelog.ddl(10 + number, "RENAME TABLE `t` TO `archive`.`t`", table="archive.t")
        return load_of(changelog)

    loads = {count: load(count) for count in (250, 1_000)}
    assert_linear(
        lambda count: with_ddl_of(loads[count], [TableName(f"s{number}", "t") for number in range(count)]), 250
    )


@pytest.mark.parametrize("database", ["shop", ""])
@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE shop.u (id INT PRIMARY KEY)",
        "ALTER TABLE shop.u ADD COLUMN x INT",
        "RENAME TABLE shop.u TO shop.v",
        "TRUNCATE TABLE shop.u",
        "DROP TABLE shop.u",
    ],
)
def test_ddl_of_a_table_is_none_of_a_database_though_its_event_has_no_table(
    tmp_path: Path, query: str, database: str
) -> None:
    load = load_of(Changelog(tmp_path, 100, 200).ddl(150, query, table=database))
    assert dropped_databases(load.index) == {}
    assert [each for each in told(with_ddl_of(load, [TableName("shop", "t")])) if each[1] == "shop.t"] == []


def test_a_database_is_dropped_by_the_name_in_the_text(tmp_path: Path) -> None:
    load = load_of(Changelog(tmp_path, 100, 200).ddl(150, "DROP DATABASE `Shop`", table=""))
    assert dropped_databases(load.index) == {"shop": 150}
    tables = [TableName("shop", "t"), TableName("crm", "people")]
    assert told(with_ddl_of(load, tables)) == [(150, "shop.t", "dropped")]


def test_the_last_of_each_kind_after_the_last_drop_counts_and_tells_since_when_there_are_such(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path, 100, 200).ddl(110, "CONJURE shop", table="shop")
    changelog.ddl(120, "DROP DATABASE shop", table="shop").ddl(130, "FLASHBACK DATABASE shop", table="shop")
    for commit_ts in (140, 150, 160):
        changelog.ddl(commit_ts, f"CONJURE shop {commit_ts}", table="shop")
    changelog.ddl(170, "ALTER DATABASE shop CHARACTER SET utf8mb4", table="shop")
    found = with_ddl_of(load_of(changelog), [TableName("shop", "t"), TableName("shop", "u")])
    for table in ("t", "u"):
        changes = [each for each in found.index.changes if each.table == TableName("shop", table)]
        assert [(each.commit_ts, kind_of(each.changes[0])) for each in changes][:1] == [(120, "dropped")]
        assert changes[-1].commit_ts == 160
        words = words_of(changes[-1].changes[0])
        assert "CONJURE shop 160" in words
        assert "several such DDLs of its database, from " in words


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, str, str]]:
    """DDL of a database and of two of its tables, each at a moment of its own: (commitTs, text, table)."""
    texts = {
        "shop": ["DROP DATABASE shop", "FLASHBACK DATABASE shop", "CONJURE shop"],
        "shop.t": ["DROP TABLE shop.t", "TRUNCATE TABLE shop.t", "ALTER TABLE shop.t DROP COLUMN v"],
        "shop.u": ["CREATE TABLE shop.u (id INT PRIMARY KEY)", "RENAME TABLE shop.u TO shop.v"],
    }
    moments = sorted(draw(st.sets(st.integers(100, 199), max_size=8)))
    names = [draw(st.sampled_from(sorted(texts))) for _ in moments]
    return [(at, draw(st.sampled_from(texts[name])), name) for at, name in zip(moments, names, strict=True)]


@given(histories(), st.sampled_from(["t", "u"]))
def test_what_is_not_told_would_have_changed_nothing(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, str, str]], name: str
) -> None:
    """Held against DDL of the table itself in place of each of its database, of which none is left out."""
    table = TableName("shop", name)
    as_sent, alone = (Changelog(tmp_path_factory.mktemp("changelog"), 100, 200) for _ in range(2))
    for commit_ts, text, named in history:
        as_sent.ddl(commit_ts, text, table=named)
        own = {"DROP DATABASE shop": f"DROP TABLE shop.{name}", "FLASHBACK DATABASE shop": f"RECOVER TABLE shop.{name}"}
        alone.ddl(commit_ts, own.get(text, text), table=f"shop.{name}" if named == "shop" else named)
    stopping = [frozenset[DdlPolicy](), frozenset[DdlPolicy](("drop",))]
    for policies in stopping:
        outcomes = []
        for changelog in (as_sent, alone):
            changes = [each for each in with_ddl_of(load_of(changelog), [table]).index.changes if each.table == table]
            emptied = emptied_by(changes, MIRROR, policies, "commit_ts")
            stops = [
                each.commit_ts
                for each in changes
                for change in each.changes
                if not (emptied is not None and emptied.settles(each.commit_ts, change))
                and MIRROR[kind_of(change)].stops(policies)
            ]
            outcomes.append((emptied and emptied.commit_ts, max(stops, default=0)))
        assert outcomes[0] == outcomes[1], "what is emptied, and the last DDL that stops"


@pytest.mark.parametrize(
    ("database", "later"), [("shop", 0), ("shop", 1), ("empty", 1)], ids=["at-once", "one-by-one", "empty"]
)
def test_ddls_of_databases_take_time_as_they_and_the_tables_are_many(tmp_path: Path, database: str, later: int) -> None:
    def made(count: int) -> tuple[Load, list[TableName]]:
        changelog = Changelog(tmp_path / str(count), 0, 10_000)
        for n in range(count):
            changelog.ddl(10 + later * n, f"DROP DATABASE {database} /*{n}*/", table=database)
        return load_of(changelog), [TableName("shop", f"t{n}") for n in range(count)]

    loads = {count: made(count) for count in (500, 2_000)}
    assert_linear(lambda count: with_ddl_of(*loads[count]), 500)
    told_to = [len(with_ddl_of(*loads[count]).index.changes) for count in loads]
    assert told_to == ([500, 2_000] if database == "shop" else [0, 0])
