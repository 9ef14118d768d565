"""Table schemas in DDL and bootstraps of Simple as table definitions."""

from typing import Annotated, get_args

import msgspec
from msgspec import Meta

from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, BaseType, ColumnType
from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.schemas.ddl import literals
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError, wire_tokens

_BASES: dict[str, BaseType] = {base: base for base in get_args(BaseType)} | {"var_string": "varchar"}
_TEMPORAL_WIDTH = {"time": 10, "datetime": 19, "timestamp": 19}
_ADDED_PRIMARY = "primary"
"""The name of the last index where TiCDC adds a primary key that is no index of TiDB; a real one is called PRIMARY."""
_HIDDEN = "_V$_"
"""The prefix of the hidden columns of expression indexes."""


class DataType(msgspec.Struct, gc=False, rename={"mysql_type": "mysqlType"}):
    """A column's type. ``length`` is absent where it is 0, ``decimal`` where it is 0 and, in Avro, for most types."""

    mysql_type: str
    length: int = 0
    decimal: int | None = None
    elements: tuple[str, ...] | None = None
    unsigned: bool | None = None


class ColumnSchema(msgspec.Struct, gc=False, rename={"type": "dataType"}):
    """A column. ``default`` is text, for BIT the number."""

    name: str
    type: DataType
    nullable: bool
    default: str | int | None = None


class IndexSchema(msgspec.Struct, gc=False):
    """An index. Its own ``nullable`` is not read: old TiCDC may compute it from the wrong columns."""

    name: str
    unique: bool
    primary: bool
    columns: tuple[str, ...] | None


class SentTableSchema(msgspec.Struct, gc=False):
    """A table. ``version`` is what its rows name (TSO)."""

    schema: str
    table: str
    version: Annotated[int, Meta(ge=0, le=MAX_TSO)]
    columns: tuple[ColumnSchema, ...] | None
    indexes: tuple[IndexSchema, ...] | None


def definition_of(wire: SentTableSchema) -> TableDefinition:
    """The definition that *wire* is; its ``valid_from`` is the version.

    Columns in the order of the wire: of the table (new TiCDC), or of column ids (old). Left out are those of types that no
    table's column has (a view's). The wire does not say which columns are generated; the hidden ones of expression indexes are
    known to be virtual by their names.
    """
    columns = [_column(column) for column in wire.columns or ()]
    known = tuple(column for column in columns if column is not None)
    spelling = {folded(column.name): column.name for column in known}
    indexes = [_index(index, spelling) for index in wire.indexes or ()]
    definition = TableDefinition(TableName(wire.schema, wire.table), known, tuple(indexes), valid_from=wire.version)
    if wire.indexes and wire.indexes[-1].name == _ADDED_PRIMARY and _is_repeated(indexes[-1], indexes[:-1], definition):
        return msgspec.structs.replace(definition, indexes=tuple(indexes[:-1]))
    return definition


def _is_repeated(primary: Index, others: list[Index], definition: TableDefinition) -> bool:
    """Whether *primary* only repeats the first unique index of NOT NULL columns: TiDB takes it for the primary key of a table
    without one, TiCDC does not. A clustered integer key that such an index repeats identifies rows either way.
    """
    nullable = {column.name for column in definition.columns if column.nullable}
    first = next(
        (index for index in others if index.unique and index.plain and nullable.isdisjoint(index.columns)), None
    )
    return first is not None and first.columns == primary.columns


def database_of(sql: str) -> str:
    """The database that *sql*, a statement on databases, is about; "" for any other statement."""
    try:
        cursor = Cursor(wire_tokens(sql))
        if not (cursor.take_any("CREATE", "ALTER", "DROP") and cursor.take_any("DATABASE", "SCHEMA")):
            return ""
        cursor.take("IF")
        cursor.take("NOT")
        cursor.take("EXISTS")
        return cursor.name()
    except DdlSyntaxError:
        return ""


def _column(wire: ColumnSchema) -> DefinedColumn | None:
    type_ = _type(wire.type)
    if type_ is None:
        return None
    column = DefinedColumn(
        wire.name, type_, wire.nullable, generated="virtual" if wire.name.startswith(_HIDDEN) else None
    )
    default = _default(wire.default, type_)
    return literals.with_default(column, default, computed=default is None)


def _type(wire: DataType) -> ColumnType | None:
    base = _BASES.get(wire.mysql_type)
    if base is None:
        return None
    length = wire.length if wire.length > 0 else None
    if base in INTEGER_TYPES or base in ("float", "double"):
        return ColumnType(base, unsigned=bool(wire.unsigned), declared=True)
    if base == "decimal":
        scale = max(wire.decimal or 0, 0)
        return ColumnType(base, unsigned=bool(wire.unsigned), length=length, scale=scale, declared=True)
    if base in _TEMPORAL_WIDTH:
        return ColumnType(base, scale=_fraction_digits(wire, _TEMPORAL_WIDTH[base]), declared=True)
    if base in ("enum", "set"):
        return ColumnType(base, elements=wire.elements or (), declared=True)
    if base in ("bit", "char", "varchar", "binary", "varbinary", "vector"):
        return ColumnType(base, length=length, declared=True)
    return ColumnType(base, declared=True)


def _fraction_digits(wire: DataType, width: int) -> int:
    """``decimal`` says it in JSON and, of TIMESTAMP, in new TiCDC's Avro; else the length does, which counts the point too."""
    if wire.decimal is not None and wire.decimal >= 0:
        return wire.decimal
    return max(wire.length - width - 1, 0)


def _default(value: str | int | None, type_: ColumnType) -> literals.Literal | None:
    """The default as a literal, None if it is unknown: U+FFFD stands for bytes that are not UTF-8."""
    if value is None:
        return literals.NULL
    if isinstance(value, int):
        return literals.Literal("number", str(value))
    if "\ufffd" in value:
        return None
    if type_.base in BINARY_TYPES:
        return literals.Literal("hex", value.encode().hex())
    return literals.Literal("string", value)


def _index(wire: IndexSchema, spelling: dict[str, str]) -> Index:
    """A clustered integer key is called ``primary``, others ``PRIMARY``; the flag decides."""
    names = wire.columns or ()
    columns = tuple(spelling[folded(name)] for name in names if folded(name) in spelling)
    plain = 0 < len(columns) == len(names)
    return Index(PRIMARY if wire.primary else wire.name, columns, unique=wire.unique, plain=plain)
