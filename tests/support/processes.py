"""Processes that do the same at the same time, each forked from one that has imported what they need."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "ticdc_replay.state"])
Result = TypeVar("Result")
_START_S = 120
"""How long the last may take to come on a machine that has much else to do."""

_all_there: Barrier


def at_once(number: int, function: Callable[..., Result], *arguments: Any) -> list[Result]:
    """What *function* returned in so many processes, called with the process's number and *arguments*. Raises what it raised."""
    barrier = _CONTEXT.Barrier(number)
    with ProcessPoolExecutor(number, _CONTEXT, _remember, (barrier,)) as pool:
        running = [pool.submit(_together, function, each, *arguments) for each in range(number)]
        return [each.result() for each in running]


def _remember(barrier: Barrier) -> None:
    global _all_there
    _all_there = barrier


def _together(function: Callable[..., Result], *arguments: Any) -> Result:
    _all_there.wait(_START_S)
    return function(*arguments)
