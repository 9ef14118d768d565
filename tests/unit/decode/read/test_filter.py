"""Patterns of tables: what they want, and when one wants all that another does."""

from fnmatch import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns


@pytest.mark.parametrize(
    ("patterns", "narrow", "covered"),
    [
        (("*.*",), "shop.ord?rs*", True),
        (("shop.*",), "SHOP.orders", True),
        (("shop.*", "crm.a"), "crm.*", False),
        (("shop.a*",), "shop.ab*", True),
        (("shop.ab*",), "shop.a*", False),
        (("shop.a?",), "shop.a*", False),
        (("shop.a?",), "shop.a?", True),
        (("shop.a.b",), "shop.a.b", True),
        (("shop.[ab]",), "shop.[AB]", True),
        (("shop.[ab]",), "shop.a", False),
        (("shop.????",), "shop.[ab]", False),
    ],
)
def test_a_pattern_covers_another_if_it_wants_all_its_tables(patterns, narrow, covered):
    assert TablePatterns(patterns).covers(narrow) is covered


def test_a_pattern_without_a_dot_is_refused():
    with pytest.raises(ConfigError, match=r"not of the form schema\.table"):
        TablePatterns(("*.*",)).covers("orders")


PATTERN = st.text("ab*?", min_size=1, max_size=4)


@given(wide=PATTERN, narrow=PATTERN, name=st.text("ab", min_size=1, max_size=5))
def test_what_is_covered_is_wanted(wide, narrow, name):
    if TablePatterns([f"s.{wide}"]).covers(f"s.{narrow}") and fnmatch(name, narrow):
        assert TablePatterns([f"s.{wide}"]).wants("s", name)
