"""The forms in which cells of two engines are compared: one canonical text for equal values, whatever engine prints it.

| form | canonical text |
|---|---|
| integer | decimal digits |
| decimal | all declared digits after the point; a zero without sign |
| float | digits without exponent, or ``TIMES_DOWN`` and ``TIMES_UP``; a zero without sign |
| bits | of a float, for engines that find other shortest digits: see ``LIMBS``; a zero without sign |
| date, moment, span | ``2026-03-01``, ``2026-03-01 10:00:00.5``, ``-838:59:59.5``: no zeros at the end of a fraction |
| instant | as moment, in UTC |
| text | UTF-8 |
| bytes | hex |
| json | the text; where texts differ, the client compares values |
"""

import datetime
import json
from collections.abc import Sequence
from enum import StrEnum

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType

NULL = "N"
"""In the text of a row, for cells without length. No canonical text of theirs is this one."""
NO_LENGTH = -1
"""In the text of a row, before a text that is NULL; others stand after their length in bytes."""

PLAIN_FROM, PLAIN_TO = 1e-4, 999999999999999.0
"""The absolute values from which and up to which all engines print a double without exponent, with the fewest digits that
distinguish it."""
LEAST, MOST = 2.0**-40, 2.0**53
"""The absolute values from which and below which a double has the same fewest digits in all engines, which DECIMAL(65,30)
holds. Above, a number may have two such texts.
"""
_STEP = 90
TIMES_DOWN = tuple((MOST * 2.0 ** (_STEP * at), (2.0 ** -(_STEP * (at + 1)),)) for at in range(11))
"""(bound, factors): a number of at least the bound, and below the next one, is multiplied by the factors before it is printed. A
power of two alters no digit of a binary number, so different numbers keep different texts."""
TIMES_UP = tuple(
    (LEAST * 2.0 ** -(_STEP * at), (2.0 ** (_STEP * min(at + 1, 11)), *([2.0**_STEP] if at == 11 else ())))
    for at in range(12)
)
"""(bound, factors): the same of a number below the bound, and not below the next one."""
LIMBS = 2
LIMB_BITS = 46
"""A positive number that ``TIMES_DOWN`` or ``TIMES_UP`` brought between ``LEAST`` and ``MOST`` is written as its whole part and
so many limbs of so many bits of its fraction, as integers: ``3.35184372088832.0`` is 3.5. All are below 2^53, and each step
(FLOOR, a difference, a product with a power of two) is exact in binary arithmetic, whatever engine does it."""


class Form(StrEnum):
    """What kind of value the canonical text is of."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BITS = "bits"
    DATE = "date"
    MOMENT = "moment"
    INSTANT = "instant"
    SPAN = "span"
    TEXT = "text"
    BYTES = "bytes"
    JSON = "json"


FLOATS = frozenset({Form.FLOAT, Form.BITS})
"""Of numbers that keys have with all their digits."""
_TIMES = {"date": Form.DATE, "datetime": Form.MOMENT, "timestamp": Form.INSTANT, "time": Form.SPAN}


def forms_of(column_type: ColumnType) -> tuple[Form, ...]:
    """The forms that cells of a MySQL type can be compared in, the best first."""
    base = column_type.base
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return (Form.INTEGER,)
    if base == "decimal":
        return (Form.DECIMAL,)
    if base in ("float", "double"):
        return (Form.FLOAT, Form.BITS)
    if base in _TIMES:
        return (_TIMES[base],)
    if base in ("enum", "set"):
        return (Form.TEXT, Form.INTEGER)
    if base in BINARY_TYPES:
        return (Form.BYTES,)
    if base == "json":
        return (Form.JSON, Form.TEXT)
    # MariaDB's JSON is a text.
    return (Form.TEXT, Form.JSON)


def is_short(column_type: ColumnType) -> bool:
    """Whether texts of a MySQL type have at most 65,535 bytes, and so take part in the text of their row as they are."""
    return column_type.base in ("enum", "set", "char", "varchar", "tinytext", "text")


def is_hashed(form: Form, column_type: ColumnType) -> bool:
    """Whether a cell takes part in the text of its row as its MD5."""
    return form in (Form.BYTES, Form.JSON) or (form is Form.TEXT and not is_short(column_type))


def is_character(column_type: ColumnType) -> bool:
    """Whether cells of a MySQL type are texts with a character set."""
    return column_type.base in CHARACTER_TYPES or column_type.base in ("enum", "set")


def canonical_key(texts: Sequence[str | None], forms: Sequence[Form]) -> tuple[str, ...]:
    """A key as its columns' canonical *texts*; engines print a float in several ways, Python in one. The text of a NULL, which
    only a mirror without an enforced key has, is ``NULL``."""
    return tuple(
        "NULL" if text is None else repr(float(text) + 0.0) if form in FLOATS else text
        for text, form in zip(texts, forms, strict=True)
    )


def same_value(form: Form, first: str | None, second: str | None) -> bool:
    """Whether two texts of cells mean the same value: where engines print one value in several ways, by the value."""
    if first == second:
        return True
    if first is None or second is None:
        return False
    if form is Form.FLOAT:
        return float(first) == float(second)
    if form is Form.JSON:
        return _json(first) == _json(second)
    return False


def is_calendar_day(form: Form, text: str) -> bool:
    """Whether a canonical *text* is of a day that calendars have: MySQL also has ``0000-00-00`` and ``2026-02-31``."""
    if form not in (Form.DATE, Form.MOMENT, Form.INSTANT):
        return True
    try:
        datetime.date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def _json(text: str) -> object:
    """The value of a JSON text, with numbers in a form in which equal ones are equal and others are not."""
    try:
        return _marked(json.loads(text, parse_constant=_no_constant))
    except ValueError:
        return text


def _marked(value: object) -> object:
    """*value* with its truth values and numbers apart: to Python, True and 1 are equal."""
    if isinstance(value, dict):
        return {name: _marked(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_marked(member) for member in value]
    return (type(value) is bool, value) if isinstance(value, bool | int | float) else value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
