"""A driver without Spark, whose tasks run in processes of this machine: ``python -m ticdc_replay.drivers``."""

import gc
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.drivers import main as driver
from ticdc_replay.drivers.main import begin_log, run_job
from ticdc_replay.drivers.progress import Progress
from ticdc_replay.drivers.runner import NumberedTask, TaskRunner, Work
from ticdc_replay.jobspec import EXIT_TRANSIENT, PROCESSES_VARIABLE

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a task is started, as in Spark."""
_LOOPBACK = "127.0.0.1"
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


class LocalRunner(TaskRunner):
    """Runs tasks in *pool*, which has *processes*."""

    worth_bytes = 512 * 1024  # its processes are forked, with what they import

    def __init__(self, pool: ProcessPoolExecutor, processes: int) -> None:
        self._pool = pool
        self._processes = processes

    @property
    def parallelism(self) -> int:
        return self._processes

    @property
    def sql(self) -> None:
        return None

    @property
    def address(self) -> tuple[str, str]:
        return _LOOPBACK, _LOOPBACK

    def outcomes(self, work: Work, tasks: Sequence[NumberedTask], progress: Progress) -> list[Any]:
        found: dict[int, Any] = {}
        progress.tasks_ended = lambda: len(found)
        running: dict[Future[Any], tuple[int, int]] = {}

        def start(number: int, attempt: int) -> None:
            future = self._pool.submit(_attempt, work, tasks[number], is_last=attempt == ATTEMPTS)
            running[future] = number, attempt

        try:
            for number in range(len(tasks)):
                start(number, 1)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, attempt = running.pop(future)
                    try:
                        found[number] = future.result()
                    except TransientError as error:
                        log.warning("%s: task %d is tried again: %s", work.name, number, error)
                        start(number, attempt + 1)
        except BrokenProcessPool as error:
            raise TransientError(
                f"{work.name}: a worker process was killed. If memory was short, lower local.processes or limits.split_bytes"
            ) from error
        return [found[number] for number in range(len(tasks))]


@contextmanager
def local_runner(processes: int) -> Iterator[LocalRunner]:
    """A runner of tasks in as many *processes*, which end with it, and with this process however that ends.

    They are forked here, with all that this process has imported, so that no worker imports it again. Call it before this
    process has a thread of its own or a client of any server: none survives a fork. The threads that numpy and Arrow start as
    they are imported do nothing yet, and both are made for forks.
    """
    gc.freeze()  # what was imported needs no search for cycles, and stays in memory once
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _begin_worker)
    try:
        pool.submit(int).result()  # the first task starts all workers
        yield LocalRunner(pool, processes)
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> None:
    """Run the job that the first two arguments of this process name, as ``drivers.main.main`` does; the others are modules that
    its workers need."""
    for name in sys.argv[3:]:
        import_module(name)
    with local_runner(processes_here()) as runner:
        driver.main(partial(run_job, runner), sys.argv[1:3])


def processes_here() -> int:
    """As many as ``PROCESSES_VARIABLE`` says, else as many as this process, or its container, may use cores."""
    return int(os.environ.get(PROCESSES_VARIABLE) or min(len(os.sched_getaffinity(0)), _cores_of_container()))


def _cores_of_container() -> int:
    """The limit of the control group (version 2) that this process is in; very many where it has none."""
    try:
        quota, period = _CPU_LIMIT.read_text().split()
        return max(1, round(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or the word ``max``
        return sys.maxsize


def _attempt(work: Work, task: NumberedTask, *, is_last: bool) -> Any:
    return work.outcome_of(task, is_last_attempt=is_last)


def _begin_worker() -> None:
    begin_log()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), name="parent", daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(EXIT_TRANSIENT)
