"""The jars of lake tables go together with Spark, and with the packages that read lake tables without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROWS = [{"id": 1, "name": "a"}, {"id": 3, "name": "c"}]


def write(spark: SparkSession, table: str, using: str) -> None:
    """Make *table* with three rows and delete one."""
    spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING {using}")
    spark.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")


def test_pyiceberg_reads_a_table_of_spark_through_the_same_catalog(lake_spark: SparkSession, tmp_path: Path) -> None:
    database, warehouse = tmp_path / "catalog.db", tmp_path / "warehouse"
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{database}",
        ".jdbc.schema-version": "V1",
        ".warehouse": str(warehouse),
    }.items():
        lake_spark.conf.set(f"spark.sql.catalog.jars{key}", value)
    lake_spark.sql("CREATE NAMESPACE jars.shop")
    write(lake_spark, "jars.shop.orders", "iceberg TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    catalog = SqlCatalog("jars", uri=f"sqlite:///{database}", warehouse=str(warehouse))
    table = catalog.load_table("shop.orders")
    assert table.inspect.delete_files().num_rows == 1
    assert table.scan().to_arrow().sort_by("id").to_pylist() == ROWS


def test_deltalake_reads_a_table_of_spark_with_deletion_vectors(lake_spark: SparkSession, tmp_path: Path) -> None:
    write(lake_spark, f"delta.`{tmp_path}`", "delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert len(list(tmp_path.glob("deletion_vector_*.bin"))) == 1
    found = QueryBuilder().register("orders", DeltaTable(tmp_path)).execute("SELECT * FROM orders ORDER BY id")
    assert pa.table(found).to_pylist() == ROWS
