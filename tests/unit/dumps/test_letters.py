"""Texts of numbers, found by their bytes: as a regular expression finds them."""

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.dumps.letters import are_integers, are_numbers, count

INTEGER, NUMBER = re.compile(rb"-?[0-9]+"), re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
NUMBERS = st.from_regex(NUMBER, fullmatch=True)
TEXTS = st.lists(st.none() | NUMBERS | st.text("0123456789.-+eE", max_size=6).map(str.encode) | st.binary(max_size=2))


@given(st.lists(st.none() | NUMBERS) | TEXTS, st.integers(0, 3))
def test_numbers_are_found_as_by_a_pattern(texts: list[bytes | None], first: int) -> None:
    array = pa.array([b"no number", *texts, b"none"], pa.binary()).slice(1, len(texts)).slice(min(first, len(texts)))
    present = [text for text in texts[first:] if text is not None]
    assert are_integers(array) == all(INTEGER.fullmatch(text) for text in present)
    assert are_numbers(array) == all(NUMBER.fullmatch(text) for text in present)
    assert count(array, b"-") == b"".join(present).count(b"-")
