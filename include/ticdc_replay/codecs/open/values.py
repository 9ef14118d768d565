"""Cells of Open Protocol: what type code and flags say of a column, and how its values are read.

Sources: protocols, type mapping, sections 1, 2, 4, 6 and 7. Reading a cell has two halves. ``CellKind.annotation`` is what
msgspec checks while it parses: the kind of JSON value, ranges, base64. ``CellKind.neutral`` converts a whole column later
and checks what only text can get wrong.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from ticdc_replay.codecs import text_forms
from ticdc_replay.codecs.open.go_quote import unquote_all, unquoted_array
from ticdc_replay.codecs.text_forms import ARROWS, Arrow, utf8_array
from ticdc_replay.domain.column_types import BaseType, ColumnType

FLAG_BINARY = 0x01
FLAG_NULLABLE = 0x40
FLAG_UNSIGNED = 0x80

_MAX_UINT64 = (1 << 64) - 1
_LARGEST_FLOAT32 = 3.4028235e38

Neutral = Callable[[Sequence[Any]], Sequence[Any]]


class CellKind(NamedTuple):
    """How the cells of a column with one type code and flags are read. Both generations of TiCDC agree in all of it."""

    type: ColumnType
    annotation: Any
    """The type msgspec reads a cell as. Base64 comes out as bytes."""
    neutral: Neutral
    text: bool
    """Whether a cell may be text that is not UTF-8, and then is bytes (new TiCDC copies such text as it is)."""
    arrow: Arrow | None = None
    """See ``WireColumn.arrow``."""


def cell_kind(code: int, flags: int) -> CellKind | None:
    """How cells of the type *code* with *flags* are read; None for a code that Open Protocol does not have."""
    return _KINDS.get((code, flags & (FLAG_BINARY | FLAG_UNSIGNED)))


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values


def _uint64(values: Sequence[int | None]) -> Sequence[int | None]:
    """Refuse what msgspec can't: integers above 2^64 - 1."""
    for value in values:
        if value is not None and value > _MAX_UINT64:
            raise ValueError(f"{value} is above the largest unsigned 64-bit integer")
    return values


def _texts(values: Sequence[bytes | None]) -> list[str | bytes | None]:
    """TEXT cells came as base64 of their bytes; those that are not UTF-8 stay bytes."""
    try:
        return [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError:
        return [None if value is None else _text(value) for value in values]


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _number_kinds() -> dict[tuple[int, int], CellKind]:
    kinds: dict[tuple[int, int], CellKind] = {}
    integers: tuple[tuple[int, BaseType, int], ...] = (
        (1, "tinyint", 8),
        (2, "smallint", 16),
        (9, "mediumint", 24),
        (3, "int", 32),
        (8, "bigint", 64),
    )
    for code, base, bits in integers:
        signed = Annotated[int, Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]
        unsigned = Annotated[int, Meta(ge=0, le=(1 << bits) - 1)] if bits < 64 else Annotated[int, Meta(ge=0)]
        check = _as_they_are if bits < 64 else _uint64
        for binary in (0, FLAG_BINARY):
            kinds[code, binary] = CellKind(ColumnType(base), signed, _as_they_are, False)
            kinds[code, binary | FLAG_UNSIGNED] = CellKind(ColumnType(base, unsigned=True), unsigned, check, False)
    reals: tuple[tuple[int, BaseType, Any, Neutral], ...] = (
        (4, "float", Annotated[float, Meta(ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32)], _as_they_are),
        (5, "double", float, _as_they_are),
        (246, "decimal", str, text_forms.DECIMAL.of_texts),
    )
    for code, base, annotation, neutral in reals:
        for binary in (0, FLAG_BINARY):
            for sign, type_ in ((0, ColumnType(base)), (FLAG_UNSIGNED, ColumnType(base, unsigned=True))):
                kinds[code, binary | sign] = CellKind(type_, annotation, neutral, False, ARROWS.get(base))
    return kinds


def _flagless_kinds() -> dict[tuple[int, int], CellKind]:
    """Types whose flags say nothing more: YEAR and BIT carry the unsigned flag, all but ENUM and SET the binary flag."""
    plain: tuple[tuple[int, BaseType, Any, Neutral], ...] = (
        (7, "timestamp", str, text_forms.MOMENT.of_texts),
        (10, "date", str, text_forms.DATE.of_texts),
        (11, "time", str, text_forms.TIME.of_texts),
        (12, "datetime", str, text_forms.MOMENT.of_texts),
        (13, "year", Annotated[int, Meta(ge=0, le=2155)], _as_they_are),
        (14, "date", str, text_forms.DATE.of_texts),
        (16, "bit", Annotated[int, Meta(ge=0)], _uint64),
        (225, "vector", str, text_forms.VECTOR.of_texts),
        (247, "enum", Annotated[int, Meta(ge=0, le=65535)], _as_they_are),
        (248, "set", Annotated[int, Meta(ge=0)], _uint64),
    )
    kinds = {
        code: CellKind(ColumnType(base), annotation, neutral, False, ARROWS.get(base))
        for code, base, annotation, neutral in plain
    }
    kinds[245] = CellKind(ColumnType("json"), str, _as_they_are, True)
    flags = (0, FLAG_BINARY, FLAG_UNSIGNED, FLAG_BINARY | FLAG_UNSIGNED)
    return {(code, flag): kind for code, kind in kinds.items() for flag in flags}


def _string_kinds() -> dict[tuple[int, int], CellKind]:
    kinds: dict[tuple[int, int], CellKind] = {}
    short: tuple[tuple[int, BaseType, BaseType], ...] = (
        (15, "varchar", "varbinary"),
        (253, "varchar", "varbinary"),
        (254, "char", "binary"),
    )
    long: tuple[tuple[int, BaseType, BaseType], ...] = (
        (249, "tinytext", "tinyblob"),
        (250, "mediumtext", "mediumblob"),
        (251, "longtext", "longblob"),
        (252, "text", "blob"),
    )
    for code, text, binary in short:
        kinds[code, 0] = CellKind(ColumnType(text), str, _as_they_are, True)
        kinds[code, FLAG_BINARY] = CellKind(ColumnType(binary), str, unquote_all, False, unquoted_array)
    for code, text, binary in long:
        kinds[code, 0] = CellKind(ColumnType(text), bytes, _texts, False, utf8_array)
        kinds[code, FLAG_BINARY] = CellKind(ColumnType(binary), bytes, _as_they_are, False)
    return kinds


_KINDS = _number_kinds() | _flagless_kinds() | _string_kinds()
