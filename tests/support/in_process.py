"""Loads without an engine."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_process(work: Callable[[Task], Result], tasks: Sequence[Task], name: str) -> list[Result]:
    """An ``Execute`` that runs one task after the other, in this process."""
    return [work(task) for task in tasks]
