"""Spark puts the numbers where they are expected to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

from ticdc_replay.spark.placement import one_per_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 7, 100, 1000])
def test_every_partition_gets_its_number(spark: SparkSession, partitions: int) -> None:
    numbers = one_per_partition(partitions)
    rows = spark.createDataFrame([(number,) for number in numbers], "number int").repartition(partitions, "number")
    found = rows.select("number", functions.spark_partition_id().alias("partition")).collect()
    assert sorted((row.partition, row.number) for row in found) == list(enumerate(numbers))
