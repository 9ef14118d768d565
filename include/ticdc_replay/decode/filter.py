"""Which tables a run wants."""

import re
from collections.abc import Sequence
from fnmatch import translate

from ticdc_replay.domain.errors import ConfigError


class TableFilter:
    """Tells whether a table matches one of the patterns ``schema.table``, with ``*`` and ``?``; upper and lower case are one.

    A dot inside a name is matched by ``?`` or ``*``. Raises ConfigError for a pattern without a dot.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = []
        for pattern in patterns:
            schema, dot, table = pattern.partition(".")
            if not dot or not schema or not table:
                raise ConfigError(
                    f"table pattern {pattern!r} is not of the form schema.table, for example shop.* or shop.orders"
                )
            self._patterns.append(tuple(re.compile(translate(part), re.IGNORECASE) for part in (schema, table)))
        self._known: dict[tuple[str, str], bool] = {}

    def wants(self, schema: str, table: str) -> bool:
        """Whether rows of the table are wanted."""
        name = (schema, table)
        if name not in self._known:
            self._known[name] = any(first.match(schema) and second.match(table) for first, second in self._patterns)
        return self._known[name]
