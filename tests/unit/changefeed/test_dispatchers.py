"""Dispatcher rules and column selectors, from TOML."""

import pickle

import pytest

from ticdc_replay.changefeed.rules import SourceTable
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.errors import ConfigError


def dispatch_of(rules, protocol="open-protocol", head=""):
    toml = f"{head}\n[sink]\ndispatchers = [{rules}]"
    return from_sink_uri(f"kafka://b/main?protocol={protocol}", toml, "UTC", "shop.yaml").changefeed


@pytest.mark.parametrize(
    ("rule", "partition"),
    [
        ("partition = 'index-value'", "index-value"),
        ("dispatcher = 'ts'", "ts"),
        ("partition = 'TS'", "ts"),
        ("partition = 'columns', columns = ['x']", "columns"),
        ("dispatcher = 'rowid'", "index-value"),
        ("partition = 'default'", "table"),
        ("partition = 'something'", "table"),
        ("", "table"),
    ],
)
def test_partition_rules_have_old_and_new_names(rule, partition):
    members = f"matcher = ['a.*']{', ' if rule else ''}{rule}"
    assert dispatch_of(f"{{{members}}}").dispatch.rule_of(SourceTable("a", "t")).partition == partition


def test_of_several_rules_the_first_that_matches_counts():
    changefeed = dispatch_of(
        "{matcher = ['a.*', '!a.big'], topic = 'a_{table}'}, {matcher = ['a.big'], partition = 'ts'},"
        "{matcher = ['*.*'], topic = 'rest', partition = 'index-value', index = 'u'}"
    )
    assert changefeed.topic_of("a", "t") == "a_t"
    assert changefeed.topic_of("a", "big") == "main"
    assert changefeed.topic_of("b", "t") == "rest"
    assert [changefeed.scatters(*name) for name in (("a", "t"), ("a", "big"), ("b", "t"))] == [False, True, True]


def test_letter_case_matters_only_where_the_changefeed_says_so():
    rule = "{matcher = ['Shop.*'], topic = 'shop'}"
    assert dispatch_of(rule).topic_of("SHOP", "t") == "shop"
    assert dispatch_of(rule, head="case-sensitive = true").topic_of("SHOP", "t") == "main"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{matcher = ['a'], topic = 't'}", r"dispatchers\[0\]\.matcher: 'a': must be of the form schema\.table"),
        ("{matcher = ['a.b-c']}", r"'-' must stand in quotes"),
        ("{matcher = ['@file']}", r"a file on TiCDC's machine"),
        ("{matcher = 'a.*'}", r"matcher: must be an array of texts"),
        ("{matcher = ['a.*'], topic = 'a b'}", r"dispatchers\[0\]\.topic: 'a b' is not allowed"),
        ("{matcher = ['a.*'], topic = '{db}'}", r"is not allowed; it must be made of"),
        ("{matcher = ['a.*'], topic = '{column:x}'}", r"TiCDC has that for Pulsar only"),
        ("{matcher = ['a.*'], partition = 'columns'}", r"columns: missing"),
        ("{matcher = ['a.*'], partition = 'ts', dispatcher = 'table'}", r"exclude each other"),
        ("{matcher = ['a.*'], target-schema = '{db}'}", r"target-schema: '\{db\}' is not allowed"),
        ("{matcher = ['a.*'], partition = 5}", r"partition: must be a text"),
    ],
)
def test_a_rule_that_ticdc_refuses_is_told_with_its_place(rule, message):
    with pytest.raises(ConfigError, match=message):
        dispatch_of(rule)


def test_avro_wants_both_names_in_its_topics():
    assert dispatch_of("{matcher = ['*.*'], topic = '{schema}-{table}'}", "avro").topic_of("a", "t") == "a-t"
    with pytest.raises(ConfigError, match="both"):
        dispatch_of("{matcher = ['*.*'], topic = '{table}'}", "avro")


def test_unknown_keys_of_a_rule_are_warnings():
    toml = "[sink]\ndispatchers = [{matcher = ['*.*'], topics = 'x'}]"
    (warning,) = from_sink_uri("kafka://b/main?protocol=simple", toml, "UTC", "shop.yaml").warnings
    assert "sink.dispatchers[0].topics is unknown to TiCDC" in warning


def test_a_column_selector_tells_which_columns_stay():
    toml = "[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['*', '!Pass*']}]"
    dispatch = from_sink_uri("kafka://b/main?protocol=simple", toml, "UTC", "shop.yaml").changefeed.dispatch
    selector = dispatch.selector_of(SourceTable("shop", "users"))
    assert [selector.columns.keeps(name) for name in ("id", "password")] == [True, False]
    assert dispatch.selector_of(SourceTable("other", "users")) is None


def test_a_copy_that_went_to_another_process_has_the_same_hash():
    changefeed = dispatch_of("{matcher = ['a.*'], topic = 'x', partition = 'index-value'}, {matcher = ['b.*']}")
    copy = pickle.loads(pickle.dumps(changefeed))
    assert copy == changefeed
    assert copy.hash == changefeed.hash
