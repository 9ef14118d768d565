"""Jobs without an engine."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ticdc_replay.drivers.progress import Progress
from ticdc_replay.drivers.runner import NumberedTask, TaskRunner, Work
from ticdc_replay.targets.sql import Sql

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_process(work: Callable[[Task], Result], tasks: Sequence[Task], name: str) -> list[Result]:
    """An ``Execute`` that runs one task after the other, in this process."""
    return [work(task) for task in tasks]


class InProcess(TaskRunner):
    """Runs one task after the other, in this process, and divides work as for two. Targets in a lake get *sql*."""

    def __init__(self, sql: Sql | None = None) -> None:
        self._sql = sql

    @property
    def parallelism(self) -> int:
        return 2

    @property
    def sql(self) -> Sql | None:
        return self._sql

    @property
    def address(self) -> tuple[str, str]:
        return "", ""

    def outcomes(self, work: Work, tasks: Sequence[NumberedTask], progress: Progress) -> list[Any]:
        return [work.outcome_of(task, is_last_attempt=True) for task in tasks]
