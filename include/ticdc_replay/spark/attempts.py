"""Which attempt at a task runs, and whether Spark would make another one."""

import re

from pyspark import TaskContext
from pyspark.sql import SparkSession


def attempts_of(spark: SparkSession) -> int:
    """How often Spark starts one task: local masters have their own number, ``local[N,F]``, and 1 without it."""
    master = spark.conf.get("spark.master", None) or ""
    if master.startswith("local"):
        found = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", master)
        return int(found.group(1)) if found else 1
    return int(spark.conf.get("spark.task.maxFailures", None) or "4")


def is_last_of(attempts: int) -> bool:
    """Whether the running task is the last of so many *attempts* at it."""
    running = TaskContext.get()
    return running is None or running.attemptNumber() >= attempts - 1
