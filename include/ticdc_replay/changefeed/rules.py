"""What the ``[sink] dispatchers`` of a changefeed mean: the topic of a table, and whether a row keeps to one partition."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import msgspec

from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression

Dispatcher = Literal["table", "index-value", "columns", "ts"]


class SourceTable(NamedTuple):
    """A table by its upstream name, which rules look at; events may carry another, where the changefeed routes tables."""

    schema: str
    table: str


class DispatchRule(msgspec.Struct, frozen=True):
    """One rule: for tables that ``matcher`` means, how rows are spread over partitions and which topic they go to."""

    matcher: TableFilter = TableFilter()
    partition: Dispatcher = "table"
    index: str = ""
    """The index whose values decide, where it is not the handle key."""
    columns: tuple[str, ...] = ()
    topic: TopicExpression | None = None
    """None for the default topic."""
    target_schema: str = ""
    """The schema's name in events, with ``{schema}`` and ``{table}``; empty where it is the upstream's (new architecture)."""
    target_table: str = ""

    @property
    def routes(self) -> bool:
        """Whether events of the rule's tables carry other names than the upstream's."""
        return bool(self.target_schema or self.target_table)


class ColumnSelector(msgspec.Struct, frozen=True):
    """Which columns of the tables that ``matcher`` means are in events."""

    matcher: TableFilter
    columns: ColumnFilter


_DEFAULT = DispatchRule()


class Dispatch(msgspec.Struct, frozen=True):
    """All rules of a changefeed, in order: for a table, the first that means it counts."""

    rules: tuple[DispatchRule, ...] = ()
    selectors: tuple[ColumnSelector, ...] = ()

    def rule_of(self, source: SourceTable) -> DispatchRule:
        """The rule for a table; one that says nothing special where no rule means it."""
        return next((rule for rule in self.rules if rule.matcher.matches(*source)), _DEFAULT)

    def selector_of(self, source: SourceTable) -> ColumnSelector | None:
        """The column selector for a table, None where its events have all columns."""
        return next((each for each in self.selectors if each.matcher.matches(*source)), None)

    def routed(self, source: SourceTable) -> tuple[str, str]:
        """The names of schema and table that events of *source* carry."""
        rule = next((rule for rule in self.rules if rule.routes and rule.matcher.matches(*source)), None)
        if rule is None:
            return source.schema, source.table
        names = {"{schema}": source.schema, "{table}": source.table}
        parts = (
            _PLACEHOLDER.split(text) for text in (rule.target_schema or "{schema}", rule.target_table or "{table}")
        )
        schema, table = ("".join(names.get(part, part) for part in each) for each in parts)
        return schema, table

    def source_of(self, schema: str, table: str) -> SourceTable | None:
        """The upstream table of events with these names; None where routing leaves open which of several it is.

        Where they may be of a routed table or of one that has these very names, it is the routed one.
        """
        sources = self._sources(schema, table)
        routed = sources - {SourceTable(schema, table)} or sources
        return next(iter(routed)) if len(routed) == 1 else None

    def topic_of(self, schema: str, table: str, default: str) -> str | None:
        """The topic of rows with these names, *default* where no rule says another; None where routing leaves it open."""
        source = self.source_of(schema, table)
        if source is None:
            return None
        expression = self.rule_of(source).topic
        return default if expression is None else expression.topic(*source)

    def scatters(self, schema: str, table: str, *, raw_changes: bool) -> bool:
        """Whether versions of one row of the table may be in several partitions, so that their offsets do not order them.

        *raw_changes* is ``output-raw-change-event``: an UPDATE that changes the key then goes to the new key's partition
        alone. A named index is another key than the row's: its values may change while the row stays (the new
        architecture even takes cells of other columns for it).
        """
        sources = self._sources(schema, table)
        rules = [self.rule_of(source) for source in sources] or [_DEFAULT, *self.rules]
        return any(_scatters(rule, raw_changes) for rule in rules)

    def may_scatter(self, schema: str, table: str, *, raw_changes: bool) -> bool:
        """As ``scatters``, for names in which ``_`` may stand for any character, as Avro's do. Errs towards yes."""
        return self.scatters(schema, table, raw_changes=raw_changes) or any(
            _scatters(rule, raw_changes)
            for rule in self.rules
            if rule.matcher.means_in_avro(schema, table) is not False
        )

    def may_send(self, schema: str, table: str, topic: str, default: str) -> bool:
        """Whether a table that Avro gives these names may go to *topic*, where *default* is the default one. Errs towards yes.

        Routed names are not judged: topics are made of the upstream's.
        """
        if any(rule.routes for rule in self.rules):
            return True
        for rule in (*self.rules, _DEFAULT):
            meant = rule.matcher.means_in_avro(schema, table)
            if meant is False:
                continue
            for forms in (rule.topic or TopicExpression(default)).readings(topic):
                if all(
                    form is None or _bare(form) == _bare(name)
                    for form, name in zip(forms, (schema, table), strict=True)
                ):
                    return True
            if meant:
                break
        return False

    def fixed_topics(self) -> tuple[str, ...]:
        """Topics that a rule names outright, whatever the table."""
        return tuple(
            dict.fromkeys(
                rule.topic.topic("", "")
                for rule in self.rules
                if rule.topic is not None and not rule.topic.placeholders
            )
        )

    def topics_among(self, existing: Iterable[str], wanted: Iterable[str] = ("*.*",)) -> list[str]:
        """Those of the *existing* topics, sorted, that a rule may send a table of the *wanted* patterns to.

        *wanted* are ``schema.table`` patterns with ``*`` and ``?``, in any letter case, of names as events carry them. Errs
        towards yes: names lose characters in topics, so a topic that another program writes to may look like one of these.
        """
        patterns = tuple(wanted)
        return sorted(topic for topic in existing if not topic.startswith("__") and self._may_hold(topic, patterns))

    def _may_hold(self, topic: str, wanted: tuple[str, ...]) -> bool:
        for rule in self.rules:
            if rule.topic is None:
                continue
            # A routed table is wanted by another name than the one its topic is made of.
            patterns = ("*.*",) if any(each.routes for each in self.rules) else wanted
            for schema, table in rule.topic.readings(topic):
                if rule.matcher.may_match(schema, table) and any(_wants(each, schema, table) for each in patterns):
                    return True
        return False

    def _sources(self, schema: str, table: str) -> set[SourceTable]:
        """The upstream tables that events with these names may be of; empty where a rule gives one name to many."""
        found = {SourceTable(schema, table)}
        for rule in self.rules:
            if not rule.routes:
                continue
            names: dict[str, str] = {}
            expressions = (rule.target_schema or "{schema}", rule.target_table or "{table}")
            fits = all(map(_unify, expressions, (schema, table), (names, names)))
            if fits and len(names) < len(_NAMES):
                return set()
            if fits:
                found.add(SourceTable(names["schema"], names["table"]))
        return {source for source in found if self.routed(source) == (schema, table)}


_NAMES = ("schema", "table")
_PLACEHOLDER = re.compile(r"(\{schema\}|\{table\})")


def _unify(expression: str, name: str, names: dict[str, str]) -> bool:
    """Whether *name* is *expression* with names in it, which are then added to *names*."""
    pattern, seen = "", set()
    for part in _PLACEHOLDER.split(expression):
        key = part.strip("{}")
        if key not in _NAMES or part == key:
            pattern += re.escape(part)
        elif key in names:
            pattern += re.escape(names[key])
        else:
            pattern += f"(?P={key})" if key in seen else f"(?P<{key}>.+)"
            seen.add(key)
    match = re.fullmatch(pattern, name, re.DOTALL)
    if match is None:
        return False
    names.update(match.groupdict())
    return True


def before_avro(pattern: str) -> tuple[str, ...]:
    """The patterns of the names to which Avro gives the names that *pattern* means. They err towards more names.

    Avro writes ``_`` for every character outside ``[A-Za-z0-9_]``, and before a first digit.
    """
    of_schema, _, of_table = pattern.partition(".")
    return tuple(f"{schema}.{table}" for schema, table in product(_before_avro(of_schema), _before_avro(of_table)))


def _before_avro(pattern: str) -> Iterator[str]:
    parts = _PATTERN.findall(pattern)
    yield _with_lost(parts)
    if len(parts) > 1 and (parts[0] in "_?" or parts[0].startswith("[")):  # it may stand before a first digit
        first, rest = parts[1], _with_lost(parts[2:])
        if first.isdecimal():
            yield first + rest
        elif first == "*":
            yield f"[0-9]*{rest}"
        elif first == "?" or first.startswith("["):
            yield f"[0-9]{rest}"


def _with_lost(parts: Iterable[str]) -> str:
    return "".join("[!a-zA-Z0-9]" if part == "_" else part for part in parts)


_PATTERN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""The parts of a pattern: a choice in brackets, or one character."""


@lru_cache(maxsize=4096)
def _wanted_name(pattern: str) -> re.Pattern[str]:
    """Matches the forms in topics of all names that *pattern* matches."""
    parts = (part if re.fullmatch(_SAME_IN_TOPICS, part) else "?" for part in _PATTERN.findall(pattern))
    return re.compile(translate("".join(parts)), re.IGNORECASE)


_SAME_IN_TOPICS = r"[a-zA-Z0-9._\-*?]|\[[a-zA-Z0-9.\-!]*\]"
"""What a part of a pattern means in topics as in names; ``_`` in a topic may be a character that topics do not take."""


def _wants(pattern: str, schema: str | None, table: str | None) -> bool:
    of_schema, _, of_table = pattern.partition(".")
    return all(
        name is None or _wanted_name(part).match(name) is not None
        for part, name in ((of_schema, schema), (of_table, table))
    )


def _bare(name: str) -> str:
    """What a name in a topic and the same name in Avro have in common, in whichever version of TiCDC."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")


def _scatters(rule: DispatchRule, raw_changes: bool) -> bool:
    return rule.partition in ("ts", "columns") or (rule.partition == "index-value" and bool(rule.index or raw_changes))
