"""How the cells of a column are read: the conversions to neutral values (``WireColumn.neutral``) that protocols share.

Each takes a whole column. NULL is None and stays None. A value that can't be of the column's type raises ValueError.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.withheld import withheld

Neutral = Callable[[Sequence[Any]], Sequence[Any]]
Arrow = Callable[[Sequence[Any]], Any]
"""See ``WireColumn.arrow``."""

MAX_UINT64 = (1 << 64) - 1
_MAX_INT64 = (1 << 63) - 1
_LARGEST_FLOAT32 = 3.4028235e38
_SEPARATOR = b"\x00"

_Value = TypeVar("_Value")

Float32 = Annotated[float, Meta(ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32)]
"""The type that msgspec reads a FLOAT as."""


class CellKind(NamedTuple):
    """How the cells of a column are read."""

    type: ColumnType
    neutral: Neutral
    arrow: Arrow | None = None


def integer(low: int, high: int) -> Any:
    """The type that msgspec reads integers from *low* to *high* as; beyond 64 bits with sign it knows no upper limit."""
    return Annotated[int, Meta(ge=low, le=high)] if high <= _MAX_INT64 else Annotated[int, Meta(ge=low)]


def present(values: Sequence[_Value | None]) -> Sequence[_Value]:
    """*values* without NULL."""
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def with_nulls(values: Sequence[Any], converted: Sequence[Any]) -> Sequence[Any]:
    """*converted*, which were made of those of *values* that are not NULL, with NULL where *values* have it."""
    if len(converted) == len(values):
        return converted
    following = iter(converted)
    return [None if value is None else next(following) for value in values]


def as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    """Values that need no conversion."""
    return values


def within(low: int, high: int) -> Neutral:
    """A conversion that refuses integers below *low* or above *high*."""

    def neutral(values: Sequence[int | None]) -> Sequence[int | None]:
        found = present(values)
        if found and not (low <= min(found) and max(found) <= high):
            wrong = next(value for value in found if not low <= value <= high)
            raise ValueError(f"{withheld(wrong)} is not from {low} to {high}")
        return values

    return neutral


in_64_bits = within(0, MAX_UINT64)
"""A conversion that refuses what is no integer of 64 bits without sign."""


def without_sign(values: Sequence[int | None]) -> list[int | None]:
    """Integers of 64 bits with sign as those without sign that have the same bits."""
    return [None if value is None else value & MAX_UINT64 for value in values]


def finite(values: Sequence[float | None]) -> Sequence[float | None]:
    """Refuse what TiDB can't store: infinity, and what is no number."""
    found = present(values)
    if not all(map(math.isfinite, found)):
        wrong = next(value for value in found if not math.isfinite(value))
        raise ValueError(f"{wrong} can't be in a column")
    return values


def texts(values: Sequence[bytes | None]) -> Sequence[str | bytes | None]:
    """Texts; those that are not UTF-8 stay bytes. Hot: 0.05 µs a value, by decoding them together."""
    encoded = present(values)
    try:
        found = _SEPARATOR.join(encoded).decode().split("\x00") if encoded else []
    except UnicodeDecodeError:
        return [None if value is None else _text(value) for value in values]
    if len(found) != len(encoded):
        return [None if value is None else value.decode() for value in values]
    return with_nulls(values, found)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
