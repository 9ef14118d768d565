"""Which tables a run selects."""

import re
from collections.abc import Sequence
from fnmatch import translate

from ticdc_replay.domain.errors import ConfigError


class TablePatterns:
    """Matches tables with patterns ``schema.table``, with ``*`` and ``?``, regardless of letter case. A dot inside a
    name is matched by ``?`` or ``*``. Raises ConfigError for a pattern without a dot."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._parts = [_parts(pattern) for pattern in patterns]
        self._patterns = [tuple(re.compile(translate(part), re.IGNORECASE) for part in parts) for parts in self._parts]
        self._known: dict[tuple[str, str], bool] = {}

    def wants(self, schema: str, table: str) -> bool:
        """Whether rows of the table are wanted."""
        name = (schema, table)
        if name not in self._known:
            self._known[name] = any(first.match(schema) and second.match(table) for first, second in self._patterns)
        return self._known[name]

    def names(self, table: str) -> bool:
        """Whether a table of this name, in whatever schema, may be wanted."""
        return any(second.match(table) for _, second in self._patterns)

    def covers(self, pattern: str) -> bool:
        """Whether one pattern alone matches every table that *pattern* matches; False if only several together do, or
        if brackets make it hard to decide. Raises ConfigError for a pattern without a dot."""
        narrow = _parts(pattern)
        return any(all(map(_contains, wide, narrow)) for wide in self._parts)


def _parts(pattern: str) -> tuple[str, str]:
    schema, dot, table = pattern.partition(".")
    if not dot or not schema or not table:
        raise ConfigError(
            f"table pattern {pattern!r} is not of the form schema.table, for example shop.* or shop.orders"
        )
    return schema, table


def _contains(wide: str, narrow: str) -> bool:
    """Whether *wide* matches *narrow* taken as text, where its ``?`` never stands for more than one character."""
    if "[" in wide:
        return wide.lower() == narrow.lower()
    text = "".join({"*": ".*", "?": r"[^*\[]"}.get(char, re.escape(char)) for char in wide)
    return re.fullmatch(text, narrow, re.IGNORECASE | re.DOTALL) is not None
