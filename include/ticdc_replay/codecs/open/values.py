"""Cells of Open Protocol: what type code and flags say of a column, and how its values are read.

Reading a cell has two halves. ``OpenCellKind.annotation`` is what msgspec checks while it parses: the kind of JSON
value, ranges, base64. ``OpenCellKind.neutral`` converts a whole column later and checks what only text can get wrong.
"""

from itertools import product
from typing import Any, NamedTuple

from ticdc_replay.codecs import text_forms
from ticdc_replay.codecs.neutral import (
    MAX_UINT64,
    Arrow,
    Float32,
    Neutral,
    as_they_are,
    in_64_bits,
    integer,
    texts,
    within,
)
from ticdc_replay.codecs.open.go_quote import unquote_all, unquoted_array
from ticdc_replay.codecs.text_forms import ARROWS, utf8_array
from ticdc_replay.domain.column_types import BINARY_TYPES, BaseType, ColumnType, integer_range
from ticdc_replay.domain.tables import Column
from ticdc_replay.schemas.resolve import agree

FLAG_BINARY = 0x01
FLAG_NULLABLE = 0x40
FLAG_UNSIGNED = 0x80
FLAGS_OF_KIND = FLAG_BINARY | FLAG_UNSIGNED
"""Those that say how cells are read."""


class OpenCellKind(NamedTuple):
    """How the cells of a column with one type code and flags are read. Both generations of TiCDC agree in all of it."""

    type: ColumnType
    annotation: Any
    """The type msgspec reads a cell as. Base64 comes out as bytes."""
    neutral: Neutral
    text: bool
    """Whether a cell may be text that is not UTF-8, and then is bytes (new TiCDC copies such text as it is)."""
    arrow: Arrow | None = None
    """See ``WireColumn.arrow``."""


def cell_kind(code: int, flags: int) -> OpenCellKind | None:
    """How cells of the type *code* with *flags* are read; None for a code that Open Protocol does not have."""
    return _KINDS.get((code, flags & FLAGS_OF_KIND))


def flags_of(code: int, column: Column) -> int:
    """The flags that count for cells of *column*, whose type code is *code*; 0 where a column with this code is another."""
    type_ = column.type
    flags = FLAG_BINARY if type_.base in BINARY_TYPES else 0
    flags |= (FLAG_UNSIGNED if type_.unsigned else 0) | (FLAG_NULLABLE if column.nullable else 0)
    kind = cell_kind(code, flags)
    return flags if kind is not None and agree(type_, kind.type) else 0


def _number_kinds() -> dict[tuple[int, int], OpenCellKind]:
    kinds: dict[tuple[int, int], OpenCellKind] = {}
    integers: tuple[tuple[int, BaseType], ...] = (
        (1, "tinyint"),
        (2, "smallint"),
        (9, "mediumint"),
        (3, "int"),
        (8, "bigint"),
    )
    reals: tuple[tuple[int, BaseType, Any, Neutral], ...] = (
        (4, "float", Float32, as_they_are),
        (5, "double", float, as_they_are),
        (246, "decimal", str, text_forms.DECIMAL.of_texts),
    )
    for binary, sign in product((0, FLAG_BINARY), (0, FLAG_UNSIGNED)):
        flags, unsigned = binary | sign, bool(sign)
        for code, base in integers:
            type_ = ColumnType(base, unsigned)
            low, high = integer_range(type_)
            if not binary:  # no integer lacks this flag but where TiCDC lost them all, with the sign
                high = integer_range(ColumnType(base, unsigned=True))[1]
            check = within(low, high) if high == MAX_UINT64 else as_they_are
            kinds[code, flags] = OpenCellKind(type_, integer(low, high), check, False)
        for code, base, annotation, neutral in reals:
            kinds[code, flags] = OpenCellKind(ColumnType(base, unsigned), annotation, neutral, False, ARROWS.get(base))
    return kinds


def _flagless_kinds() -> dict[tuple[int, int], OpenCellKind]:
    """Types whose flags say nothing more: YEAR and BIT carry the unsigned flag, all but ENUM and SET the binary flag."""
    plain: tuple[tuple[int, BaseType, Any, Neutral], ...] = (
        (7, "timestamp", str, text_forms.MOMENT.of_texts),
        (10, "date", str, text_forms.DATE.of_texts),
        (11, "time", str, text_forms.TIME.of_texts),
        (12, "datetime", str, text_forms.MOMENT.of_texts),
        (13, "year", integer(0, 2155), as_they_are),
        (14, "date", str, text_forms.DATE.of_texts),
        (16, "bit", integer(0, MAX_UINT64), in_64_bits),
        (225, "vector", str, text_forms.VECTOR.of_texts),
        (247, "enum", integer(0, 65535), as_they_are),
        (248, "set", integer(0, MAX_UINT64), in_64_bits),
    )
    kinds = {
        code: OpenCellKind(ColumnType(base), annotation, neutral, False, ARROWS.get(base))
        for code, base, annotation, neutral in plain
    }
    kinds[245] = OpenCellKind(ColumnType("json"), str, as_they_are, True)
    flags = (0, FLAG_BINARY, FLAG_UNSIGNED, FLAG_BINARY | FLAG_UNSIGNED)
    return {(code, flag): kind for code, kind in kinds.items() for flag in flags}


def _string_kinds() -> dict[tuple[int, int], OpenCellKind]:
    kinds: dict[tuple[int, int], OpenCellKind] = {}
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
        kinds[code, 0] = OpenCellKind(ColumnType(text), str, as_they_are, True)
        kinds[code, FLAG_BINARY] = OpenCellKind(ColumnType(binary), str, unquote_all, False, unquoted_array)
    for code, text, binary in long:
        kinds[code, 0] = OpenCellKind(ColumnType(text), bytes, texts, False, utf8_array)
        kinds[code, FLAG_BINARY] = OpenCellKind(ColumnType(binary), bytes, as_they_are, False)
    return kinds


_KINDS = _number_kinds() | _flagless_kinds() | _string_kinds()
