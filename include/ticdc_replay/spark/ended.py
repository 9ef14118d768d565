"""How many tasks of a running query have ended, as Spark itself knows."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from ticdc_replay.spark.session import is_remote


@contextmanager
def counted(spark: SparkSession, name: str) -> Iterator[Callable[[], int]]:
    """Gives a function that counts the tasks that have ended of the query that runs inside, which Spark's UI calls *name*."""
    with (_by_handler if is_remote(spark) else _by_tracker)(spark, name) as tasks_ended:
        yield tasks_ended


@contextmanager
def _by_tracker(spark: SparkSession, name: str) -> Iterator[Callable[[], int]]:
    context, group = spark.sparkContext, uuid4().hex
    tracker = context.statusTracker()

    def tasks_ended() -> int:
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
        stages = [tracker.getStageInfo(stage_id) for job in jobs for stage_id in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    context.setJobGroup(group, name)
    yield tasks_ended


@contextmanager
def _by_handler(spark: Any, name: str) -> Iterator[Callable[[], int]]:
    ended = 0

    def heard(stages: Any, **_: Any) -> None:
        nonlocal ended
        ended = sum(stage.num_completed_tasks for stage in stages or ())

    register = getattr(spark, "registerProgressHandler", None)  # not before Spark 4.0
    if register is None:
        yield lambda: 0
        return
    tag = re.sub(r"[,\s]+", "-", name)
    spark.addTag(tag)
    register(heard)
    try:
        yield lambda: ended
    finally:
        spark.removeProgressHandler(heard)
        spark.removeTag(tag)
