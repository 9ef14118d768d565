"""Texts of a dump → cells of the changelog, a column at a time: the same cells as those of the row's events.

Source: dumpling/export/sql_type.go (``initColTypeRowReceiverMap``): numbers and texts are what the server sends in the text
protocol; binary types and BIT are bytes, the number of a BIT big-endian.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.changelog.cells.judging import REFUSED, Converted
from ticdc_replay.changelog.cells.types import arrow_type
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType, integer_range
from ticdc_replay.domain.withheld import withheld
from ticdc_replay.dumps.letters import INTEGER, NUMBER, are_integers, are_numbers

Bytes = Callable[[bytes], bytes]
"""How the bytes of a binary column are written. Raises ValueError for what is not so."""


def raw(text: bytes) -> bytes:
    """As they are."""
    return text


def from_hex(text: bytes) -> bytes:
    """Two digits a byte."""
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise ValueError(f"{withheld(text)} is not hexadecimal") from None


def from_base64(text: bytes) -> bytes:
    """In base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{withheld(text)} is not base64") from None


def from_literal(text: bytes) -> bytes:
    """As an SQL literal ``x'…'``."""
    if not (text.startswith(b"x'") and text.endswith(b"'")):
        raise ValueError(f"{withheld(text)} is not of the form x'…', as the values of binary columns are in SQL files")
    return from_hex(text[2:-1])


def cells(texts: pa.Array, column_type: ColumnType, zone: str, binary: Bytes) -> Converted:
    """*texts* (binary) as cells of *column_type*; TIMESTAMP is text in *zone*, and *binary* reads binary columns and BIT.

    Never raises for a value: see ``Converted``. Raises ConfigError for an unknown zone.
    """
    base = column_type.base
    if base in BINARY_TYPES or base == "bit":
        return _binary(texts, column_type, zone, binary)
    if base in INTEGER_TYPES or base == "year":
        return _integers(texts, column_type, zone)
    if base in ("float", "double"):
        return _floats(texts, column_type, zone)
    if base in ("enum", "set"):
        return _names(texts, column_type, zone)
    try:
        return typed_array(texts.cast(pa.string()), column_type, zone)
    except REFUSED:  # not all are UTF-8
        return typed_array([None if text is None else _text(text) for text in texts.to_pylist()], column_type, zone)


def key_values(texts: pa.Array, column_type: ColumnType, binary: Bytes) -> Sequence[Any]:
    """*texts*, which are cells of a key, in the neutral form that identifies rows (``WireColumn``), names of ENUM and SET as
    they are. Only of texts that ``cells`` takes."""
    base = column_type.base
    values = texts.to_pylist()
    if base in INTEGER_TYPES or base == "year":
        return list(map(int, values))
    if base in ("float", "double"):
        return list(map(float, values))
    if base == "bit":
        return [int.from_bytes(binary(value), "big") for value in values]
    if base in BINARY_TYPES:
        return list(map(binary, values))
    return list(map(_text, values))


def _names(texts: pa.Array, column_type: ColumnType, zone: str) -> Converted:
    """Each name is looked at once, unless one is none of the type's."""
    encoded = texts.dictionary_encode()
    names = typed_array([_text(text) for text in encoded.dictionary.to_pylist()], column_type, zone)
    if not names.exact and not names.bad:
        return Converted(names.array.take(encoded.indices), {}, {})
    return typed_array([None if text is None else _text(text) for text in texts.to_pylist()], column_type, zone)


def _integers(texts: pa.Array, column_type: ColumnType, zone: str) -> Converted:
    if are_integers(texts):
        try:
            array = pc.cast(texts.cast(pa.string()), arrow_type(column_type))
        except REFUSED:
            pass
        else:
            if column_type.base != "mediumint" or _is_within(array, *integer_range(column_type)):
                return Converted(array, {}, {})
    return typed_array([None if text is None else _number(text, int) for text in texts.to_pylist()], column_type, zone)


def _floats(texts: pa.Array, column_type: ColumnType, zone: str) -> Converted:
    if are_numbers(texts):
        return typed_array(pc.cast(texts.cast(pa.string()), pa.float64()), column_type, zone)
    return typed_array(
        [None if text is None else _number(text, float) for text in texts.to_pylist()], column_type, zone
    )


def _binary(texts: pa.Array, column_type: ColumnType, zone: str, binary: Bytes) -> Converted:
    if binary is raw and column_type.base != "bit":
        return typed_array(texts, column_type, zone)
    values: list[Any] = []
    bad: dict[int, str] = {}
    for at, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else binary(text))
        except ValueError as error:
            values.append(None)
            bad[at] = str(error)
    if column_type.base == "bit":
        values = [None if value is None else int.from_bytes(value, "big") for value in values]
    converted = typed_array(values, column_type, zone)
    return converted._replace(bad={**converted.bad, **bad})


def _is_within(array: pa.Array, low: int, high: int) -> bool:
    bounds = pc.min_max(array)
    return bounds["min"].as_py() is None or (low <= bounds["min"].as_py() and bounds["max"].as_py() <= high)


def _number(text: bytes, kind: type[int] | type[float]) -> Any:
    """The number that *text* is; the text itself where it is none, which no numeric column takes."""
    string = _text(text)
    pattern = INTEGER if kind is int else NUMBER
    return kind(string) if isinstance(string, str) and re.fullmatch(pattern, string) else string


def _text(text: bytes) -> str | bytes:
    """*text* as the wire's neutral form has it: bytes where it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text
