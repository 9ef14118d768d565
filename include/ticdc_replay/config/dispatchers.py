"""The dispatcher rules of a changefeed: which topic, and which partition of it, a table's rows go to."""

from collections.abc import Mapping
from typing import Any, get_args

from ticdc_replay.config.changefeed import Dispatcher
from ticdc_replay.config.options import Options
from ticdc_replay.domain.errors import ConfigError

_KEY = "sink.dispatchers"
# `rowid` is the old name of index-value; any unknown text means `table` (delivery semantics, section 4).
_PARTITION_RULES: dict[str, Dispatcher] = {name: name for name in get_args(Dispatcher)} | {"rowid": "index-value"}
_LEAST_ORDERED_LAST: tuple[Dispatcher, ...] = ("table", "index-value", "columns", "ts")


def partition_dispatcher(options: Options, topic: str) -> Dispatcher:
    """How rows are spread over partitions: of all rules, the one that keeps the least order between versions of a row.

    Raises ConfigError for a rule that sends tables to another topic than *topic*, or that TiCDC itself refuses.
    """
    found: list[Dispatcher] = ["table"]
    for at, rule in enumerate(options.tables(_KEY)):
        place = options.place(f"{_KEY}[{at}]")
        other_topic = _text(rule, "topic", place)
        if other_topic not in ("", topic):
            raise ConfigError(
                f"{place}.topic: {other_topic!r} sends tables to other topics than the default {topic!r}; "
                "topic rules are not supported yet: replay this changefeed's default topic only, without such rules"
            )
        old_name, new_name = _text(rule, "dispatcher", place), _text(rule, "partition", place)
        if old_name and new_name:
            raise ConfigError(f"{place}: `dispatcher` and `partition` exclude each other; TiCDC refuses both")
        found.append(_PARTITION_RULES.get((new_name or old_name).lower(), "table"))
    return max(found, key=_LEAST_ORDERED_LAST.index)


def _text(rule: Mapping[str, Any], name: str, place: str) -> str:
    value = rule.get(name, "")
    if not isinstance(value, str):
        raise ConfigError(f"{place}.{name}: must be a text")
    return value.strip()
