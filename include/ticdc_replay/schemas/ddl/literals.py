"""Default values: which are literals, and what text they have."""

import math
import re
import struct
import typing
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType, integer_range
from ticdc_replay.domain.definition import DefinedColumn
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError, Kind, Token

Generated = typing.Literal["stored", "virtual"] | None


class Literal(NamedTuple):
    """A literal of a DDL text. A NULL has the kind ``word`` and the text NULL."""

    kind: Kind
    text: str


NULL = Literal("word", "NULL")
_POINT = Token("symbol", ".")

_DECIMALS = Context(prec=65, rounding=ROUND_HALF_UP)
"""As many digits as a DECIMAL has, rounded as MySQL does."""

_DATE = r"\d{4}-(0\d|1[0-2])-([0-2]\d|3[01])"
_CANONICAL = {
    form: re.compile(pattern, re.ASCII)
    for form, pattern in (
        ("date", _DATE),
        ("datetime", _DATE + r" ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"),
        ("time", r"(?!-?838:59:59\.0*[1-9])-?([0-7]?\d\d|8[0-2]\d|83[0-8]):[0-5]\d:[0-5]\d(\.\d{1,6})?"),
        ("year", r"0000|19(0[1-9]|[1-9]\d)|20\d\d|21[0-4]\d|215[0-5]"),
        ("number", r"-?\d+(\.\d*)?([eE][+-]?\d+)?"),
        ("integer", r"-?\d+"),
    )
}
"""What a column of the type may show. With some ``sql_mode`` that is also the date 0000-00-00, the day 0 and February 31."""
_AS_PRINTED = re.compile(r"(?!-0(\.0+)?$)-?(0|[1-9]\d{0,34})(\.\d{1,30})?", re.ASCII)
"""Numbers that the server prints as they are written: no more digits than a DECIMAL has, no exponent, all zeros needed."""

_DIGITS = {"bits": re.compile(r"[01]*"), "hex": re.compile(r"[0-9a-fA-F]*")}
_MOST_BITS = 64
"""Of the widest BIT."""


def read_default(cursor: Cursor) -> Literal | None:
    """Reads what follows DEFAULT; None where the server computes it (a function or an expression)."""
    if cursor.sees("("):
        cursor.skip_parentheses()
        return None
    sign = ""
    if cursor.sees("-") or cursor.sees("+"):
        sign = cursor.next().text.replace("+", "")
    token = cursor.next()
    if token.kind == "word" and token.text.startswith("_"):  # a charset before a string
        token = cursor.next()
    if token.kind in _DIGITS:
        return digits_of(token)
    if token.kind == "string":
        text = token.text
        while cursor.peek().kind == "string":  # 'a' 'b'
            text += cursor.next().text
        return Literal("string", text)
    if token == _POINT and cursor.peek().kind == "number":  # .5
        token = Token("number", f"0.{cursor.next().text}")
    if token.kind == "number":
        return Literal("number", sign + token.text)
    word = token.text.upper()
    if word in ("TRUE", "FALSE"):
        return Literal("number", "1" if word == "TRUE" else "0")
    if word == "NULL":
        return NULL
    if cursor.take("VALUE", "FOR"):  # NEXT VALUE FOR sequence
        cursor.dotted_name()
    if cursor.sees("("):
        cursor.skip_parentheses()
    return None


def digits_of(token: Token) -> Literal:
    """The literal of *token*, of ``hex`` digits or ``bits``. Raises DdlSyntaxError for other digits."""
    if not _DIGITS[token.kind].fullmatch(token.text):
        raise DdlSyntaxError(f"a literal of {token.kind} with the digits {token.text[:40]!r}")
    return Literal(token.kind, token.text)


def with_default(column: DefinedColumn, literal: Literal | None, computed: bool) -> DefinedColumn:
    """*column* with the default *literal*.

    A literal whose stored value is not certain counts as computed. TIMESTAMP literals are in the time zone of the session that
    ran the DDL. MySQL reads more forms of dates and numbers than are known here. Without strict mode it changes a value that
    does not fit the type.
    """
    if literal is None or literal == NULL:
        return msgspec.structs.replace(column, default=None, computed_default=computed)
    text = default_text(literal, column.type)
    if text is not None and column.digits is not None and _has_more_digits(text, *column.digits):
        text = None
    return msgspec.structs.replace(column, default=text, computed_default=text is None)


def default_text(literal: Literal, column_type: ColumnType) -> str | None:
    """The default value as text in the neutral form, None if it is not certain.

    Decimals are rounded to their scale, members of a SET in the order of its definition. Bits are an unsigned decimal number.
    Bytes of binary types are characters U+0000 to U+00FF, padded to BINARY's width.
    """
    base, text = column_type.base, literal.text
    if base in BINARY_TYPES:
        return _bytes_text(literal, column_type)
    if base == "bit":
        return _bits_text(literal, column_type.length or _MOST_BITS)
    if literal.kind in ("bits", "hex"):
        return None
    if base == "datetime" and _CANONICAL["date"].fullmatch(text):
        text += " 00:00:00"
    if base in INTEGER_TYPES:
        form = "integer"
    elif base in ("decimal", "float", "double"):
        form = "number"
    elif base in ("char", "varchar"):
        if literal.kind != "string" and not _AS_PRINTED.fullmatch(text):
            return None
        text = text.rstrip(" ") if base == "char" else text
        return text if column_type.length is None or len(text) <= column_type.length else None
    elif base in ("enum", "set"):
        return _members_text(literal, column_type)
    else:
        form = base
    pattern = _CANONICAL.get(form)
    if pattern is None or not pattern.fullmatch(text):
        return None
    if base in INTEGER_TYPES:
        return text if _is_integer_of(text, column_type) else None
    if base == "decimal":
        return _rounded(text, column_type)
    if base in ("float", "double"):
        return text if _is_within(text, column_type) else None
    is_cut = base in ("datetime", "time") and len(text.partition(".")[2]) > (column_type.scale or 0)
    return None if is_cut else text


def _has_more_digits(number: str, length: int, scale: int) -> bool:
    """Whether *number* has more digits than (*length*, *scale*), before the point or after it, or is one that no column holds."""
    try:
        value = _DECIMALS.normalize(Decimal(number))
    except DecimalException:
        return True
    exponent = value.as_tuple().exponent
    return (isinstance(exponent, int) and -exponent > scale) or (value != 0 and value.adjusted() >= length - scale)


_MOST_DIGITS = 100
"""Of an integer that is worth a look: any type has fewer, and zeros before it are rare."""


def _is_integer_of(number: str, column_type: ColumnType) -> bool:
    low, high = integer_range(column_type)
    return len(number) <= _MOST_DIGITS and low <= int(number) <= high


def _is_within(number: str, column_type: ColumnType) -> bool:
    """Whether *number* is neither too large for a FLOAT or DOUBLE, nor so small that it would be 0 there."""
    value = float(number)
    if column_type.unsigned and value < 0:
        return False
    if column_type.base == "float":
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return False
    is_zero = not any(digit in "123456789" for digit in number.lower().partition("e")[0])
    return math.isfinite(value) and (value != 0 or is_zero)


def _rounded(text: str, column_type: ColumnType) -> str | None:
    scale = column_type.scale or 0
    try:
        value = _DECIMALS.plus(_DECIMALS.quantize(Decimal(text), Decimal(1).scaleb(-scale)))
    except InvalidOperation:  # more digits than any column has
        return None
    rounded = f"{value:f}"
    is_beyond = column_type.length is not None and _has_more_digits(rounded, column_type.length, scale)
    return None if is_beyond or (column_type.unsigned and value < 0) else rounded


def _members_text(literal: Literal, column_type: ColumnType) -> str | None:
    """A name that differs in letter case, or in trailing spaces, may mean an element by the collation, which is unknown here."""
    elements = column_type.elements
    if elements is None or literal.kind != "string":
        return None
    if column_type.base == "enum":
        return literal.text if literal.text in elements else None
    members = set(literal.text.split(",")) - {""}
    return ",".join(element for element in elements if element in members) if members <= set(elements) else None


_LONGEST_BINARY = 255


def _bytes_text(literal: Literal, column_type: ColumnType) -> str | None:
    if literal.kind == "hex":
        content = bytes_of(literal)
    elif literal.kind == "string":
        content = literal.text.encode()
    else:
        return None
    if column_type.length is not None and len(content) > column_type.length:
        return None
    if column_type.base == "binary" and column_type.length is not None:
        if column_type.length > _LONGEST_BINARY:
            return None
        content = content.ljust(column_type.length, b"\0")
    return content.decode("latin-1")


def bytes_of(literal: Literal) -> bytes:
    """The bytes of a literal of ``hex`` digits or ``bits``."""
    if literal.kind == "bits":
        return int(literal.text or "0", 2).to_bytes(-(-len(literal.text) // 8))
    return bytes.fromhex(literal.text.rjust(len(literal.text) + len(literal.text) % 2, "0"))


def _bits_text(literal: Literal, width: int) -> str | None:
    if len(literal.text) > _MOST_DIGITS:
        return None
    if literal.kind in ("bits", "hex"):
        number = int(literal.text or "0", 2 if literal.kind == "bits" else 16)
    elif literal.kind == "number" and literal.text.isdecimal():
        number = int(literal.text)
    else:
        return None
    return str(number) if number.bit_length() <= width else None
