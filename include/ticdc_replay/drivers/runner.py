"""Runs one function over many tasks, and brings its errors back as what they are: the contract, and what all runners share."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ticdc_replay.domain.errors import PermanentError, TicdcReplayError, TransientError
from ticdc_replay.domain.progress import Measured
from ticdc_replay.drivers.progress import Channel, Progress, telling
from ticdc_replay.targets.sql import Sql

log = logging.getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")


class Sizes(NamedTuple):
    """How much each task has to do, in *units* such as messages, for the lines of progress."""

    sizes: Sequence[int]
    units: str


class NumberedTask(NamedTuple):
    """A task with its place among all, and how much it has to do."""

    number: int
    size: int
    task: Any


class Work(NamedTuple):
    """What is done with each task, in a worker. Survives pickling where its function does."""

    function: Callable[[Any], Any]
    name: str
    """What errors call it."""
    channel: Channel | None
    """Where tasks report how far they are."""

    def outcome_of(self, numbered: NumberedTask, *, is_last_attempt: bool) -> Any:
        """What the function gives, or the library's error that it raised. A TransientError is raised unless
        *is_last_attempt*, so that the task is tried again."""

        def result() -> Iterator[Any]:
            with telling(self.channel, numbered.number, numbered.size):
                done = self.function(numbered.task)
            yield done

        return next(errors_as_values(result, self.name, is_last_attempt=is_last_attempt))


class TaskRunner(ABC):
    """Runs independent tasks of one job: in workers elsewhere, or in processes of this machine."""

    worth_bytes: int = 1
    """A decode makes no second task for less than about this: a worker reads it in less time than it needs to start."""

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """About how many tasks run at a time."""

    @property
    @abstractmethod
    def sql(self) -> Sql | None:
        """Spark SQL, for targets that Spark writes to; None where there is no Spark."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, str]:
        """The host that workers reach this process at, and the one to listen at; empty where they can't."""

    @abstractmethod
    def outcomes(self, work: Work, tasks: Sequence[NumberedTask], progress: Progress) -> list[Any]:
        """``Work.outcome_of`` of each task, in their order. *progress* may be told how many have ended.

        A task that raises a TransientError is tried again, a few times; a task may run more than once, also at a time.
        """

    def run(
        self, work: Callable[[Task], Result], tasks: Sequence[Task], name: str, sizes: Sizes | None = None
    ) -> list[Result]:
        """*work* of each of *tasks*, results in the order of *tasks*. Both survive pickling.

        While they run, the log shows how much of *sizes* is done, by default of the sizes of ``Measured`` tasks, else how many
        tasks; *work* reports it with ``report_done``.

        A TransientError is tried again a few times, a PermanentError is not; an error of a file, such as a disk that is full,
        counts as a TransientError. Raises the first PermanentError of the library, else the first TransientError, with its own
        type.
        """
        if not tasks:
            return []
        counted = sizes or _measured(tasks)
        numbered = [NumberedTask(*each) for each in zip(range(len(tasks)), counted.sizes, tasks, strict=True)]
        begin = time.perf_counter()
        with Progress(name, counted.sizes, counted.units, self.address) as progress:
            outcomes = self.outcomes(Work(work, name, progress.channel), numbered, progress)
        log.info("%s: %d tasks in %.1f s", name, len(tasks), time.perf_counter() - begin)
        raise_first(outcome for outcome in outcomes if isinstance(outcome, TicdcReplayError))
        return outcomes


def errors_as_values(
    work: Callable[[], Iterable[Result]], name: str, *, is_last_attempt: bool
) -> Iterator[Result | TicdcReplayError]:
    """The results of *work*, the step *name*, and last the error of the library that ended it.

    A TransientError is raised unless *is_last_attempt*, so that the task is tried again. An error of a file, such as a disk that
    is full, counts as a TransientError.
    """
    try:
        with _file_errors(name):
            yield from work()
    except TransientError as error:
        if not is_last_attempt:
            raise
        yield error
    except PermanentError as error:
        yield error


def raise_first(errors: Iterable[TicdcReplayError]) -> None:
    """Raise the first PermanentError of *errors*, else the first TransientError; return if there is none."""
    found = list(errors)
    if found:
        raise next((error for error in found if isinstance(error, PermanentError)), found[0])


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
