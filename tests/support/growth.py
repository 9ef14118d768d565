"""How the cost of work grows with its input: by processor time of this process, so that a loaded machine does not matter."""

import gc
import time
from collections.abc import Callable

_RUNS = 3
_TIMES = 4
_MOST = 9.0
"""What ``_TIMES`` the input may cost of the work on the input: 4 where it is linear, 16 where it is quadratic."""


def cost(work: Callable[[], object], runs: int = _RUNS) -> float:
    """Seconds of processor time of *work*, the least of several *runs*."""
    return min(_once(work) for _ in range(runs))


def growth(work: Callable[[int], object], size: int) -> float:
    """What *work* of ``_TIMES`` *size* costs, as a multiple of what that of *size* does.

    Both are run in turns: a processor that is shared is slow for seconds, and would make one of the two dear.
    """
    pairs = [(_once(lambda: work(size)), _once(lambda: work(_TIMES * size))) for _ in range(_RUNS)]
    return min(more for _, more in pairs) / min(once for once, _ in pairs)


def _once(work: Callable[[], object]) -> float:
    gc.disable()  # and no collection before: of a test process with a large heap it takes half a second
    try:
        started = time.process_time()
        work()
        return time.process_time() - started
    finally:
        gc.enable()


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Fail where *work* of ``_TIMES`` *size* costs far more than so many times as much, each time it is measured."""
    measured: list[float] = []
    while len(measured) < 3 and (not measured or measured[-1] >= _MOST):
        measured.append(growth(work, size))
    assert min(measured) < _MOST, f"{_TIMES} times the input costs {min(measured):.1f} times as much"
