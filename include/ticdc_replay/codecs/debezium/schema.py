"""What the ``schema`` block of a Debezium message says of a table's columns."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from ticdc_replay.codecs.avro.schema import SchemaError
from ticdc_replay.domain.limits import is_unicode

ConnectType = Literal["boolean", "int16", "int32", "int64", "float", "double", "string", "bytes"]

BITS = "io.debezium.data.Bits"
ENUM = "io.debezium.data.Enum"
ENUM_SET = "io.debezium.data.EnumSet"
JSON = "io.debezium.data.Json"
VECTOR = "io.debezium.data.TiDBVectorFloat32"
DATE = "io.debezium.time.Date"
MILLISECONDS = "io.debezium.time.Timestamp"
MICROSECONDS = "io.debezium.time.MicroTimestamp"
ZONED = "io.debezium.time.ZonedTimestamp"
TIME = "io.debezium.time.MicroTime"
YEAR = "io.debezium.time.Year"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""Debezium-Avro only."""

Default = str | int | float | bool | None


class ConnectField(NamedTuple):
    """What the wire says of one column."""

    name: str
    type: ConnectType
    semantic: str = ""
    """The name of the type, "" for a plain one."""
    tidb_type: str = ""
    """TiDB's own type; only with the TiDB extension."""
    nullable: bool | None = None
    """None where the wire does not tell."""
    allowed: str | None = None
    """The names of an enum or set, as they are written."""
    length: int | None = None
    """Bits of a bit, precision of a decimal."""
    scale: int | None = None
    default: Default = None
    """The column's default as it is written, None where there is none."""
    avro: bool = False
    """Whether the wire is Debezium-Avro: bytes are bytes, and there are no defaults."""


_MOST_COLUMNS = 2 * 4096
"""Of a schema: a table of TiDB has 4,096 at most, and the virtual ones among them may be listed twice."""


class _Parameters(msgspec.Struct):
    allowed: str | None = None
    length: str | None = None


class _Column(msgspec.Struct):
    type: ConnectType
    optional: bool
    field: str
    name: str = ""
    tidb_type: str = ""
    parameters: _Parameters | None = None
    default: Any = None


class _Image(msgspec.Struct):
    fields: list[_Column]


class _Member(msgspec.Struct):
    field: str
    fields: Any = None


class _Value(msgspec.Struct):
    fields: list[_Member]


def value_fields(schema: Any) -> tuple[dict[str, ConnectField], frozenset[str]]:
    """The columns of a row by name, in order, from the schema of its value; and those that are listed twice.

    New TiCDC lists virtual columns twice. Raises SchemaError.
    """
    try:
        image = next((part for part in msgspec.convert(schema, _Value).fields if part.field == "after"), None)
        if image is None:
            raise SchemaError("schema: no member after")
        columns = msgspec.convert({"fields": image.fields}, _Image).fields
    except msgspec.ValidationError as error:
        raise SchemaError(f"schema: {error}") from None
    if len(columns) > _MOST_COLUMNS:
        raise SchemaError(f"schema: {len(columns)} columns; no table has more than {_MOST_COLUMNS // 2}")
    fields: dict[str, ConnectField] = {}
    repeated = set()
    for column in columns:
        if column.field in fields:
            repeated.add(column.field)
        else:
            fields[column.field] = _field(column)
    return fields, frozenset(repeated)


def key_names(schema: Any) -> Sequence[str]:
    """The names of a key's columns, from the schema of the key. Raises SchemaError."""
    try:
        return [column.field for column in msgspec.convert(schema, _Image).fields]
    except msgspec.ValidationError as error:
        raise SchemaError(f"schema: {error}") from None


def bits(text: str | None) -> int:
    """The width of a bit from its parameter. Raises SchemaError."""
    if text is None or len(text) > 2 or not text.isdecimal() or not 1 <= int(text) <= 64:
        raise SchemaError(f"schema: {text!r:.20} is not the width of a bit")
    return int(text)


def _field(column: _Column) -> ConnectField:
    parameters = column.parameters or _Parameters()
    default = column.default
    if not isinstance(default, str | int | float | bool | None):
        raise SchemaError(f"schema: the default of {column.field!r} is neither text nor number")
    if parameters.allowed is not None and not is_unicode(parameters.allowed):
        raise SchemaError(f"schema: names of {column.field!r} that are not UTF-8")
    return ConnectField(
        column.field,
        column.type,
        column.name,
        column.tidb_type,
        column.optional,
        parameters.allowed,
        bits(parameters.length) if column.name == BITS else None,
        None,
        default,
    )
