"""Numbers that are text on the wire, as Canal-JSON writes all of them: whole columns at once, and nothing TiCDC does not write.

A column is read as one JSON array: at 0.06 µs a value, and stricter than ``int`` and ``float``, which also take ``1_0``, blanks,
``inf`` and foreign digits. NULL is None and stays None.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ticdc_replay.codecs.neutral import (
    MAX_UINT64,
    Float32,
    Neutral,
    as_they_are,
    in_64_bits,
    integer,
    present,
    with_nulls,
)
from ticdc_replay.domain.withheld import withheld

_INTEGER = re.compile(r"-?[1-9][0-9]*|0")
_REAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")

_NEGATIVE_ZERO = re.compile(rb"-0(?!\.)")


def integers(low: int, high: int) -> Neutral:
    """Integers from *low* to *high*; without leading zeros, ``+`` or ``-0``."""
    decode = msgspec.json.Decoder(list[integer(low, high)]).decode  # type: ignore[misc]
    checked = in_64_bits if high == MAX_UINT64 else as_they_are

    def neutral(values: Sequence[str | None]) -> Sequence[int | None]:
        texts = present(values)
        joined = ",".join(texts).encode()
        if joined.translate(None, b"0123456789-,") or (b"-" in joined and b"-0" in joined):
            raise ValueError(f"{withheld(_first_not(_INTEGER, texts))} is not an integer")
        return with_nulls(values, checked(_read(decode, joined, texts)))

    return neutral


def _reals(annotation: Any) -> Neutral:
    decode = msgspec.json.Decoder(list[annotation]).decode

    def neutral(values: Sequence[str | None]) -> Sequence[float | None]:
        texts = present(values)
        joined = ",".join(texts).encode()
        if joined.translate(None, b"0123456789-.,"):
            raise ValueError(f"{withheld(_first_not(_REAL, texts))} is not a number")
        numbers = _read(decode, joined, texts)
        if b"-" in joined and _NEGATIVE_ZERO.search(joined):  # msgspec reads it as an integer, which has no sign
            numbers = [float(text) for text in texts]
        return with_nulls(values, numbers)

    return neutral


unsigned_64 = integers(0, MAX_UINT64)
"""Integers from 0 to 2^64 - 1."""
float_64 = _reals(float)
"""DOUBLE: numbers without exponent."""
float_32 = _reals(Float32)
"""FLOAT: numbers without exponent, of the size of a 32-bit number."""


def _read(decode: Callable[[bytes], list[Any]], joined: bytes, present: Sequence[str]) -> list[Any]:
    """The numbers in *joined*, the texts *present* with commas between them."""
    if not present:
        return []
    try:
        numbers = decode(b"[" + joined + b"]")
    except ValueError as error:
        raise ValueError(f"{withheld(present[0])}: {error}" if len(present) == 1 else str(error)) from None
    if len(numbers) != len(present):
        raise ValueError(f"{withheld(_first_not(_REAL, present))} is not a number")
    return numbers


def _first_not(pattern: re.Pattern[str], texts: Sequence[str]) -> str:
    return next((text for text in texts if not pattern.fullmatch(text)), "")
