"""Topic rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changefeed.topic_expression import TopicExpression


@pytest.mark.parametrize(
    ("expression", "schema", "table", "topic"),
    [
        ("cdc_{schema}_{table}", "shop", "orders", "cdc_shop_orders"),
        ("{schema}", "shop", "orders", "shop"),
        ("x-{table}.y", "shop", "orders", "x-orders.y"),
        ("fixed", "shop", "orders", "fixed"),
        ("{schema}_{table}", "my shop", "or/ders表", "my_shop_or_ders_"),
        ("{table}-{schema}", "a", "b", "b-a"),
        ("{schema}", ".", "x", "_"),
        ("{schema}", "..", "x", "__"),
        ("{schema}{table}", "a" * 200, "b" * 100, "a" * 200 + "b" * 49),
        ("{schema}_{table}", "{table}", "t", "_table__t"),
    ],
)
def test_the_topic_of_a_table(expression, schema, table, topic):
    assert TopicExpression(expression).topic(schema, table) == topic


def test_a_topic_can_be_read_in_several_ways():
    readings = TopicExpression("cdc_{schema}_{table}").readings("cdc_my_shop_orders")
    assert set(readings) == {("my", "shop_orders"), ("my_shop", "orders")}


def test_what_an_expression_leaves_out_is_unknown():
    assert list(TopicExpression("x_{table}").readings("x_orders")) == [(None, "orders")]
    assert list(TopicExpression("x_{table}").readings("y_orders")) == []
    assert list(TopicExpression("fixed").readings("fixed")) == [(None, None)]
    assert list(TopicExpression("{schema}-{schema}").readings("a-b")) == []


expressions = st.lists(st.sampled_from(["{schema}", "{table}", "_", "x", ".", "-"]), min_size=1, max_size=5).map(
    "".join
)


@given(expressions, st.text(min_size=1, max_size=64), st.text(min_size=1, max_size=64))
def test_a_table_s_own_topic_can_be_read_as_that_table(text, schema, table):
    expression = TopicExpression(text)
    topic = expression.topic(schema, table)
    readings = set(expression.readings(topic))
    plain = {name: TopicExpression("x{schema}").topic(name, "t")[1:] for name in (schema, table)}
    expected = (
        plain[schema] if "{schema}" in expression.placeholders else None,
        plain[table] if "{table}" in expression.placeholders else None,
    )
    assert expected in readings or (None, None) in readings or topic in ("_", "__")
