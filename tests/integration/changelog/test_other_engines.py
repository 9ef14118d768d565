"""DuckDB and Spark read a committed changelog where it lies, as the user guide says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import read_index, read_rows
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "user-guide.md"
INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "amount": TEXT})
WIDER = table("shop.orders", {"id": INT, "amount": TEXT, "note": ColumnType("text", declared=True)}, valid_from=30)
ODD = ["2024", "a=b/c", "été", "with space", "per%cent", "dots.in.it", "+plus+", "20%2E", "1e5"]


@pytest.fixture
def index(tmp_path: Path) -> ChangelogIndex:
    changes = Changelog(tmp_path, 0, 100)
    changes.rows(ORDERS, [put(at, id=at, amount=f"{at}.5") for at in range(1, 20)], files=3)
    changes.rows(WIDER, [put(40, id=1, amount="1", note="n"), delete(50, id=2)])
    for number, name in enumerate(ODD):
        changes.rows(table(f"{name}.{name}" if "." not in name else f"s.{name}", {"id": INT}), [put(60, id=number)])
    return changes.write()


@pytest.fixture
def spark_as_told(spark: SparkSession) -> Iterator[SparkSession]:
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    assert setting in GUIDE.read_text()
    spark.conf.set(setting, "false")
    yield spark
    spark.conf.unset(setting)
    spark.catalog.dropTempView("orders")


def examples(language: str, marker: str, folder: Path, index: ChangelogIndex) -> str:
    """The example of the user guide that has *marker*, with the places of this changelog."""
    text = GUIDE.read_text().partition("## Read the changelog with other engines")[2]
    (found,) = (block for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if marker in block)
    assert isinstance(found, str)
    found = found.replace("file:///artifacts/shop", folder.as_uri()).replace("'runs/", f"'{folder}/runs/")
    return found.replace("RUN_HASH", index.run_hash)


def orders(folder: Path, index: ChangelogIndex) -> list[tuple[Any, ...]]:
    """What the library reads."""
    found = []
    for _, rows in read_rows(open_store(folder.as_uri()), index, ["shop.orders"]):
        for row in rows.to_pylist():
            after = row["after"] or {"id": None, "amount": None}
            found.append((row["_op"], row["_commit_ts"], after["id"], after["amount"]))
    return sorted(found, key=lambda row: row[1])


def names_and_keys(folder: Path, index: ChangelogIndex) -> set[tuple[str, str, str, int]]:
    store = open_store(folder.as_uri())
    return {
        (version.schema.name.schema, version.schema.name.table, version.version, row["_commit_ts"])
        for version, rows in read_rows(store, read_index(store, index.run_hash))
        for row in rows.to_pylist()
    }


def test_duckdb_reads_what_the_library_reads(tmp_path: Path, index: ChangelogIndex) -> None:
    found = duckdb.sql(examples("sql", "read_parquet", tmp_path, index)).fetchall()
    assert found == orders(tmp_path, index)
    assert len(found) == 21


def test_duckdb_tells_every_name_back(tmp_path: Path, index: ChangelogIndex) -> None:
    files = f"{tmp_path}/{changelog_root(index.run_hash)}/data/*/*/*/*.parquet"
    query = (
        f"SELECT schema, \"table\", version, _commit_ts FROM read_parquet('{files}', hive_partitioning = true, "
        "hive_types_autocast = false, union_by_name = true)"
    )
    assert set(duckdb.sql(query).fetchall()) == names_and_keys(tmp_path, index)


def test_the_library_reads_it_as_the_guide_shows(
    tmp_path: Path, index: ChangelogIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(examples("python", "read_rows", tmp_path, index), {})
    assert sum(int(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()) == 21


@pytest.mark.spark
def test_spark_reads_what_the_library_reads(tmp_path: Path, index: ChangelogIndex, spark_as_told: SparkSession) -> None:
    statements = examples("sql", "CREATE TEMPORARY VIEW", tmp_path, index).split(";")
    rows: list[Any] = []
    for statement in filter(str.strip, statements):
        rows = [tuple(row) for row in spark_as_told.sql(statement).collect()]
    assert rows == orders(tmp_path, index)
    data = spark_as_told.read.option("mergeSchema", "true").parquet(f"{tmp_path}/{changelog_root(index.run_hash)}/data")
    found = {tuple(row) for row in data.select("schema", "table", "version", "_commit_ts").collect()}
    assert found == names_and_keys(tmp_path, index)
