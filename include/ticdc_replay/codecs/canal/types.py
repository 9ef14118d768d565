"""Cells of Canal-JSON: what a ``mysqlType`` text says of a column, and how its values are read.

All cells are text or null. By default a text is the base type with ``unsigned`` and ``zerofill``; with
``content-compatible=true`` it is the full type as TiDB prints it, for instance ``decimal(10,2) unsigned`` or
``enum('a','it''s')``.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import cast

from ticdc_replay.codecs import text_forms
from ticdc_replay.codecs.neutral import CellKind, Neutral, as_they_are
from ticdc_replay.codecs.text_numbers import float_32, float_64, integers, unsigned_64
from ticdc_replay.domain.column_types import INTEGER_TYPES, BaseType, ColumnType, integer_range
from ticdc_replay.domain.withheld import withheld


@lru_cache(maxsize=10_000)
def cell_kind(text: str, full: bool) -> CellKind | None:
    """How cells of the type *text* are read; None for one that TiCDC does not write.

    *full* is whether texts are full types: then one without fraction digits has none. The type counts as declared if the text
    gives all of it.
    """
    match = _TYPE.fullmatch(text)
    neutrals = _NEUTRALS.get(match["base"]) if match is not None else None
    if match is None or neutrals is None:
        return None
    base, arguments, unsigned = cast(BaseType, match["base"]), match["arguments"], match["unsigned"] is not None
    if (unsigned or match["zerofill"] is not None) and len(neutrals) == 1:
        return None
    type_ = ColumnType(base, unsigned)
    if arguments is not None:
        described = _with_arguments(type_, arguments)
        if described is None:
            return None
        type_ = described
    elif full and base not in _ALWAYS_WITH_ARGUMENTS:
        type_ = ColumnType(base, unsigned, scale=0 if base in _FRACTIONS else None, declared=True)
    return CellKind(type_, neutrals[unsigned], text_forms.ARROWS.get(base))


def are_full(texts: Iterable[str], otherwise: bool) -> bool:
    """Whether types are written in full where these *texts* stand together; *otherwise* where they don't show it."""
    shown = {_ARGUMENTS.search(text) is not None for text in texts if _ALWAYS_WITH_ARGUMENTS_AT_START.match(text)}
    return shown.pop() if len(shown) == 1 else otherwise


_TYPE = re.compile(
    r"(?P<base>[a-z]+)(?:\((?P<arguments>.+)\))?(?P<unsigned> unsigned)?(?P<zerofill> zerofill)?", re.DOTALL
)
_ARGUMENTS = re.compile(r"\(")
_ALWAYS_WITH_ARGUMENTS: frozenset[str] = frozenset(
    {"decimal", "bit", "year", "char", "varchar", "binary", "varbinary", "enum", "set"}
)
"""Types that are never without arguments when they are written in full."""
_ALWAYS_WITH_ARGUMENTS_AT_START = re.compile(rf"(?:{'|'.join(sorted(_ALWAYS_WITH_ARGUMENTS))})(?![a-z])")
_FRACTIONS = frozenset({"time", "datetime", "timestamp"})
_LONGEST = {"bit": 64, "char": 255, "binary": 255, "varchar": 65_535, "varbinary": 65_535, "vector": 16_383}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")
_TWO_NUMBERS = re.compile(r"([1-9][0-9]{0,2}),(0|[1-9][0-9]?)")
_ELEMENTS = re.compile(r"'(?:[^']|'')*'(?:,'(?:[^']|'')*')*", re.DOTALL)
_ELEMENT = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_AMBIGUOUS = re.compile(r"\\[0nr]")
"""TiDB writes NUL, line feed and carriage return so, and a backslash as it is."""


def _with_arguments(type_: ColumnType, arguments: str) -> ColumnType | None:
    """*type_* with what stands between its parentheses; None where that is not of the type."""
    base, unsigned = type_.base, type_.unsigned
    if base in ("enum", "set"):
        return _named(base, arguments)
    if base in ("decimal", "float", "double"):
        numbers = _TWO_NUMBERS.fullmatch(arguments)
        if numbers is None:
            return None
        if base != "decimal":  # the digits of FLOAT(M,D) say nothing of its values
            return ColumnType(base, unsigned, declared=True)
        precision, scale = int(numbers[1]), int(numbers[2])
        if precision > 65 or scale > min(30, precision):
            return None
        return ColumnType(base, unsigned, length=precision, scale=scale, declared=True)
    if _NUMBER.fullmatch(arguments) is None:
        return None
    number = int(arguments)
    if base in _FRACTIONS:
        return ColumnType(base, scale=number, declared=True) if number <= 6 else None
    if base in _LONGEST:
        return ColumnType(base, length=number, declared=True) if number <= _LONGEST[base] else None
    if base in INTEGER_TYPES or base == "year":  # a display width
        return ColumnType(base, unsigned, declared=True)
    return None


def _named(base: BaseType, arguments: str) -> ColumnType | None:
    if _ELEMENTS.fullmatch(arguments) is None:
        return None
    if _AMBIGUOUS.search(arguments):
        return ColumnType(base)
    elements = tuple(element.replace("''", "'") for element in _ELEMENT.findall(arguments))
    return ColumnType(base, elements=elements, declared=True)


def _latin_1(values: Sequence[str | None]) -> list[bytes | None]:
    """Bytes, each as the character of its number."""
    try:
        return [None if value is None else value.encode("latin-1") for value in values]
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start + 1} of {withheld(error.object)} is not a byte") from None


_INTEGERS: tuple[BaseType, ...] = ("tinyint", "smallint", "mediumint", "int", "bigint")
_NEUTRALS: dict[str, tuple[Neutral, ...]] = {
    **{
        base: tuple(integers(*integer_range(ColumnType(base, unsigned))) for unsigned in (False, True))
        for base in _INTEGERS
    },
    "float": (float_32, float_32),
    "double": (float_64, float_64),
    "decimal": (text_forms.DECIMAL.of_texts, text_forms.DECIMAL.of_texts),
    "bit": (unsigned_64,),
    "year": (integers(0, 2155),),
    "date": (text_forms.DATE.of_texts,),
    "time": (text_forms.TIME.of_texts,),
    "datetime": (text_forms.MOMENT.of_texts,),
    "timestamp": (text_forms.MOMENT.of_texts,),
    "enum": (integers(0, 65_535),),
    "set": (unsigned_64,),
    "vector": (text_forms.VECTOR.of_texts,),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"), (as_they_are,)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), (_latin_1,)),
}
"""How values of each type are converted: one entry, or for numbers one with and one without sign."""
