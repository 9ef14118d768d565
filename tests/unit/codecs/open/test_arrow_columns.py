"""What a column becomes as an Arrow array at once is what ``neutral`` makes of it, or it is left to ``neutral``."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.codecs.open.test_go_quote import quote
from ticdc_replay.codecs.open.go_quote import unquote, unquote_all, unquoted_array
from ticdc_replay.codecs.text_forms import DATE, DECIMAL, MOMENT, TIME, VECTOR, TextForm, utf8_array

PIECES = ["\\", "\\\\", r"\x4", r"\x41", "1", r"\u00a0", r"\U0001F600", "u", '"', r"\"", r"\n", "\n", r"\q", "é", "x"]


def one_by_one(values: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else unquote(value) for value in values]


@given(st.lists(st.none() | st.binary(max_size=20).map(quote)))
def test_a_column_that_go_quoted_is_unquoted_at_once(values: list[str | None]) -> None:
    array = unquoted_array(values)
    assert array is not None
    array.validate(full=True)
    assert array.to_pylist() == one_by_one(values) == unquote_all(values)


@given(st.lists(st.none() | st.lists(st.sampled_from(PIECES), max_size=4).map("".join), max_size=4))
def test_a_column_that_go_can_not_have_quoted_is_left_to_one_by_one(values: list[str | None]) -> None:
    array = unquoted_array(values)
    try:
        expected = one_by_one(values)
    except ValueError:
        assert array is None
    else:
        assert array is None or array.to_pylist() == expected


@pytest.mark.parametrize("values", [[r"\x4", "1"], ["\\", "n"], ["\\", "u00a0"], ["a\\"], ["a", "\n"]])
def test_an_escape_does_not_go_on_in_the_next_value(values: list[str]) -> None:
    assert unquoted_array(values) is None


@pytest.mark.parametrize(
    ("form", "values"),
    [
        (DECIMAL, ["1.50", None, "-0", "12345.6"]),
        (DATE, ["2024-02-30", "0000-00-00"]),
        (MOMENT, ["2024-01-01 00:00:00.123", None]),
        (TIME, ["-838:59:59", "00:00:00.1"]),
        (VECTOR, ["[1,2.5]", "[]"]),
        (DATE, []),
        (DATE, [None]),
    ],
)
def test_text_of_a_form_is_an_array_from_text_and_from_bytes(form: TextForm, values: list[str | None]) -> None:
    for sent in (values, [None if value is None else value.encode() for value in values]):
        array = form.arrow(sent)
        assert array is not None
        assert array.to_pylist() == values


@pytest.mark.parametrize(
    ("form", "values"),
    [
        (DATE, ["2024-01-01", "2024-1-01"]),
        (DATE, ["2024-01-012024-01-01", ""]),
        (DATE, ["٢024-01-01"]),
        (DECIMAL, ["1", ""]),
        (DECIMAL, ["1e3"]),
        (MOMENT, ["2024-01-01 00:00:00Z"]),
        (DATE, [b"\xff"]),
    ],
)
def test_text_of_another_form_is_left_to_neutral(form: TextForm, values: Sequence[Any]) -> None:
    assert form.arrow(values) is None


def test_text_that_is_not_utf_8_is_left_to_neutral() -> None:
    assert utf8_array([b"a", b"\xff"]) is None
    assert utf8_array(["é".encode(), None]).to_pylist() == ["é", None]
