"""Default values: which are literals, and what text they have."""

import re
import typing
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.definition import DefinedColumn
from ticdc_replay.schemas.tokens import Cursor, Kind

Generated = typing.Literal["stored", "virtual"] | None


class Literal(NamedTuple):
    """A literal of a DDL text. A NULL has the kind ``word`` and the text NULL."""

    kind: Kind
    text: str


NULL = Literal("word", "NULL")

_CANONICAL = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "datetime": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"),
    "time": re.compile(r"-?\d{2,3}:\d\d:\d\d(\.\d{1,6})?"),
    "year": re.compile(r"\d{4}"),
    "number": re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?"),
    "integer": re.compile(r"-?\d+"),
}


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
    if token.kind in ("string", "bits", "hex"):
        return Literal(token.kind, token.text)
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


def with_default(column: DefinedColumn, literal: Literal | None, computed: bool) -> DefinedColumn:
    """*column* with the default *literal*.

    A literal whose stored value can't be told for certain counts as computed: TIMESTAMP literals are in the time zone
    of the session that ran the DDL, and MySQL reads dates and numbers in forms that are not repeated here.
    """
    if literal is None or literal == NULL:
        return msgspec.structs.replace(column, default=None, computed_default=computed)
    text = default_text(literal, column.type)
    return msgspec.structs.replace(column, default=text, computed_default=text is None)


def default_text(literal: Literal, column_type: ColumnType) -> str | None:
    """The default value as text in the neutral form, None where it can't be told for certain.

    Bits are an unsigned decimal number. Bytes of binary types are characters U+0000 to U+00FF, padded to BINARY's width.
    """
    base, text = column_type.base, literal.text
    if base in BINARY_TYPES:
        return _bytes_text(literal, column_type)
    if base == "bit":
        return _bits_text(literal)
    if literal.kind in ("bits", "hex"):
        return None
    if base == "datetime" and _CANONICAL["date"].fullmatch(text):
        text += " 00:00:00"
    if base in INTEGER_TYPES:
        form = "integer"
    elif base in ("decimal", "float", "double"):
        form = "number"
    elif base in ("char", "varchar", "enum", "set"):
        if literal.kind != "string":
            return text if base in ("char", "varchar") else None
        return text.rstrip(" ") if base == "char" else text
    else:
        form = base
    pattern = _CANONICAL.get(form)
    return text if pattern is not None and pattern.fullmatch(text) else None


_LONGEST_BINARY = 255


def _bytes_text(literal: Literal, column_type: ColumnType) -> str | None:
    if literal.kind == "hex":
        content = bytes.fromhex(literal.text.rjust(len(literal.text) + len(literal.text) % 2, "0"))
    elif literal.kind == "string":
        content = literal.text.encode()
    else:
        return None
    if column_type.base == "binary" and column_type.length is not None:
        if column_type.length > _LONGEST_BINARY:
            return None
        content = content.ljust(column_type.length, b"\0")
    return content.decode("latin-1")


def _bits_text(literal: Literal) -> str | None:
    if literal.kind == "bits":
        return str(int(literal.text or "0", 2))
    if literal.kind == "hex":
        return str(int(literal.text or "0", 16))
    if literal.kind == "number" and literal.text.isdecimal():
        return literal.text
    return None
