"""Text columns that hold whatever came over the wire, in either database alike."""

import re
from typing import Any

from sqlalchemy import Text
from sqlalchemy.types import TypeDecorator

_MARK = "\uffff"
"""No character: Unicode keeps it for uses like this one, and both databases hold it."""
_HELD_BY_NONE = re.compile(f"[\0\ud800-\udfff{_MARK}]")
_WRITTEN = re.compile(f"{_MARK}([0-9a-f]{{4}})")


class AnyText(TypeDecorator[str]):
    """Text of any characters. PostgreSQL refuses a NUL, and no driver takes half of a surrogate pair: both are written as U+FFFF
    and four hexadecimal digits, and read back as they were. Text without them is written as it is.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value if value is None else _HELD_BY_NONE.sub(_write, value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return value if value is None else _WRITTEN.sub(_read, value)


def _write(found: re.Match[str]) -> str:
    return f"{_MARK}{ord(found[0]):04x}"


def _read(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
