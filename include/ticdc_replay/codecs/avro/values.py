"""Cells of TiCDC's Avro: what a field's ``connect.parameters`` say of a column, and how its values are read.

Values come from ``binary``, strings as bytes; ``neutral`` converts a whole column of them.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from ticdc_replay.codecs.avro.schema import AvroField, Primitive, SchemaError
from ticdc_replay.codecs.neutral import MAX_UINT64, CellKind, Neutral, as_they_are, finite, texts, within, without_sign
from ticdc_replay.codecs.text_forms import DATE, DECIMAL, MOMENT, TIME, VECTOR
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.withheld import withheld

_MAX_UINT32 = (1 << 32) - 1
_MAX_UINT24 = (1 << 24) - 1
"""Types up to MEDIUMINT UNSIGNED are Avro ints, INT UNSIGNED itself is a long."""
_ESCAPED_COMMA = re.compile(r"(?<!\\),")


def cell_kind(field: AvroField) -> CellKind:
    """How cells of the column *field* are read; the same object for equal types. Raises SchemaError for a type that TiCDC lacks.

    The type is declared where the schema gives all of it: not for integers (TINYINT to INT look alike), texts and temporal
    types with fraction digits. Whether a decimal or a real is unsigned is lost.
    """
    name = field.parameters.get("tidb_type", "")
    avro = field.type
    assert isinstance(avro, str), "a column is no record"
    kind = _PLAIN.get((name, avro))
    if kind is not None:
        return kind
    if (name, avro) == ("DECIMAL", "bytes") and field.decimal is not None:
        return _decimal_kind(*field.decimal)
    length = field.parameters.get("length", "")
    if (name, avro) == ("BIT", "bytes") and re.fullmatch("[1-9]|[1-5][0-9]|6[0-4]", length):
        return _bit_kind(int(length))
    if name in ("ENUM", "SET") and avro == "string" and "allowed" in field.parameters:
        return _named_kind("enum" if name == "ENUM" else "set", field.parameters["allowed"])
    raise SchemaError(f"column {field.name!r}: tidb_type {name!r:.80} as Avro {avro} is unknown, or its parameters are")


@lru_cache(maxsize=1024)
def _decimal_kind(precision: int, scale: int) -> CellKind:
    return CellKind(ColumnType("decimal", length=precision, scale=scale, declared=True), decimals(scale))


@lru_cache(maxsize=64)
def _bit_kind(length: int) -> CellKind:
    return CellKind(ColumnType("bit", length=length, declared=True), _bits(length))


@lru_cache(maxsize=4096)
def _named_kind(base: Literal["enum", "set"], allowed: str) -> CellKind:
    return CellKind(ColumnType(base, elements=elements(base, allowed), declared=True), texts)


def allowed(names: Sequence[str]) -> str:
    r"""How TiCDC writes the *names* of an enum: it escapes a comma, and of ``\'`` and ``''`` it leaves ``'``."""
    return ",".join(name.replace(",", "\\,").replace("\\'", "'").replace("''", "'") for name in names)


def elements(base: Literal["enum", "set"], allowed: str) -> tuple[str, ...]:
    r"""The names in ``allowed``, where a comma inside a name is ``\,``. A name of a set holds no comma.

    A name of an enum that ends in a backslash looks the same, as TiCDC escapes no backslash. Names with one quote or two look
    the same, too: see ``allowed``.
    """
    if base == "set":
        return tuple(allowed.split(","))
    return tuple(name.replace("\\,", ",") for name in _ESCAPED_COMMA.split(allowed))


def unsigned_texts(values: Sequence[bytes | None]) -> list[int | None]:
    integers: list[int | None] = []
    for value in values:
        # int() would take blanks, signs and underscores.
        if value is not None and not (value.isdigit() and len(value) <= 20 and int(value) <= MAX_UINT64):
            raise ValueError(f"{withheld(value)} is not an unsigned 64-bit integer")
        integers.append(None if value is None else int(value))
    return integers


def decimals(scale: int) -> Neutral:
    """Unscaled two's complement, big-endian, to text with *scale* digits after the point."""
    width = scale + 1

    def text(value: bytes) -> str:
        if not value:
            raise ValueError("a decimal of no bytes")
        number = int.from_bytes(value, "big", signed=True)
        digits = str(abs(number)).zfill(width)
        if scale:
            digits = f"{digits[:-scale]}.{digits[-scale:]}"
        return f"-{digits}" if number < 0 else digits

    def neutral(values: Sequence[bytes | None]) -> list[str | None]:
        return [None if value is None else text(value) for value in values]

    return neutral


def _bits(length: int) -> Neutral:
    """Big-endian, with leading zero bytes or without."""
    largest = (1 << length) - 1

    def neutral(values: Sequence[bytes | None]) -> list[int | None]:
        numbers = [None if value is None else int.from_bytes(value, "big") for value in values]
        for value, number in zip(values, numbers, strict=True):
            if number is not None and (number > largest or not value):
                raise ValueError(f"{withheld(value)} is not {length} bits")
        return numbers

    return neutral


def _plain_kinds() -> dict[tuple[str, Primitive], CellKind]:
    return {
        ("INT", "int"): CellKind(ColumnType("int"), within(-(1 << 31), (1 << 31) - 1)),
        ("BIGINT", "long"): CellKind(ColumnType("bigint", declared=True), as_they_are),
        ("BIGINT UNSIGNED", "long"): CellKind(ColumnType("bigint", unsigned=True, declared=True), without_sign),
        ("BIGINT UNSIGNED", "string"): CellKind(ColumnType("bigint", unsigned=True, declared=True), unsigned_texts),
        ("INT UNSIGNED", "int"): CellKind(ColumnType("int", unsigned=True), within(0, _MAX_UINT24)),
        ("INT UNSIGNED", "long"): CellKind(ColumnType("int", unsigned=True), within(0, _MAX_UINT32)),
        ("FLOAT", "float"): CellKind(ColumnType("float", declared=True), finite),
        ("FLOAT", "double"): CellKind(ColumnType("float", declared=True), finite),
        ("DOUBLE", "double"): CellKind(ColumnType("double", declared=True), finite),
        ("DECIMAL", "string"): CellKind(ColumnType("decimal"), DECIMAL.of_bytes),
        ("YEAR", "int"): CellKind(ColumnType("year", declared=True), within(0, 2155)),
        ("TEXT", "string"): CellKind(ColumnType("text"), texts),
        ("BLOB", "bytes"): CellKind(ColumnType("blob"), as_they_are),
        ("JSON", "string"): CellKind(ColumnType("json", declared=True), texts),
        ("DATE", "string"): CellKind(ColumnType("date", declared=True), DATE.of_bytes),
        ("DATETIME", "string"): CellKind(ColumnType("datetime"), MOMENT.of_bytes),
        ("TIMESTAMP", "string"): CellKind(ColumnType("timestamp"), MOMENT.of_bytes),
        ("TIME", "string"): CellKind(ColumnType("time"), TIME.of_bytes),
        ("TiDBVECTORFloat32", "string"): CellKind(ColumnType("vector", declared=True), VECTOR.of_bytes),
    }


_PLAIN = _plain_kinds()
