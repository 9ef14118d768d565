"""Matchers of tables and columns, in the syntax of TiDB's table filter.

``schema.table`` with ``*``, ``?`` and ``[a-z]``, ``/regular expression/`` and quoted names; a pattern with ``!`` before it
excludes. Of several patterns the last one that matches decides; without any match a table is not meant (TiDB documentation,
"Table Filter").
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.errors import ConfigError

_REGEX = re.compile(r"/((?:\\.|[^/])+)/")
_QUOTED = {'"': re.compile(r'"((?:""|[^"])+)"'), "`": re.compile(r"`((?:``|[^`])+)`")}
_CLASS = re.compile(r"\[(!?)((?:\\[^0-9a-zA-Z]|[^\\\]])+)\]")
_PLAIN = re.compile(r"[0-9A-Za-z$_\u0080-\U0010ffff]")
_UNSAFE_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._\-]")
_UNSAFE_IN_AVRO = re.compile(r"[^a-zA-Z0-9_]")


class TableFilter(msgspec.Struct, frozen=True):
    """Which tables a rule is for. ``patterns`` as they stand in the ``matcher`` of the rule."""

    patterns: tuple[str, ...] = ("*.*",)
    case_sensitive: bool = False

    def check(self, where: str) -> None:
        """Raise ConfigError, which names *where*, for a pattern that TiCDC refuses."""
        _check(self.patterns, where, lambda pattern: _parsed((pattern,), self.case_sensitive))

    def matches(self, schema: str, table: str) -> bool:
        """Whether the filter means the table of these names, in the upstream's spelling."""
        for pattern in reversed(_parsed(self.patterns, self.case_sensitive)):
            if pattern.schema.exact(schema) and pattern.table.exact(table):
                return pattern.positive
        return False

    def may_match(self, schema: str | None, table: str | None) -> bool:
        """Whether the filter may mean a table whose names look like this in a topic, where ``_`` may stand for any character.

        None for a name that the topic does not tell. Errs towards yes.
        """
        for pattern in reversed(_parsed(self.patterns, self.case_sensitive)):
            if not (pattern.schema.possible(schema) and pattern.table.possible(table)):
                continue
            if pattern.positive:
                return True
            certain = schema is not None and table is not None and "_" not in schema + table
            if certain and pattern.schema.exact(schema or "") and pattern.table.exact(table or ""):
                return False
        return False

    def means_in_avro(self, schema: str, table: str) -> bool | None:
        """Whether the filter means the tables that Avro gives these names, in which ``_`` may stand for any character.

        None where it may mean some of them and others not.
        """
        answers = set()
        for pattern in reversed(_parsed(self.patterns, self.case_sensitive)):
            if not (pattern.schema.possible_in_avro(schema) and pattern.table.possible_in_avro(table)):
                continue
            answers.add(pattern.positive)
            if pattern.schema.all_in_avro(schema) and pattern.table.all_in_avro(table):
                break
        else:
            answers.add(False)
        return None if len(answers) > 1 else answers.pop()


class ColumnFilter(msgspec.Struct, frozen=True):
    """The columns that a column selector keeps. Letter case never matters."""

    patterns: tuple[str, ...]

    def check(self, where: str) -> None:
        """Raise ConfigError, which names *where*, for a pattern that TiCDC refuses."""
        _check(self.patterns, where, lambda pattern: _parsed_columns((pattern,)))

    def keeps(self, column: str) -> bool:
        """Whether events still have the column called *column*."""
        for positive, name in reversed(_parsed_columns(self.patterns)):
            if name.exact(column):
                return positive
        return False


def _check(patterns: tuple[str, ...], where: str, read: Callable[[str], object]) -> None:
    for pattern in patterns:
        try:
            read(pattern)
        except ValueError as error:
            raise ConfigError(f"{where}: {pattern!r}: {error}") from None


class _Name(NamedTuple):
    """The pattern of one name."""

    pattern: re.Pattern[str]
    in_topic: re.Pattern[str]
    """Matches at least every form that a matching name may have in a topic."""
    in_avro: re.Pattern[str]
    """The same for Avro, but for the ``_`` before a digit that begins a name."""

    def exact(self, name: str) -> bool:
        return self.pattern.search(name) is not None

    def possible(self, name: str | None) -> bool:
        return name is None or self.in_topic.search(name) is not None

    def possible_in_avro(self, name: str) -> bool:
        """Whether a name that is *name* in Avro may match."""
        bare = name[1:] if name[:1] == "_" and name[1:2].isdecimal() else name
        return any(self.in_avro.search(each) is not None for each in (name, bare))

    def all_in_avro(self, name: str) -> bool:
        """Whether all names that are *name* in Avro match. Errs towards no."""
        return self.pattern.pattern == _ANY_NAME or ("_" not in name and self.exact(name))


class _Pattern(NamedTuple):
    positive: bool
    schema: _Name
    table: _Name


@lru_cache(maxsize=1024)
def _parsed(patterns: tuple[str, ...], case_sensitive: bool) -> tuple[_Pattern, ...]:
    flags = re.NOFLAG if case_sensitive else re.IGNORECASE
    found = []
    for pattern in patterns:
        text, positive = _sign(pattern)
        if not text:
            continue
        schema, rest = _name(text, flags, ends_at_dot=True)
        if not rest.startswith("."):
            raise ValueError("must be of the form schema.table")
        table, rest = _name(rest[1:], flags, ends_at_dot=True)
        if rest:
            raise ValueError(f"{rest!r} is too much after schema.table; quote names with special characters: `a.b`")
        found.append(_Pattern(positive, schema, table))
    return tuple(found)


@lru_cache(maxsize=1024)
def _parsed_columns(patterns: tuple[str, ...]) -> tuple[tuple[bool, _Name], ...]:
    found = []
    for pattern in patterns:
        text, positive = _sign(pattern)
        if not text:
            continue
        name, rest = _name(text, re.IGNORECASE, ends_at_dot=False)
        if rest:
            raise ValueError(f"{rest!r} is too much after the name of a column")
        found.append((positive, name))
    return tuple(found)


def _sign(pattern: str) -> tuple[str, bool]:
    """The pattern without its sign; empty for a comment."""
    text = pattern.strip(" \t")
    if text.startswith("#"):
        return "", True
    if text.startswith("@"):
        raise ValueError("a file on TiCDC's machine can't be read here; write its patterns in place of it")
    return text.removeprefix("!"), not text.startswith("!")


def _name(text: str, flags: re.RegexFlag, *, ends_at_dot: bool) -> tuple[_Name, str]:
    """The pattern of a name at the start of *text*, and what follows it."""
    if not text:
        raise ValueError("must be of the form schema.table")
    if text[0] == "/":
        match = _REGEX.match(text)
        if match is None:
            raise ValueError("the regular expression has no end; write /…/")
        anything = _compiled("", flags)
        return _Name(_compiled(match[1], flags), anything, anything), text[match.end() :]
    if text[0] in _QUOTED:
        quoted = _QUOTED[text[0]].match(text)
        if quoted is None:
            raise ValueError(f"the quoted name has no end; write {text[0]}…{text[0]}")
        name = quoted[1].replace(text[0] * 2, text[0])
        forms = (re.escape(name), _in_topic(name), _in_avro(name))
        return _Name(*(_whole(form, flags) for form in forms)), text[quoted.end() :]
    return _wildcard(text, flags, ends_at_dot=ends_at_dot)


def _wildcard(text: str, flags: re.RegexFlag, *, ends_at_dot: bool) -> tuple[_Name, str]:
    exact, in_topic, in_avro, at = "", "", "", 0
    while at < len(text):
        char = text[at]
        if char == "." and ends_at_dot:
            break
        if char in "*?":
            pieces = (".*" if char == "*" else ".",) * 3
        elif char == "[":
            match = _CLASS.match(text, at)
            if match is None:
                raise ValueError("the class of characters has no end; write [a-z] or [!a-z]")
            pieces = (f"[{'^' if match[1] else ''}{_class_body(match[2])}]", ".", ".")
            at = match.end() - 1
        elif char == "\\":
            at += 1
            if at == len(text) or (text[at].isascii() and text[at].isalnum()):
                raise ValueError("a backslash must stand before a special character")
            pieces = (re.escape(text[at]), _in_topic(text[at]), _in_avro(text[at]))
        elif _PLAIN.match(char):
            pieces = (re.escape(char), _in_topic(char), _in_avro(char))
        else:
            raise ValueError(f"{char!r} must stand in quotes: `a{char}b`")
        exact, in_topic, in_avro, at = exact + pieces[0], in_topic + pieces[1], in_avro + pieces[2], at + 1
    return _Name(_whole(exact, flags), _whole(in_topic, flags), _whole(in_avro, flags)), text[at:]


def _class_body(body: str) -> str:
    """A class of Go's regular expressions as one of Python's, where ``^``, ``[`` and pairs of ``&|~`` mean more."""
    return re.sub(r"(?<!\\)([\[&|~^])", r"\\\1", body)


def _in_topic(name: str) -> str:
    return re.escape(_UNSAFE_IN_TOPICS.sub("_", name))


def _in_avro(name: str) -> str:
    return re.escape(_UNSAFE_IN_AVRO.sub("_", name))


def _whole(pattern: str, flags: re.RegexFlag) -> re.Pattern[str]:
    return _compiled(rf"\A(?:{pattern})\Z", flags | re.DOTALL)


def _compiled(pattern: str, flags: re.RegexFlag) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


_ANY_NAME = _whole(".*", re.NOFLAG).pattern
