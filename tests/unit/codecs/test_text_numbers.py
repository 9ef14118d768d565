"""Numbers that are text: the ones TiCDC writes are read exactly, everything else is refused."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.codecs.text_numbers import float_32, float_64, integers, unsigned_64

INT8 = integers(-128, 127)


@given(st.lists(st.none() | st.integers(-128, 127)))
def test_integers_are_read_with_nulls_where_they_were(values: list[int | None]) -> None:
    assert INT8([None if value is None else str(value) for value in values]) == values


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_are_read_exactly(values: list[float | None]) -> None:
    texts = [None if value is None else format(Decimal(repr(value)), "f") for value in values]
    assert [repr(value) for value in float_64(texts)] == [repr(value) for value in values]


def test_the_whole_range_of_64_bits() -> None:
    assert unsigned_64(["18446744073709551615", "0", None]) == [18446744073709551615, 0, None]
    signed = integers(-(1 << 63), (1 << 63) - 1)
    assert signed(["-9223372036854775808", "9223372036854775807"]) == [-(1 << 63), (1 << 63) - 1]


def test_minus_zero_keeps_its_sign_as_a_float() -> None:
    assert [math.copysign(1, value) for value in float_64(["-0", "-0.0", "0"]) if value is not None] == [-1, -1, 1]


BAD = [
    "",
    " 1",
    "1 ",
    "+1",
    "01",
    "00",
    "-",
    "--1",
    "1-",
    "1_0",
    "1,2",
    "x",
    "null",
    "0x1",
    "1e2",
    "٣",
    "nan",
    "inf",
    "1.",
    ".5",
]


@pytest.mark.parametrize("text", [*BAD, "-0", "1.0", "128", "-129"])
def test_what_is_no_integer_is_refused_by_its_length(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|JSON|Expected"):
        INT8(["1", text, None])
    with pytest.raises(ValueError, match=rf"a text of {len(text)} character"):
        INT8([text])


@pytest.mark.parametrize("text", [*BAD, "-00.5", "9" * 400])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|JSON|out of range"):
        float_64(["1.5", text])


@pytest.mark.parametrize("text", ["18446744073709551616", "-1", "9" * 100])
def test_what_has_more_than_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"from 0 to|>= 0"):
        unsigned_64(["1", text])


def test_what_is_larger_than_a_float_is_refused() -> None:
    assert float_32(["340282350000000000000000000000000000000"]) == [3.4028235e38]
    with pytest.raises(ValueError, match="Expected"):
        float_32(["340282360000000000000000000000000000000"])
