"""Numbers that are text on the wire, as Canal-JSON writes all of them: whole columns at once, and nothing TiCDC does not write.

A column is read as one JSON array: at 0.06 µs a value, and stricter than ``int`` and ``float``, which also take ``1_0``, blanks,
``inf`` and foreign digits. NULL is None and stays None.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Neutral = Callable[[Sequence[Any]], Sequence[Any]]

_MAX_UINT64 = (1 << 64) - 1
_LARGEST_FLOAT32 = 3.4028235e38
_INTEGER = re.compile(r"-?[1-9][0-9]*|0")
_REAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")

_NEGATIVE_ZERO = re.compile(rb"-0(?!\.)")


def integers(low: int, high: int | None) -> Neutral:
    """Integers from *low* to *high*, which are 64-bit integers with sign; without leading zeros, ``+`` or ``-0``."""
    decode = msgspec.json.Decoder(list[Annotated[int, Meta(ge=low, le=high)]]).decode

    def neutral(values: Sequence[str | None]) -> Sequence[int | None]:
        present = _present(values)
        joined = ",".join(present).encode()
        if joined.translate(None, b"0123456789-,") or (b"-" in joined and b"-0" in joined):
            raise ValueError(f"{_first_not(_INTEGER, present)!r} is not an integer")
        return _with_nulls(values, _read(decode, joined, present))

    return neutral


def _reals(annotation: Any) -> Neutral:
    decode = msgspec.json.Decoder(list[annotation]).decode

    def neutral(values: Sequence[str | None]) -> Sequence[float | None]:
        present = _present(values)
        joined = ",".join(present).encode()
        if joined.translate(None, b"0123456789-.,"):
            raise ValueError(f"{_first_not(_REAL, present)!r} is not a number")
        numbers = _read(decode, joined, present)
        if b"-" in joined and _NEGATIVE_ZERO.search(joined):  # msgspec reads it as an integer, which has no sign
            numbers = [float(text) for text in present]
        return _with_nulls(values, numbers)

    return neutral


_natural = integers(0, None)

float_64 = _reals(float)
"""DOUBLE: numbers without exponent."""
float_32 = _reals(Annotated[float, Meta(ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32)])
"""FLOAT: numbers without exponent, of the size of a 32-bit number."""


def unsigned_64(values: Sequence[str | None]) -> Sequence[int | None]:
    """Integers from 0 to 2^64 - 1."""
    numbers = _natural(values)
    for number in numbers:
        if number is not None and number > _MAX_UINT64:
            raise ValueError(f"{number} is above the largest unsigned 64-bit integer")
    return numbers


def _present(values: Sequence[str | None]) -> Sequence[str]:
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def _with_nulls(values: Sequence[str | None], numbers: list[Any]) -> list[Any]:
    if len(numbers) == len(values):
        return numbers
    following = iter(numbers)
    return [None if value is None else next(following) for value in values]


def _read(decode: Callable[[bytes], list[Any]], joined: bytes, present: Sequence[str]) -> list[Any]:
    """The numbers in *joined*, the texts *present* with commas between them."""
    if not present:
        return []
    try:
        numbers = decode(b"[" + joined + b"]")
    except ValueError as error:
        raise ValueError(f"{present[0][:80]!r}: {error}" if len(present) == 1 else str(error)) from None
    if len(numbers) != len(present):
        raise ValueError(f"{_first_not(_REAL, present)!r} is not a number")
    return numbers


def _first_not(pattern: re.Pattern[str], texts: Sequence[str]) -> str:
    return next((text for text in texts if not pattern.fullmatch(text)), "")[:80]
