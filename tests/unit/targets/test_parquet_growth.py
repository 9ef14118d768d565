"""What the DDL of many tables leaves in the lists of a Parquet target."""

from pathlib import Path

import pytest

from tests.changelogs import Changelog, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.targets.load import in_process, load

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
