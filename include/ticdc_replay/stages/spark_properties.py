"""What Spark is told when a job is submitted, by Airflow and by the command line alike."""

from ticdc_replay.config.pipeline import Pipeline


def spark_properties(pipeline: Pipeline) -> dict[str, str]:
    """The properties of every job of *pipeline*: those of its ``spark.conf``, which replace ours."""
    return {"spark.ui.enabled": "false", "spark.log.level": "WARN", **pipeline.spark.conf}
