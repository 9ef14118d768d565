"""Tasks on Spark's workers."""

import gc

import pytest
from pyspark.sql import SparkSession

from ticdc_replay.spark.tasks import SparkRunner

pytestmark = pytest.mark.spark


def test_modules_are_kept_out_of_a_worker_s_searches_for_cycles(spark: SparkSession) -> None:
    runner = SparkRunner(spark)
    runner.run(lambda _: None, range(4), "import what is needed")
    assert min(runner.run(lambda _: gc.get_freeze_count(), range(4), "count")) > 10_000
