"""What Spark is told when a job is submitted, by Airflow and by the command line alike."""

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store


def spark_properties(declared: Pipeline | Store) -> dict[str, str]:
    """The properties of every job of a pipeline or a store: those of its ``spark.conf``, which replace ours.

    Tasks carry connections. PySpark writes tasks, and functions of more than 1 MB, to files in Spark's local folder on their way
    to the JVM, and the JVM may put them into files there when memory is short: with I/O encryption none of these can be read.
    """
    ours = {"spark.ui.enabled": "false", "spark.log.level": "WARN", "spark.io.encryption.enabled": "true"}
    return {**ours, **declared.spark.conf}
