"""Runs tasks on Spark's executors: in classic Spark and over Spark Connect in one way, a DataFrame of their numbers through
``mapInArrow``. ``exchange`` and the views of ``sql`` send Python to executors in the same way; no module knows of RDDs.
"""

import gc
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar
from zipimport import zipimporter

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from ticdc_replay.drivers.progress import Progress
from ticdc_replay.drivers.runner import NumberedTask, TaskRunner, Work
from ticdc_replay.spark.attempts import attempts_of, is_last_of
from ticdc_replay.spark.ended import counted
from ticdc_replay.spark.sealing import sealed
from ticdc_replay.spark.session import address_of
from ticdc_replay.spark.sql import SparkSql

_frozen_modules = 0
"""How many modules were there when this process last froze them."""

Result = TypeVar("Result")

_SPLITS = re.compile(r"splits=(\d+)")


class SparkRunner(TaskRunner):
    """Runs tasks on the executors of the session *spark*, each as one Spark task.

    A TransientError is tried again by Spark as often as the cluster allows.
    """

    worth_bytes = 4 * 1024 * 1024  # a Python worker imports the library in two seconds of a core

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def parallelism(self) -> int:
        """As many tasks as the executors have cores, or as many as Spark's configuration says."""
        # What Spark would do with a range says it without a job, over Connect as well.
        plan = self._spark.sql("EXPLAIN SELECT * FROM range(1000000)").collect()[0][0]
        found = _SPLITS.search(plan)
        assert found is not None, plan
        return int(found[1])

    @cached_property
    def sql(self) -> SparkSql:
        return SparkSql(self._spark)

    @property
    def address(self) -> tuple[str, str]:
        return address_of(self._spark)

    def outcomes(self, work: Work, tasks: Sequence[NumberedTask], progress: Progress) -> list[Any]:
        with counted(self._spark, work.name) as tasks_ended:
            progress.tasks_ended = tasks_ended
            # Each task on its own: a worker unpickles the one that it runs.
            pickled = [cloudpickle.dumps(task) for task in tasks]
            work_of = sealed(self._spark, partial(_outcome_of, work, pickled, attempts_of(self._spark)))
            return self._collect(work_of, len(tasks))

    def look(self, work: Callable[[int], Result], count: int) -> list[Result]:
        """What *work* gives in *count* tasks. It may run where the library is missing, and is not tried again.

        Raises PySparkException or Py4JError where an executor can't run Python with pyarrow at all.
        """
        return self._collect(work, count)

    def _collect(self, work: Callable[[int], Any], count: int) -> list[Any]:
        """*work* of each number up to *count*, one Spark task each."""

        # Pickled by value, since it also runs where the library is missing.
        def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow
            from pyspark import cloudpickle

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    outcome = cloudpickle.dumps(work(number))
                    yield pyarrow.record_batch(
                        {"number": pyarrow.array([number], "int64"), "outcome": pyarrow.array([outcome], "binary")}
                    )

        numbers = self._spark.range(0, count, 1, count)  # one number in each partition
        rows = numbers.mapInArrow(apply, "number long, outcome binary").collect()
        return [pickle.loads(row["outcome"]) for row in sorted(rows, key=lambda row: int(row["number"]))]


def _outcome_of(work: Work, pickled: Sequence[bytes], attempts: int, number: int) -> Any:
    try:
        return work.outcome_of(pickle.loads(pickled[number]), is_last_attempt=is_last_of(attempts))
    finally:
        _drop_zip_finders()
        _freeze_modules()


def _drop_zip_finders() -> None:
    """Drop this worker's cached finders of zip archives; the next import from one makes a new one.

    Spark invalidates all finders before every task, and each zip finder then reads its archive's list of names again: with
    one for every package of pyspark.zip and for Spark's core jar, 0.1 s a task.
    """
    cache = sys.path_importer_cache
    for path in [path for path, finder in cache.items() if isinstance(finder, zipimporter)]:
        del cache[path]


def _freeze_modules() -> None:
    """Take what modules consist of out of this worker's search for cycles, each time that modules were imported.

    Spark searches after every task, which takes 0.03 s with all that the library imports.
    """
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
