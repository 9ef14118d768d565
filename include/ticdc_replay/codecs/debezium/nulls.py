"""Which values of a column TiCDC may have written for NULL: those that its default gives.

Releases from v8.5.2 on and the new architecture write a column's default for a NULL. It looks like the value
itself, so a cell with such a value is not certain. For some types the encoders write another value than the default.
The new one writes 0 for TIME, for defaults that it computes, and for BIGINT UNSIGNED beyond 64 bits with sign. A TIMESTAMP is
shifted by TiCDC's zone once more. Classic writes bytes as they are after their base64.
"""

import datetime
import decimal
import struct
from base64 import b64decode, b64encode, urlsafe_b64encode
from typing import Any, NamedTuple

from ticdc_replay.codecs.debezium.schema import ConnectField, Default
from ticdc_replay.codecs.local_times import in_utc
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.definition import DefinedColumn

_EXACT_INTEGER = 1 << 53
_MASK = (1 << 64) - 1
_EPOCH = datetime.datetime(1970, 1, 1)
_WRITTEN_AS_TEXT = CHARACTER_TYPES | BINARY_TYPES | {"enum", "set", "json", "vector", "timestamp", "bit"}
"""Types whose default is text in the schema block, but for BIT(1)."""
_NUMBERS = INTEGER_TYPES | {"float", "double", "decimal", "time"}
"""Types whose computed default comes as 0; their schema has no default then."""


class Doubt(NamedTuple):
    """When a cell may be another than it seems: *test* is an expression of the cell ``{v}`` and of ``{o}``, the *operand*."""

    test: str
    operand: Any = None


ALWAYS = Doubt("True")
_ANY_VALUE = Doubt("{v} is not None")
_ZERO = Doubt("{v} == 0")
_ZERO_AS_TEXT = Doubt("{v} is not None and not {v}.strip('0.')")


def null_doubts(
    type_: ColumnType,
    field: ConnectField | None,
    defined: DefinedColumn | None,
    unit: int,
    zone: str,
    binary: str = "base64",
) -> tuple[Doubt, ...]:
    """When a cell of a column that may be NULL may stand for it.

    *unit* is how many units of a DATETIME are a second, *zone* TiCDC's, *binary* the form of bytes. Where neither schema block
    nor definition tell the default, every value may.
    """
    if field is not None and not field.avro:
        if field.default is not None:
            return _of_default(type_, field.default, unit, zone)
        # Defaults that are computed for each row are not in the schema block, nor are some others in older releases.
        if defined is None or defined.computed_default:
            return (_ZERO,) if type_.base in _NUMBERS else ()
    elif defined is None or defined.computed_default:
        return (_ANY_VALUE,)
    if defined.default is None:
        return ()
    if type_ != defined.type:
        return (_ANY_VALUE,)
    if binary != "base64" and type_.base in BINARY_TYPES:
        return (Doubt("{v} in {o}", _other_forms(defined.default.encode("latin-1"), binary)),)
    return _of_default(type_, _as_written(type_, defined.default, unit), unit, zone, in_avro=field is not None)


def null_doubts_of_text(
    type_: ColumnType, field: ConnectField | None, defined: DefinedColumn | None
) -> tuple[Doubt, ...]:
    """As ``null_doubts``, of a decimal or BIGINT UNSIGNED that is text in JSON."""
    if field is not None and field.default is not None:
        default = str(field.default)
    elif defined is None or defined.computed_default:
        return (_ANY_VALUE if field is None else _ZERO_AS_TEXT,)
    elif defined.default is None:
        return ()
    elif type_ != defined.type:
        return (_ANY_VALUE,)
    else:
        default = defined.default
    try:
        number = decimal.Decimal(default)
        forms = {default, f"{number:f}", f"{number:.{type_.scale or 0}f}"}
    except (ValueError, decimal.InvalidOperation):
        return (_ANY_VALUE,)
    found = Doubt("{v} in {o}", frozenset(forms))
    return (_ZERO_AS_TEXT, found) if type_.base == "bigint" else (found,)


def raw_defaults(
    field: ConnectField | None, defined: DefinedColumn | None
) -> tuple[frozenset[str | bytes], bytes] | None:
    """What classic TiCDC writes for the default of a binary column, and the bytes of the default; None without default."""
    if field is not None:
        if not isinstance(field.default, str):
            return None
        content = field.default.encode(errors="surrogateescape")
    elif defined is not None and defined.default is not None:
        content = defined.default.encode("latin-1")
    else:
        return None
    return frozenset((content, _replaced(content), content.decode(errors="surrogateescape"))), content


def _of_default(type_: ColumnType, default: Default, unit: int, zone: str, in_avro: bool = False) -> tuple[Doubt, ...]:
    """Cells that a column with *default*, as the schema block writes it, may show for NULL."""
    base = type_.base
    if isinstance(default, str) and base == "datetime":  # as releases before v8.5.2 wrote it
        default = _as_written(type_, default, unit)
    as_text = base in _WRITTEN_AS_TEXT and (base, type_.length) != ("bit", 1)
    if isinstance(default, str) is not as_text:  # no default of such a type
        return (_ANY_VALUE,)
    if isinstance(default, str):
        return (_of_text(type_, default, zone, in_avro),)
    assert default is not None
    if base in ("datetime", "time"):
        return (Doubt("{v} in {o}", frozenset((0, default))),)
    if base == "year":
        return (Doubt("{v} in {o}", frozenset((default, int(default) % 100))),)
    if base == "float":
        return (Doubt("{v} is not None and {o}({v})", _same_float32(float(default))),)
    if base == "bigint" and type_.unsigned:
        return (_ZERO, Doubt("{v} is not None and {o}({v})", _same_double(float(default))))
    if abs(default) >= _EXACT_INTEGER:
        return (Doubt("{v} is not None and {o} == float({v})", float(default)),)
    return (Doubt("{v} == {o}", default),)


def _of_text(type_: ColumnType, default: str, zone: str, in_avro: bool) -> Doubt:
    if type_.base == "bit":
        try:
            return Doubt("{v} == {o}", b64decode(default, validate=True))
        except ValueError:
            return _ANY_VALUE
    if type_.base in BINARY_TYPES:
        return Doubt("{v} in {o}", _binary_forms(default.encode(errors="surrogateescape")))
    forms = _text_forms(type_, default, zone)
    return Doubt("{v} in {o}", frozenset(form.encode(errors="surrogateescape") for form in forms) if in_avro else forms)


def _binary_forms(content: bytes) -> frozenset[str | bytes]:
    forms: set[str | bytes] = set()
    for stored in (content, _replaced(content).encode()):
        forms |= {stored, b64encode(stored).decode(), stored.decode(errors="surrogateescape")}
    return frozenset(forms)


def _other_forms(content: bytes, binary: str) -> frozenset[str]:
    stored = (content, _replaced(content).encode())
    return frozenset(each.hex() if binary == "hex" else urlsafe_b64encode(each).decode() for each in stored)


def _replaced(content: bytes) -> str:
    """*content* as TiDB keeps a default: each byte that is not UTF-8 is lost."""
    return "".join(
        "\ufffd" if "\udc80" <= char <= "\udcff" else char for char in content.decode(errors="surrogateescape")
    )


def _text_forms(type_: ColumnType, default: str, zone: str) -> frozenset[str]:
    forms = {default, default.rstrip(" ")}
    if type_.base == "timestamp":
        forms |= {f"{moment.replace(' ', 'T')}Z" for moment in in_utc(default.rstrip("Z").replace("T", " "), zone)}
    elif type_.elements is not None:
        wanted = default.split(",") if type_.base == "set" else [default]
        names = {name.casefold() for name in wanted}
        forms.add(",".join(name for name in type_.elements if name.casefold() in names))
    return frozenset(forms)


def _same_float32(default: float) -> Any:
    packed = struct.pack("<f", default)
    return lambda value: struct.pack("<f", value) == packed


def _same_double(default: float) -> Any:
    return lambda value: float(value & _MASK) == default


def _as_written(type_: ColumnType, text: str, unit: int) -> Default:
    """The default *text* of a definition as the schema block would have it."""
    base = type_.base
    if base in INTEGER_TYPES or base == "year":
        return int(text)
    if base in ("float", "double", "decimal"):
        return float(text)
    if base == "bit":
        if type_.length == 1:
            return text != "0"
        size = ((type_.length or 1) + 7) // 8
        return b64encode(int(text).to_bytes(size, "little")).decode()
    if base in BINARY_TYPES:
        return text.encode("latin-1").decode(errors="surrogateescape")
    if base == "date":
        return (_moment(f"{text} 00:00:00") - _EPOCH).days
    if base == "datetime":
        return (_moment(text) - _EPOCH) // datetime.timedelta(microseconds=1_000_000 // unit)
    if base == "time":
        sign = -1 if text.startswith("-") else 1
        hours, minutes, seconds = text.lstrip("-").split(":")
        whole, _, fraction = seconds.partition(".")
        clock = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
        return sign * (clock * 1_000_000 + int(fraction.ljust(6, "0")))
    return text


def _moment(text: str) -> datetime.datetime:
    """A date and time, its year shifted as TiCDC does; zero and partial dates are as good as 1970-01-01."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return _EPOCH
    if moment.year < 100:
        moment = moment.replace(year=moment.year + (2000 if moment.year < 70 else 1900))
    return moment
