"""Which type a column of Debezium has: what wire and definition say of it.

Without schema block the wire says nothing, with it not all: int16 may be TINYINT or SMALLINT, string may be text or base64,
double may be DECIMAL. The TiDB extension says more. A definition fills the rest where it does not contradict the wire.
"""

from collections.abc import Set

from ticdc_replay.codecs.avro.values import allowed, elements
from ticdc_replay.codecs.debezium.schema import (
    BITS,
    DATE,
    DECIMAL,
    ENUM,
    ENUM_SET,
    JSON,
    MICROSECONDS,
    MILLISECONDS,
    TIME,
    VECTOR,
    YEAR,
    ZONED,
    ConnectField,
)
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, BaseType, ColumnType

_STRINGS = CHARACTER_TYPES | BINARY_TYPES
_SEMANTIC: dict[str, BaseType] = {
    BITS: "bit",
    DATE: "date",
    DECIMAL: "decimal",
    ENUM: "enum",
    ENUM_SET: "set",
    JSON: "json",
    MICROSECONDS: "datetime",
    MILLISECONDS: "datetime",
    TIME: "time",
    VECTOR: "vector",
    YEAR: "year",
    ZONED: "timestamp",
}
_COMPLETE = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "bit", "year", "date", "json", "vector",
     "tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "enum", "set"}
)  # fmt: skip
"""Types that have no more to them than their name, their sign, and what the schema block says of bits and names."""
_INTEGERS: dict[str, frozenset[tuple[str, bool]]] = {
    "int16": frozenset({("tinyint", False), ("tinyint", True), ("smallint", False)}),
    "int32": frozenset({("smallint", True), ("mediumint", False), ("mediumint", True), ("int", False)}),
    "int64": frozenset({("int", True), ("bigint", False), ("bigint", True)}),
}
"""Types with their sign by the type in the schema block."""
_WIDEST: dict[str, BaseType] = {"int16": "smallint", "int32": "int", "int64": "bigint"}
_LONGEST_MILLISECONDS = 3
"""Up to so many fraction digits a DATETIME comes in milliseconds, else in microseconds."""


def column_type(
    field: ConnectField | None, declared: ColumnType | None, texts: Set[BaseType] = frozenset()
) -> ColumnType | None:
    """The type of a column which *field* and *declared* describe; None if neither is enough.

    Where both are there and disagree, the wire is right: the definition is of another time. *texts* are the types of numbers
    that are text in JSON.
    """
    if field is None:
        return declared
    if declared is not None and _fits(declared, field, texts):
        return declared
    return _from_wire(field)


def _fits(declared: ColumnType, field: ConnectField, texts: Set[BaseType]) -> bool:
    """Whether *field* can be of a column that is *declared* so."""
    base = declared.base
    if field.tidb_type:
        if _tidb_base(field) != base:
            return False
        if base in INTEGER_TYPES and declared.unsigned != _is_unsigned(field):
            return False
    semantic = _SEMANTIC.get(field.semantic)
    if semantic is not None:
        if semantic != base:
            return False
        if base == "datetime":
            return ((declared.scale or 0) <= _LONGEST_MILLISECONDS) == (field.semantic == MILLISECONDS)
        if base == "bit":
            return declared.length == field.length
        if base == "enum":
            return field.allowed == allowed(declared.elements or ())
        if base == "set":
            return declared.elements == _elements(field)
        if base == "decimal":
            return (declared.length, declared.scale) == (field.length, field.scale)
        return True
    if field.type in _INTEGERS:
        return (base, declared.unsigned) in _INTEGERS[field.type]
    if field.type == "boolean":
        return base == "bit" and declared.length in (None, 1)
    if field.type == "float":
        return base == "float"
    if field.type == "double":
        return base in ("decimal", "double", "float")
    if field.type == "bytes":
        return base in BINARY_TYPES
    if base in ("decimal", "bigint"):
        return field.avro or field.tidb_type != "" or base in texts
    return base in _STRINGS


def _from_wire(field: ConnectField) -> ColumnType | None:
    base = _SEMANTIC.get(field.semantic)
    if base == "bit":
        return ColumnType("bit", length=field.length, declared=True)
    if base in ("enum", "set"):
        return ColumnType(base, elements=_elements(field), declared=True)
    if base == "decimal":
        return ColumnType("decimal", length=field.length, scale=field.scale, declared=True)
    if base is not None:
        return ColumnType(base, declared=base in _COMPLETE)
    if field.type == "boolean":
        return ColumnType("bit", length=1, declared=True)
    base = _tidb_base(field)
    if base is not None:
        return ColumnType(base, unsigned=_is_unsigned(field), declared=base in _COMPLETE)
    if field.type in _WIDEST:
        return ColumnType(_WIDEST[field.type])
    if field.type == "float":
        return ColumnType("float")
    if field.type == "double":
        return ColumnType("double")
    if field.type == "bytes":
        return ColumnType("longblob")
    return ColumnType("longtext") if field.avro else None


def _tidb_base(field: ConnectField) -> BaseType | None:
    name = field.tidb_type.removesuffix(" unsigned")
    if name == "var_string":
        return "varchar"
    return name if name in _COMPLETE | _STRINGS | {"decimal", "time", "datetime", "timestamp"} else None  # type: ignore[return-value]


def _is_unsigned(field: ConnectField) -> bool:
    return field.tidb_type.endswith(" unsigned")


def _elements(field: ConnectField) -> tuple[str, ...]:
    return elements("set" if field.semantic == ENUM_SET else "enum", field.allowed or "")
