"""Which statements or writes of an operation a test breaks: at night all, otherwise a few."""

import random
from collections.abc import Callable

from tests.support.examples import NIGHTLY

NEVER = 0
"""The number of no statement."""


def die_at_statements(attempt: Callable[[int], int], few: int = 3, every: int = 1) -> int:
    """Call *attempt* with ``NEVER``, then with numbers of the statements that this came to. Returns how many those are.

    *attempt* breaks at the statement of that number, the first being 1, checks what is left, and returns the number of
    statements that it saw. It is called for the first statement, the last one and others between: at night for each
    *every*-th, otherwise for so many that it is *few*, spread evenly from a random start; of a single one, for any. A
    failure names its statement.
    """
    count = attempt(NEVER)
    assert count, "no statement was seen"
    for number in _numbers(count, -(-count // every) if NIGHTLY else few):
        try:
            attempt(number)
        except Exception as error:
            error.add_note(f"It broke at statement {number} of {count}.")
            raise
    return count


def _numbers(count: int, few: int) -> list[int]:
    """*few* of the numbers from 1 to *count*, or all if they are not more."""
    if count <= few:
        return list(range(1, count + 1))
    if few == 1:
        return [random.randint(1, count)]
    step = (count - 2) / max(1, few - 2)
    start = random.random()
    return [1, *(2 + int((number + start) * step) for number in range(few - 2)), count]
