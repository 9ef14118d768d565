"""Which topics a changefeed's tables may be in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule, SourceTable
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain.table_patterns import TablePatterns


def rule(matcher, topic=None, **members):
    return DispatchRule(TableFilter(tuple(matcher)), topic=TopicExpression(topic) if topic else None, **members)


BY_TABLE = Dispatch((rule(["shop.*", "!shop.log"], "cdc_{schema}_{table}"), rule(["audit.*"], "audit")))
EXISTING = ["cdc_shop_orders", "cdc_shop_log", "cdc_hr_people", "audit", "orders", "__consumer_offsets", "cdc_shop_"]


def test_topics_of_the_rules_are_told_from_others():
    # cdc_shop_log could be of a table whose name is `log` for Kafka only; here the exclusion is exact, and no name is lost.
    assert BY_TABLE.topics_among(EXISTING) == ["audit", "cdc_shop_orders"]


def test_only_topics_that_may_hold_a_wanted_table_are_needed():
    assert BY_TABLE.topics_among(EXISTING, ["shop.*"]) == ["audit", "cdc_shop_orders"]
    assert BY_TABLE.topics_among(["cdc_shop_a", "cdc_shop_b"], ["SHOP.A"]) == ["cdc_shop_a"]
    assert BY_TABLE.topics_among(["cdc_shop_a_b"], ["shop.a b"]) == ["cdc_shop_a_b"]


@pytest.mark.parametrize("pattern", ["shop.[a-c]x", "shop.[!d]x", "shop.[ a]x", "shop.[]]x", "shop.[_]x"])
def test_a_choice_of_characters_selects_the_topics_of_the_tables_that_it_selects(pattern):
    names = ["ax", "dx", "]x", " x", "_x", "é"]
    wanted = [name for name in names if TablePatterns([pattern]).wants("shop", name)]
    assert wanted
    topics = {BY_TABLE.topic_of("shop", name, "main") for name in wanted}
    assert topics <= set(BY_TABLE.topics_among(topics, [pattern]))
    assert BY_TABLE.topics_among(["cdc_shop_y", "cdc_shop_axx"], [pattern]) == []


AVRO = Changefeed(
    protocol="avro",
    topic="main",
    timezone="UTC",
    dispatch=Dispatch((rule(["*.*"], "cdc_{schema}_{table}"),)),
)


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("shop.a_b", ["a-b", "a.b", "a_b"]),
        ("shop.A_?", ["a-b", "a.b", "a_b", "a_c"]),
        ("shop.a?b", ["a-b", "a.b", "a_b", "axb"]),
        ("shop.*_b", ["a-b", "a.b", "a_b"]),
        ("shop._1a", ["-1a", "1a", "_1a"]),
        ("shop.?1a", ["-1a", "1a", "_1a"]),
        ("shop._*", ["-1a", "1a", "_1a"]),
        ("shop.__a", []),
        ("shop.ab", ["ab"]),
        ("_9.x", ["cdc_9_x"]),
    ],
)
def test_a_name_of_avro_selects_the_topics_of_all_tables_that_have_it(pattern, selected):
    existing = [f"cdc_shop_{name}" for name in ("a-b", "a.b", "a_b", "ab", "axb", "a_c", "1a", "_1a", "-1a")] + [
        "cdc_9_x"
    ]
    full = [name if name.startswith("cdc_") else f"cdc_shop_{name}" for name in selected]
    assert AVRO.topics_among(existing, [pattern]) == sorted(full)


NAMES = st.text(st.sampled_from("ab1_-. é$]"), min_size=1, max_size=4)


@given(NAMES, NAMES, st.data())
def test_no_topic_of_a_table_that_avro_s_names_select_is_left_out(schema, table, data):
    def in_avro(name):
        bare = "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
        return f"_{bare}" if bare[0].isdigit() else bare

    def pattern_of(name):
        return "".join(data.draw(st.sampled_from((char, "?", f"[{char}]"))) for char in name)

    pattern = f"{pattern_of(in_avro(schema))}.{pattern_of(in_avro(table))}"
    assert TablePatterns([pattern]).wants(in_avro(schema), in_avro(table))
    topic = AVRO.topic_of(schema, table)
    assert AVRO.topics_among([topic], [pattern]) == [topic]


def test_an_internal_topic_is_never_one_of_a_changefeed():
    assert Dispatch((rule(["*.*"], "{schema}_{table}"),)).topics_among(["__consumer_offsets"]) == []


def test_fixed_topics_are_known_without_asking_kafka():
    assert BY_TABLE.fixed_topics() == ("audit",)


def test_routed_names_lead_back_to_the_source():
    dispatch = Dispatch(
        (
            rule(["shop.*"], "t_{schema}", target_schema="{schema}_bak"),
            rule(["a.*"], target_schema="merged"),
            rule(["b.*"], target_schema="merged"),
            rule(["x.orders"], "x", target_table="{table}_new"),
        )
    )
    assert dispatch.routed(SourceTable("shop", "orders")) == ("shop_bak", "orders")
    assert dispatch.source_of("shop_bak", "orders") == SourceTable("shop", "orders")
    assert dispatch.topic_of("shop_bak", "orders", "main") == "t_shop"
    assert dispatch.topic_of("x", "orders_new", "main") == "x"
    assert dispatch.topic_of("merged", "orders", "main") is None, "of a or of b"
    assert dispatch.scatters("merged", "orders", raw_changes=False) is False


def test_a_name_with_braces_is_a_name():
    dispatch = Dispatch((rule(["*.*"], target_schema="{schema}_x"),))
    assert dispatch.routed(SourceTable("{table}", "t")) == ("{table}_x", "t")


@pytest.mark.parametrize(
    ("members", "raw_changes", "scatters"),
    [
        ({"partition": "table"}, True, False),
        ({"partition": "index-value"}, False, False),
        ({"partition": "index-value"}, True, True),
        ({"partition": "index-value", "index": "u"}, False, True),
        ({"partition": "columns", "columns": ("id",)}, False, True),
        ({"partition": "ts"}, False, True),
    ],
)
def test_whether_versions_of_a_row_scatter(members, raw_changes, scatters):
    dispatch = Dispatch((rule(["shop.*"], **members),))
    assert dispatch.scatters("shop", "orders", raw_changes=raw_changes) is scatters
    assert dispatch.scatters("hr", "people", raw_changes=raw_changes) is False


def test_names_that_lost_characters_may_be_of_any_table_that_a_rule_means():
    scattering = Dispatch((rule(["shop.`order-items`"], partition="ts"), rule(["shop.*"])))
    assert not scattering.scatters("shop", "order_items", raw_changes=False)
    assert scattering.may_scatter("shop", "order_items", raw_changes=False)
    assert not scattering.may_scatter("shop", "orders", raw_changes=False)


@pytest.mark.parametrize(
    ("rules", "topic", "is_possible"),
    [
        ([rule(["*.*"], "{schema}_{table}")], "shop_order_items", True),
        ([rule(["*.*"], "{schema}_{table}")], "shop_order-items", True),
        ([rule(["*.*"], "{schema}.{table}")], "shop.order.items", True),
        ([rule(["*.*"], "{schema}_{table}")], "shop_orders", False),
        ([rule(["*.*"], "{schema}_{table}")], "shop_order_items_", True),
        ([rule(["*.*"], "{schema}_{table}")], "main", False),
        ([rule(["*.*"], "{schema}")], "shop", True),
        ([rule(["*.*"], "{schema}")], "shop_x", False),
        ([rule(["shop.*"], "shop"), rule(["hr.*"], "hr")], "shop", True),
        ([rule(["shop.*"], "shop"), rule(["hr.*"], "hr")], "hr", False),
        ([rule(["shop.*"], "shop"), rule(["hr.*"], "hr")], "main", False),
        ([rule(["shop.order_*"], "orders")], "orders", True),
        ([rule(["shop.order_*"], "orders")], "main", True),
        ([rule(["shop.`order-items`"], "odd")], "odd", True),
        ([rule(["shop.order[a-z]items"], "odd")], "odd", True),
        ([rule(["shop./x/"], "odd")], "odd", True),
        ([rule(["shop.ordered"], "odd")], "odd", False),
        ([rule(["shop.*", "!shop.order_items"], "rest")], "rest", True),
        ([rule(["shop.*", "!shop.*"], "rest")], "rest", False),
        ([rule(["hr.*"], target_schema="shop"), rule(["*.*"], "{schema}_{table}")], "hr_people", True),
    ],
)
def test_topics_that_tables_may_go_to_whose_names_lost_characters(rules, topic, is_possible):
    """The table is shop.order_items in Avro: a table of another name with ``-`` or the like may be called so."""
    assert Dispatch(tuple(rules)).may_send("shop", "order_items", topic, "main") is is_possible


def test_a_name_that_lost_nothing_is_of_one_topic_only():
    by_name = Dispatch((rule(["shop.order*"], "orders"), rule(["!shop.items", "shop.*"], "rest")))
    topics = ("orders", "rest", "main")
    assert [topic for topic in topics if by_name.may_send("shop", "orders", topic, "main")] == ["orders"]
    assert [topic for topic in topics if by_name.may_send("shop", "lines", topic, "main")] == ["rest"]
    assert [topic for topic in topics if by_name.may_send("hr", "orders", topic, "main")] == ["main"]
    digits = Dispatch((rule(["2024.*"], "old"), rule(["*.*"], "{schema}")))
    topics = ("old", "2024", "_2024")
    assert [topic for topic in topics if digits.may_send("_2024", "orders", topic, "main")] == ["old", "2024", "_2024"]
