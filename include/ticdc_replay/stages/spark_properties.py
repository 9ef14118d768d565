"""What Spark is told when a job is submitted, by Airflow and by the command line alike."""

import sys

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store

PROGRESS_PROPERTY = "spark.ticdcReplay.progressSeconds"
"""Seconds between two lines of a job's log that tell its progress; 10 where it is not set."""


def spark_properties(declared: Pipeline | Store) -> dict[str, str]:
    """The properties of every job of a pipeline or a store: those of its ``spark.conf``, which replace ours.

    Tasks carry connections. PySpark writes tasks, and functions of more than 1 MB, to files in Spark's local folder on their way
    to the JVM, and the JVM may put them into files there when memory is short: with I/O encryption none of these can be read.

    Where ``spark.pyspark.python`` names the Python of executors, the driver is told to stay with this one.
    """
    ours = {"spark.ui.enabled": "false", "spark.log.level": "WARN", "spark.io.encryption.enabled": "true"}
    if "spark.pyspark.python" in declared.spark.conf:
        ours["spark.pyspark.driver.python"] = sys.executable
    return {**ours, **declared.spark.conf}
