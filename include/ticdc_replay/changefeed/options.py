"""Typed look-up of a changefeed's options in its sink-uri and its TOML, the sink-uri first, as TiCDC does."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from ticdc_replay.domain.errors import ConfigError

Choice = TypeVar("Choice", bound=str)
Default = TypeVar("Default", int, None)

# Go's strconv.ParseBool, by which TiCDC reads booleans of a sink-uri.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NUMBER = re.compile(r"[+-]?\d+")
_MASKED = re.compile(r"x{5}|\*{6}")


def is_masked(value: object) -> bool:
    """Whether TiCDC printed *value* in place of a secret, or of what its name made look like one (``output-row-key``)."""
    return isinstance(value, str) and _MASKED.fullmatch(value) is not None


def texts_of(value: Any, place: str) -> tuple[str, ...]:
    """The array of texts *value*, empty for None. Raises ConfigError, which names *place*."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{place}: must be an array of texts")
    return tuple(value)


class _Found(NamedTuple):
    value: Any
    place: str
    in_uri: bool
    """Everything in a sink-uri is text; TOML has types."""


class Options:
    """Options of one changefeed. Every error names the file, the parameter or TOML key, and what is allowed.

    *toml* is the document, with TOML's names. *where* and *toml_where* are what errors call the places of sink-uri and TOML.
    """

    def __init__(self, query: str, where: str, toml: Mapping[str, Any], toml_where: str) -> None:
        pairs = parse_qsl(query, keep_blank_values=True)
        self.parameters: dict[str, str] = {}
        self.repeated: list[str] = []
        """Parameters that occur more than once: TiCDC takes the first."""
        for name, value in pairs:
            if name in self.parameters:
                self.repeated.append(name)
            else:
                self.parameters[name] = value
        self.toml = toml
        self._where = where
        self._toml_where = toml_where

    def flag(self, default: bool, *, parameter: str | None = None, key: str | None = None) -> bool:
        """A boolean."""
        found = self._find(parameter, key)
        if found is None:
            return default
        if found.in_uri and found.value in _TRUE | _FALSE:
            return found.value in _TRUE
        if isinstance(found.value, bool):
            return found.value
        raise ConfigError(f"{found.place}: {found.value!r} is not a boolean; allowed: true, false")

    def number(
        self, default: Default, *, parameter: str | None = None, key: str | None = None, minimum: int = 1
    ) -> int | Default:
        """A whole number of at least *minimum*."""
        found = self._find(parameter, key)
        if found is None:
            return default
        value = found.value
        if found.in_uri and _NUMBER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"{found.place}: {value!r} is not allowed; allowed: whole numbers from {minimum}")
        return value

    def choice(
        self, default: Choice, allowed: Collection[Choice], *, parameter: str | None = None, key: str | None = None
    ) -> Choice:
        """One of *allowed*."""
        found = self._find(parameter, key)
        if found is None:
            return default
        for choice in allowed:
            if choice == found.value:
                return choice
        raise ConfigError(f"{found.place}: {found.value!r} is not allowed; allowed: {', '.join(allowed)}")

    def text(self, *, parameter: str | None = None, key: str | None = None) -> str | None:
        """Any text, None where there is none."""
        found = self._find(parameter, key)
        if found is None:
            return None
        if not isinstance(found.value, str):
            raise ConfigError(f"{found.place}: must be a text")
        return found.value

    def texts(self, *, key: str) -> tuple[str, ...]:
        """An array of texts, empty where there is none."""
        return texts_of(self._in_toml(key), self.place(key))

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        """The array of TOML tables at *key*, empty where there is none."""
        value = self._in_toml(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise ConfigError(f"{self.place(key)}: must be an array of tables")
        return value

    def given(self, key: str) -> bool:
        """Whether there is something at the TOML key *key*, and not an empty array."""
        return self._in_toml(key) not in (None, [])

    def section(self, key: str) -> Mapping[str, Any]:
        """The TOML table at *key*, empty where there is none."""
        value = self._in_toml(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.place(key)}: must be a table")
        return value

    def place(self, key: str) -> str:
        """What errors call the TOML key *key*."""
        return f"{self._toml_where}: {key}"

    def parameter_place(self, parameter: str) -> str:
        """What errors call the parameter *parameter* of the sink-uri."""
        return f"{self._where}: parameter {parameter}"

    def _find(self, parameter: str | None, key: str | None) -> _Found | None:
        """The value and its place; an empty or masked value counts as absent."""
        value = "" if parameter is None else self.parameters.get(parameter, "")
        if parameter is not None and value != "" and not is_masked(value):
            return _Found(self.parameters[parameter], self.parameter_place(parameter), in_uri=True)
        if key is not None:
            value = self._in_toml(key)
            if value is not None and value != "" and not is_masked(value):
                return _Found(value, self.place(key), in_uri=False)
        return None

    def _in_toml(self, key: str) -> Any:
        value: Any = self.toml
        for part in key.split("."):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{self.place(key)}: {part!r} stands below something that is not a TOML table")
            value = value.get(part)
            if value is None:
                return None
        return value
