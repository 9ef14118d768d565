"""Runs one function over many tasks on the executors, and brings its errors back as what they are.

Tasks reach Spark here, and records go from task to task in ``exchange``: no other module knows of RDDs.
"""

import gc
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar
from uuid import uuid4
from zipimport import zipimporter

from pyspark import TaskContext
from pyspark.sql import SparkSession

from ticdc_replay.domain.errors import PermanentError, TicdcReplayError, TransientError
from ticdc_replay.domain.progress import Measured
from ticdc_replay.spark.progress import Progress, telling

log = logging.getLogger(__name__)

_frozen_modules = 0
"""How many modules were there when this process last froze them."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class Sizes(NamedTuple):
    """How much each task has to do, in *units* such as messages, for the lines of progress."""

    sizes: Sequence[int]
    units: str


def run_tasks(
    spark: SparkSession,
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    name: str,
    sizes: Sizes | None = None,
) -> list[Result]:
    """*work* of each of *tasks*, one Spark task each, results in the order of *tasks*.

    While they run, the log shows how much of *sizes* is done, by default of the sizes of ``Measured`` tasks, else how many tasks;
    *work* reports it with ``report_done``.

    A TransientError is tried again by Spark as often as the cluster allows, a PermanentError is not; an error of a file, such as
    a disk that is full, counts as a TransientError. Raises the first PermanentError of the library, else the first
    TransientError, with its own type.
    """
    if not tasks:
        return []
    context = spark.sparkContext
    last_attempt = _attempts(spark) - 1
    counted = sizes or _measured(tasks)
    group = uuid4().hex
    progress = Progress(spark, group, name, counted.sizes, counted.units)
    channel = progress.channel

    def guarded(numbered: tuple[int, int, Task]) -> Result | TicdcReplayError:
        number, size, task = numbered
        try:
            with _file_errors(name), telling(channel, number, size):
                return work(task)
        except TransientError as error:
            running = TaskContext.get()
            if running is not None and running.attemptNumber() < last_attempt:
                raise
            return error
        except PermanentError as error:
            return error
        finally:
            _drop_zip_finders()
            _freeze_modules()

    context.setJobGroup(group, name)
    begin = time.perf_counter()
    numbered = list(zip(range(len(tasks)), counted.sizes, tasks, strict=True))
    with progress:
        outcomes = context.parallelize(numbered, len(tasks)).map(guarded).collect()
    log.info("%s: %d tasks in %.1f s", name, len(tasks), time.perf_counter() - begin)
    errors = [outcome for outcome in outcomes if isinstance(outcome, TicdcReplayError)]
    if errors:
        raise next((error for error in errors if isinstance(error, PermanentError)), errors[0])
    return [outcome for outcome in outcomes if not isinstance(outcome, TicdcReplayError)]


def look_at_executors(spark: SparkSession, look: Callable[[int], Result]) -> list[Result]:
    """What *look* finds in as many tasks as the executors have cores. It runs where the library may be missing.

    Raises Py4JJavaError where an executor can't run Python at all.
    """
    context = spark.sparkContext
    tasks = context.defaultParallelism
    context.setJobDescription("look at the executors")
    return list(context.parallelize(range(tasks), tasks).map(look).collect())


@contextmanager
def _file_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransientError(f"{name}: {error}; is a disk full, or the store of the artefacts away?") from error


def _measured(tasks: Sequence[object]) -> Sizes:
    sizes = [task.size for task in tasks if isinstance(task, Measured)]
    if len(sizes) < len(tasks):
        return Sizes([1] * len(tasks), "tasks")
    return Sizes(sizes, next(task.units for task in tasks if isinstance(task, Measured)))


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


def _attempts(spark: SparkSession) -> int:
    """How often Spark starts one task: local masters have their own number, ``local[N,F]``, and 1 without it."""
    master = spark.sparkContext.master
    if master.startswith("local"):
        found = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", master)
        return int(found.group(1)) if found else 1
    return int(spark.conf.get("spark.task.maxFailures", "4") or "4")
