"""What the DDL of many tables leaves in the lists of a Parquet target."""

from pathlib import Path

import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.growth import assert_linear
from tests.support.in_process import in_process
from tests.unit.targets.test_database_ddl import load_of
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import load
from ticdc_replay.targets.parquet.entries import TEXT_OF_OTHERS, known_tables, table_folder

TABLES = 20
ID = ColumnType("bigint", declared=True)


def run(changelog: Changelog, lake: Path) -> None:
    load(changelog.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()}), Connections(), in_process)


@pytest.mark.parametrize("apart", [0, 1], ids=["at-once", "one-by-one"])
def test_each_table_lists_few_of_the_ddls_of_its_database(tmp_path: Path, apart: int) -> None:
    first = Changelog(tmp_path / "artifacts", 0, 100)
    for number in range(TABLES):
        first.rows(table(f"shop.t{number}", {"id": ID}), [put(10, id=1)])
    run(first, tmp_path / "lake")
    drops = Changelog(tmp_path / "artifacts", 100, 10_000)
    for number in range(500):
        drops.ddl(200 + apart * number, f"DROP DATABASE shop /* {number} */", table="shop")
    run(drops, tmp_path / "lake")
    entries = [path.read_text() for path in (tmp_path / "lake").glob("pipeline/current/*/*/window=100-10000.json")]
    assert len(entries) == TABLES
    for entry in entries:
        assert entry.count("DROP DATABASE shop") == 1
        assert f'"emptied_ts":{200 + apart * 499}' in entry.replace(" ", "")
        assert len(entry) < 2_000


def test_a_ddl_of_many_tables_is_listed_with_a_part_of_its_text(tmp_path: Path) -> None:
    drop = "DROP TABLE " + ", ".join(f"shop.t{number}" for number in range(1_000))
    run(Changelog(tmp_path / "artifacts", 0, 100).ddl(50, drop, table="shop.t0"), tmp_path / "lake")
    entries = [path.read_text() for path in (tmp_path / "lake").glob("pipeline/current/*/*/*.json")]
    assert len(entries) == 1_000
    assert [drop in entry for entry in entries].count(True) == 1
    assert all(drop[:TEXT_OF_OTHERS] in entry and '"emptied_ts":50' in entry for entry in entries)
    assert sum(map(len, entries)) < 1_000 * 3_000


def test_of_many_renames_at_once_each_table_lists_those_that_name_it(tmp_path: Path) -> None:
    renames = Changelog(tmp_path / "artifacts", 0, 100)
    for number in range(TABLES):
        renames.ddl(10, f"CREATE TABLE a{number} (id BIGINT PRIMARY KEY)", table=f"shop.a{number}")
        renames.ddl(50, f"RENAME TABLE a{number} TO b{number}", table=f"shop.b{number}")
    run(renames, tmp_path / "lake")
    for letter in "ab":
        for number in range(TABLES):
            folder = tmp_path / f"lake/pipeline/current/schema=shop/table={letter}{number}"
            (entry,) = (path.read_text() for path in folder.glob("*.json"))
            assert (entry.count("RENAME TABLE"), entry.count(f"a{number} TO b{number}")) == (1, 1)


@pytest.mark.parametrize("windows", [1, 10])
def test_a_load_looks_at_the_tables_that_are_there_in_time_as_they_are_many(tmp_path: Path, windows: int) -> None:
    asked = load_of(Changelog(tmp_path / "artifacts", 0, 100))
    lakes = {}
    for count in (200, 800):
        lakes[count] = open_store((tmp_path / f"lake-{count}").as_uri())
        for number in range(count):
            folder = table_folder(asked.index.pipeline, "current", TableName("shop", f"t{number}"))
            for window in range(windows):
                lakes[count].put(f"{folder}/window={window}-{window + 1}.json", b"{}")
    assert len(known_tables(lakes[200], asked)) == 200
    assert_linear(lambda count: known_tables(lakes[count], asked), 200)
