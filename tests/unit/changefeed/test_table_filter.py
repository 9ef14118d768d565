"""Matchers of tables, in TiDB's syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression


@pytest.mark.parametrize(
    ("patterns", "meant", "not_meant"),
    [
        (["*.*"], ["a.b", "a b.c-d"], []),
        (["shop.orders"], ["shop.orders", "SHOP.Orders"], ["shop.orders2", "shops.orders"]),
        (["shop*.o?ders"], ["shop.orders", "shop_1.oxders"], ["shop.oders"]),
        (["shop_[0-9].t", "shop_[!0-9].u"], ["shop_1.t", "shop_x.u"], ["shop_x.t", "shop_1.u", "shop_10.t"]),
        ([r"/^s\d+$/./ord/"], ["s12.orders", "s1.my_ord"], ["s.orders", "xs1.orders"]),
        (['"a.b".`c``d`'], ["a.b|c`d"], ["a.b"]),
        ([r"a\.b.c"], ["a.b|c"], ["axb.c"]),
        (["a.*", "!a.secret*", "a.secret_not"], ["a.t", "a.secret_not"], ["a.secret", "b.t"]),
        (["a.*", "# a comment", " !a.x "], ["a.t"], ["a.x"]),
        (["!a.x"], [], ["a.x", "a.y"]),
        (["数据*.表"], ["数据库.表"], ["数据库.表2"]),
        (["a[[^].t"], ["a[.t", "a^.t"], ["ab.t"]),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns, meant, not_meant):
    matcher = TableFilter(tuple(patterns))
    matcher.check("here")
    for names, expected in ((meant, True), (not_meant, False)):
        for name in names:
            schema, _, table = name.partition("|") if "|" in name else name.partition(".")
            assert matcher.matches(schema, table) is expected, name


def test_letter_case_can_matter():
    matcher = TableFilter(("Shop.*",), case_sensitive=True)
    assert matcher.matches("Shop", "t")
    assert not matcher.matches("shop", "t")


def test_columns_are_kept_by_the_last_pattern_in_any_letter_case():
    columns = ColumnFilter(("*", "!pass*", "passport"))
    columns.check("here")
    assert [columns.keeps(name) for name in ("id", "PassWord", "passport")] == [True, False, True]


names = st.text(st.sampled_from("abS_$-. 表"), min_size=1, max_size=6)
patterns = st.lists(
    st.builds(
        lambda sign, schema, table: f"{sign}`{schema}`.{table}",
        st.sampled_from(["", "!"]),
        names,
        st.sampled_from(["*", "a*", "[a-b]?", "/b/", r"\-x", "表"]),
    ),
    min_size=1,
    max_size=4,
)


@given(patterns, names, names)
def test_what_a_filter_means_is_possible_by_its_topic_too(texts, schema, table):
    matcher = TableFilter((*texts, f"`{schema}`.*") if len(texts) % 2 else tuple(texts))
    topic = TopicExpression("{schema}/{table}").topic(schema, table)
    seen = tuple(topic.split("/"))
    if matcher.matches(schema, table) and len(seen) == 2:
        assert matcher.may_match(*seen)
        assert matcher.may_match(None, seen[1])
        assert matcher.may_match(seen[0], None)
