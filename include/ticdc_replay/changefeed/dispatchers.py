"""The dispatcher rules and column selectors of a changefeed, from its configuration."""

from collections.abc import Mapping
from typing import Any, get_args

from ticdc_replay.changefeed.options import Options, texts_of
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch, Dispatcher, DispatchRule
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain.errors import ConfigError

_RULES, _SELECTORS = "sink.dispatchers", "sink.column-selectors"
# `rowid` is the old name of index-value; any unknown text means `table`.
_PARTITION_RULES: dict[str, Dispatcher] = {name: name for name in get_args(Dispatcher)} | {"rowid": "index-value"}


def dispatch_of(options: Options) -> Dispatch:
    """The rules of *options*. Raises ConfigError for one that TiCDC refuses."""
    case_sensitive = options.flag(False, key="case-sensitive")
    rules = []
    for at, table in enumerate(options.tables(_RULES)):
        rules.append(_rule(table, options.place(f"{_RULES}[{at}]"), case_sensitive=case_sensitive))
    selectors = []
    for at, table in enumerate(options.tables(_SELECTORS)):
        place = options.place(f"{_SELECTORS}[{at}]")
        columns = ColumnFilter(texts_of(table.get("columns"), f"{place}.columns"))
        columns.check(f"{place}.columns")
        selectors.append(ColumnSelector(_matcher(table, place, case_sensitive=case_sensitive), columns))
    return Dispatch(tuple(rules), tuple(selectors))


def _rule(table: Mapping[str, Any], place: str, *, case_sensitive: bool) -> DispatchRule:
    old_name, new_name = _text(table, "dispatcher", place), _text(table, "partition", place)
    if old_name and new_name:
        raise ConfigError(f"{place}: `dispatcher` and `partition` exclude each other; TiCDC refuses both")
    partition = _PARTITION_RULES.get((new_name or old_name).lower(), "table")
    columns = texts_of(table.get("columns"), f"{place}.columns")
    if partition == "columns" and not columns:
        raise ConfigError(f"{place}.columns: missing; partition = 'columns' needs the names of columns")
    return DispatchRule(
        matcher=_matcher(table, place, case_sensitive=case_sensitive),
        partition=partition,
        index=_text(table, "index", place) if partition == "index-value" else "",
        columns=columns if partition == "columns" else (),
        topic=_topic(_text(table, "topic", place), f"{place}.topic"),
        target_schema=_target(table, "target-schema", place),
        target_table=_target(table, "target-table", place),
    )


def _matcher(table: Mapping[str, Any], place: str, *, case_sensitive: bool) -> TableFilter:
    matcher = TableFilter(texts_of(table.get("matcher"), f"{place}.matcher"), case_sensitive)
    matcher.check(f"{place}.matcher")
    return matcher


def _topic(text: str, place: str) -> TopicExpression | None:
    if not text:
        return None
    expression = TopicExpression(text)
    expression.check(place)
    return expression


def _target(table: Mapping[str, Any], name: str, place: str) -> str:
    text = _text(table, name, place)
    if "{" in text.replace("{schema}", "").replace("{table}", ""):
        raise ConfigError(f"{place}.{name}: {text!r} is not allowed; placeholders are {{schema}} and {{table}}")
    return text


def _text(table: Mapping[str, Any], name: str, place: str) -> str:
    value = table.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{place}.{name}: must be a text")
    return (value or "").strip()
