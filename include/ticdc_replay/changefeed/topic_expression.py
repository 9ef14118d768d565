"""Topic rules: ``[prefix]{schema}[middle][{table}][suffix]``.

The new architecture takes the placeholders in any order and number.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from ticdc_replay.domain.errors import ConfigError

_LONGEST = 249
_PARTS = re.compile(r"(\{[^}]*\})")
_LITERAL = re.compile(r"[A-Za-z0-9._\-]*")
_UNSAFE = re.compile(r"[^a-zA-Z0-9._\-]")
_REPLACED = {".": "_", "..": "__"}


class TopicExpression(msgspec.Struct, frozen=True):
    """The topic rule of a dispatcher, as it stands in the configuration."""

    text: str

    def check(self, where: str) -> None:
        """Raise ConfigError, which names *where*, for an expression that TiCDC refuses."""
        for part in _PARTS.split(self.text):
            if part.startswith("{column:"):
                raise ConfigError(f"{where}: {part} makes topics of cell values; TiCDC has that for Pulsar only")
            if part not in ("{schema}", "{table}") and not _LITERAL.fullmatch(part):
                raise ConfigError(
                    f"{where}: {self.text!r} is not allowed; it must be made of letters, digits, '.', '_', '-', "
                    "{schema} and {table}"
                )

    @property
    def placeholders(self) -> frozenset[str]:
        """Which of ``{schema}`` and ``{table}`` stand in it."""
        return frozenset(part for part in _parts(self.text) if part.startswith("{"))

    def topic(self, schema: str, table: str) -> str:
        """The topic of a table. Several tables may share one: characters that Kafka does not take become ``_``."""
        names = {"{schema}": _UNSAFE.sub("_", schema), "{table}": _UNSAFE.sub("_", table)}
        topic = "".join(names.get(part, part) for part in _parts(self.text))[:_LONGEST]
        return _REPLACED.get(topic, topic)

    def readings(self, topic: str) -> Iterator[tuple[str | None, str | None]]:
        """The names of schema and table, as they look in a topic, that *topic* may be made of; None if it does not show one.

        More than one where the expression leaves open where a name ends; none where *topic* is not of this expression. A topic
        of the greatest length may have lost its end, and gives none.
        """
        if len(topic.encode()) == _LONGEST:
            yield None, None
            return
        originals = [topic, *(before for before, after in _REPLACED.items() if after == topic)]
        for original in originals:
            yield from set(_read(_parts(self.text), original, {}))


@lru_cache(maxsize=256)
def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in _PARTS.split(text) if part)


def _read(parts: tuple[str, ...], rest: str, names: dict[str, str]) -> Iterator[tuple[str | None, str | None]]:
    if not parts:
        if not rest:
            yield names.get("{schema}"), names.get("{table}")
        return
    part, later = parts[0], parts[1:]
    known = names.get(part, None if part.startswith("{") else part)
    if known is not None:
        if rest.startswith(known):
            yield from _read(later, rest[len(known) :], names)
        return
    for end in range(1, len(rest) + 1):
        yield from _read(later, rest[end:], {**names, part: rest[:end]})
