"""How the cells of a column of Debezium are read, and when they may not be what the database had.

Everything the wire can't carry exactly is a doubt (docs/protocols.md, What can't come through):

* DECIMAL is a double: exact where its scale is known and no other decimal of that scale gives the same double, which holds
  for up to 15 digits; else doubtful. Not where the changefeed asks for text (``modes``); nor is BIGINT UNSIGNED then.
* A DATE or DATETIME from 1970 to 2069 may be one of the years 0 to 99, which TiCDC shifts there; 1970-01-01 and NULL may be
  a zero or partial date. So may a TIMESTAMP at 1970-01-01 00:00:00.
* A TIMESTAMP whose local time TiCDC's clocks show twice may be the other one: TiCDC makes it UTC out of that local time.
* DATETIME and TIME lose their fraction digits if no definition says how many there are.
* BIGINT UNSIGNED is wrapped: exact where the type is known, else a negative number is doubtful.
* A value that is the column's default may be NULL (``nulls``).
* Without schema block and definition, all is: dates are numbers, bytes are text.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from ticdc_replay.codecs.avro.values import decimals as avro_decimals
from ticdc_replay.codecs.avro.values import unsigned_texts
from ticdc_replay.codecs.debezium import values
from ticdc_replay.codecs.debezium.modes import BY_DEFAULT, Modes
from ticdc_replay.codecs.debezium.nulls import ALWAYS, Doubt, null_doubts, null_doubts_of_text, raw_defaults
from ticdc_replay.codecs.debezium.schema import MICROSECONDS, ConnectField
from ticdc_replay.codecs.debezium.types import column_type
from ticdc_replay.codecs.local_times import repeated_minutes
from ticdc_replay.codecs.neutral import MAX_UINT64, Float32, Neutral, as_they_are, finite, integer, texts
from ticdc_replay.codecs.text_forms import DECIMAL, VECTOR
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType, integer_range
from ticdc_replay.domain.definition import DefinedColumn

UNKNOWN = ColumnType("longtext")
"""The type of a column that nothing describes: the text that stands on the wire, whatever it is."""

_LARGEST_DECIMAL = 1e65
_SHIFTED_DAYS = 36_525
"""From 1970-01-01 to 2069-12-31: the years to which TiCDC shifts the years 0 to 99."""
_SHIFTED_SECONDS = _SHIFTED_DAYS * 86_400
_SHIFTED = "{v} is None or 0 <= {v} < {o}"
_NO_TIMESTAMP = ("1970-01-01T00:00:00Z", *(f"1970-01-01T00:00:00.{'0' * digits}Z" for digits in range(1, 7)))
"""What TiCDC writes for a zero TIMESTAMP, and for those before 1970-01-01 00:00:01 of its own zone."""


class Cells(NamedTuple):
    """How the cells of one column are read."""

    type: ColumnType
    annotation: Any
    """The type msgspec reads a cell as; None for ``UNKNOWN``, whose cells are any."""
    neutral: Neutral
    doubts: tuple[Doubt, ...]
    text: bool
    """Whether a cell may be text that is not UTF-8, and then is bytes (TiCDC copies such text as it is)."""
    ambiguous: bool | Callable[[Any], bool] = False
    """As ``WireColumn`` has it."""


def cells_of(
    field: ConnectField | None, defined: DefinedColumn | None, is_handle_key: bool, zone: str, modes: Modes = BY_DEFAULT
) -> Cells:
    """How cells of a column are read which *field* and *defined* describe, as far as they are there.

    Without field, the wire is JSON without schema block. *zone* is TiCDC's. Columns of the handle key are never NULL.
    """
    type_ = column_type(field, defined.type if defined is not None else None, modes.texts)
    if type_ is None:
        ambiguous = values.may_be_decimals_as_text if field is None else False
        return Cells(UNKNOWN, None, as_they_are, (ALWAYS,), True, ambiguous)
    unit = _unit(type_, field)
    if field is not None and field.avro:
        cells = _in_avro(type_, field, unit)
    elif _is_number_as_text(type_, field, modes):
        return _number_as_text(type_, field, defined, not is_handle_key and _may_be_null(field, defined))
    else:
        cells = _in_json(type_, field, unit, modes)
    doubts = _doubts(type_, field, unit, zone)
    if not is_handle_key and _may_be_null(field, defined):
        doubts += null_doubts(type_, field, defined, unit, zone, modes.binary)
        raw = raw_defaults(field, defined) if type_.base in BINARY_TYPES and cells.annotation is bytes else None
        if raw is not None and not (field is not None and field.avro):
            cells = cells._replace(annotation=str, neutral=values.base64_or(*raw), text=True)
    return cells._replace(doubts=doubts, ambiguous=_ambiguous(type_))


def _is_number_as_text(type_: ColumnType, field: ConnectField | None, modes: Modes) -> bool:
    if type_.base != "decimal" and not (type_.base == "bigint" and type_.unsigned):
        return False
    return type_.base in modes.texts if field is None else field.type == "string"


def _number_as_text(
    type_: ColumnType, field: ConnectField | None, defined: DefinedColumn | None, may_be_null: bool
) -> Cells:
    neutral: Neutral = DECIMAL.of_texts if type_.base == "decimal" else values.unsigned_texts
    doubts = null_doubts_of_text(type_, field, defined) if may_be_null else ()
    return Cells(type_, str, neutral, doubts, False)


def _ambiguous(type_: ColumnType) -> bool | Callable[[Any], bool]:
    """Which of the doubtful cells of a column may be several values that keys have in practice.

    Only decimals: numbers whose sign, and times whose digits, are not known differ on the wire where they differ at all. Years
    below 100 and zero dates would make every key with a time ambiguous.
    """
    if type_.base == "decimal" and type_.scale is not None:
        return True
    if type_.base == "decimal" or (type_.base == "double" and not type_.declared):
        return values.may_be_decimals
    return False


def _may_be_null(field: ConnectField | None, defined: DefinedColumn | None) -> bool:
    if field is not None and field.nullable is not None:
        return field.nullable
    return defined is None or defined.nullable


def _unit(type_: ColumnType, field: ConnectField | None) -> int:
    """How many units of a DATETIME are a second."""
    if field is not None:
        return 1_000_000 if field.semantic == MICROSECONDS else 1000
    return 1_000_000 if (type_.scale or 0) > 3 else 1000


def _doubts(type_: ColumnType, field: ConnectField | None, unit: int, zone: str) -> tuple[Doubt, ...]:
    """When a cell may be another than it seems, NULL and defaults apart."""
    base, avro = type_.base, field is not None and field.avro
    digits_unknown = type_.scale is None
    if base == "decimal" and not avro:
        if type_.scale is None:
            return (ALWAYS,)
        limit, scale = values.limit_of(type_.scale), type_.scale
        test = "{v} is not None and not -{o}[0] < {v} < {o}[0] and not {o}[1]({v})"
        return (Doubt(test, (limit, lambda value: values.is_one_decimal(value, scale))),)
    if base == "double" and not type_.declared:
        return (ALWAYS,)  # or a DECIMAL
    if base == "bigint" and not type_.declared:
        return (Doubt("{v} is not None and {v} < 0"),)  # or a BIGINT UNSIGNED
    if base == "date":
        return (Doubt(_SHIFTED, _SHIFTED_DAYS),)
    if base == "datetime":
        return (ALWAYS,) if digits_unknown else (Doubt(_SHIFTED, _SHIFTED_SECONDS * unit),)
    if base == "time" and digits_unknown:
        return (ALWAYS,)
    if base == "timestamp":
        return _timestamp_doubts(zone, avro)
    return ()


def _timestamp_doubts(zone: str, avro: bool) -> tuple[Doubt, ...]:
    nothing, repeated = frozenset[str | bytes](_NO_TIMESTAMP), frozenset[str | bytes](repeated_minutes(zone))
    if avro:
        nothing, repeated = (
            frozenset(text.encode() for text in texts) for texts in (_NO_TIMESTAMP, repeated_minutes(zone))
        )
    zero = Doubt("{v} in {o}", nothing)
    return (zero, Doubt("{v} is not None and {v}[:16] in {o}", repeated)) if repeated else (zero,)


def _in_json(type_: ColumnType, field: ConnectField | None, unit: int, modes: Modes = BY_DEFAULT) -> Cells:
    """Cells in JSON, without their doubts."""
    base = type_.base
    if base in INTEGER_TYPES:
        return _integer(type_)
    if base in CHARACTER_TYPES or base in ("enum", "set", "json"):
        return Cells(type_, str, as_they_are, (), True)
    if base in BINARY_TYPES and modes.binary != "base64":
        return Cells(type_, str, values.hex_bytes if modes.binary == "hex" else values.url_safe_bytes, (), False)
    if base in BINARY_TYPES:
        return Cells(type_, bytes, as_they_are, (), False)
    if base == "float":
        return Cells(type_, Float32, as_they_are, (), False)
    if base == "double":
        return Cells(type_, float, as_they_are, (), False)
    if base == "decimal":
        neutral = values.plain_numbers if type_.scale is None else values.decimals(type_.scale)
        number = Annotated[float, Meta(ge=-_LARGEST_DECIMAL, le=_LARGEST_DECIMAL)]
        return Cells(type_, number, neutral, (), False)
    if base == "bit" and type_.length == 1:
        return Cells(type_, bool, values.flags, (), False)
    if base == "bit":
        return Cells(type_, bytes, values.bits(type_.length or 64), (), False)
    if base == "timestamp":
        return Cells(type_, str, values.timestamps, (), False)
    if base == "vector":
        return Cells(type_, str, VECTOR.of_texts, (), False)
    return _timed(type_, unit)


def _in_avro(type_: ColumnType, field: ConnectField, unit: int) -> Cells:
    """Cells in Avro, whose strings are bytes, without their doubts. What its binary form can't be, the reader refuses."""
    base = type_.base
    if field.type == "string" and base == "decimal":
        return Cells(type_, None, DECIMAL.of_bytes, (), False)
    if field.type == "string" and base == "bigint":
        return Cells(type_, None, unsigned_texts, (), False)
    if field.type == "bytes" and base == "decimal":
        return Cells(type_, None, avro_decimals(type_.scale or 0), (), False)
    if base in CHARACTER_TYPES or base in ("enum", "set", "json"):
        return Cells(type_, None, texts, (), False)
    if base == "vector":
        return Cells(type_, None, VECTOR.of_bytes, (), False)
    if base == "timestamp":
        return Cells(type_, None, lambda cells: values.timestamps(_as_text(cells)), (), False)
    if base in ("float", "double"):
        return Cells(type_, None, finite, (), False)
    return _in_json(type_, field, unit)


def _as_text(cells: Sequence[bytes | None]) -> list[str | None]:
    return [None if cell is None else cell.decode("ascii", "replace") for cell in cells]


def _integer(type_: ColumnType) -> Cells:
    low, high = integer_range(type_)
    if high == MAX_UINT64:
        return Cells(type_, integer(-(1 << 63), high), values.unsigned_64, (), False)
    return Cells(type_, integer(low, high), as_they_are, (), False)


def _timed(type_: ColumnType, unit: int) -> Cells:
    base = type_.base
    if base == "year":
        return Cells(type_, integer(0, 2155), as_they_are, (), False)
    neutral: dict[str, Callable[[], Neutral]] = {
        "date": lambda: values.dates,
        "datetime": lambda: values.moments(unit // 1000, type_.scale),
        "time": lambda: values.times(type_.scale),
    }
    return Cells(type_, integer(-(1 << 63), (1 << 63) - 1), neutral[base](), (), False)
