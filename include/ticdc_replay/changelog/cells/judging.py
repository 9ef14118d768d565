"""The two ways a column of values becomes cells, and what both say of a value that does not fit.

The fast way casts the column at once; Arrow refuses it as a whole when one value does not fit. Then the slow way judges each
value by itself: it fits, or the typed cell can't hold it (``exact``), or it is not of the column's kind at all (``bad``). What
a value becomes must not depend on its neighbours, so both ways accept the same values; a test holds them to it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.domain.withheld import withheld

REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError, KeyError, TypeError)
"""What the fast way raises when a value of the column needs the slow way."""


class Converted(NamedTuple):
    """A column of cells. ``exact`` maps a position to its wire text, ``bad`` to the reason why it is no value."""

    array: pa.Array
    exact: dict[int, bytes]
    bad: dict[int, str]


class DoesNotFit(Exception):  # noqa: N818 - an outcome, not an error
    """The typed cell can't hold the value; ``text`` is what the wire had."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


def judged(values: Sequence[Any], judge: Callable[[Any], Any], build: Callable[[list[Any]], pa.Array]) -> Converted:
    """The slow way, at about 1 µs per value: *judge* returns what *build* takes, or raises DoesNotFit or ValueError."""
    values = values.to_pylist() if isinstance(values, pa.Array) else values
    fitting: list[Any] = []
    exact: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    for at, value in enumerate(values):
        kept = None
        if value is not None:
            try:
                kept = judge(value)
            except DoesNotFit as outcome:
                exact[at] = outcome.text
            except ValueError as error:
                bad[at] = str(error)
        fitting.append(kept)
    return Converted(build(fitting), exact, bad)


def array_of(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """*values* as an array of the type *arrow*, which they may be already."""
    return values if isinstance(values, pa.Array) and values.type == arrow else pa.array(values, arrow)


def refuse_other_kinds(values: Sequence[Any], kinds: set[type]) -> None:
    """Raises TypeError unless all *values* are exactly of one of *kinds*, where Arrow or a dict would be more lenient."""
    if not {*map(type, values)} <= kinds:
        raise TypeError(f"not all are {kinds}")


def within(array: pa.Array, low: int, high: int) -> bool:
    """Whether all of an integer array, nulls aside, is from *low* to *high*."""
    bounds = pc.min_max(array)
    smallest = bounds["min"].as_py()
    return smallest is None or (low <= smallest and bounds["max"].as_py() <= high)


def matched(pattern: re.Pattern[str], value: Any, what: str) -> re.Match[str]:
    """The match of the whole *value*. Raises ValueError for what is no text or does not match."""
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{withheld(value)} is not {what}")
    return match
