"""One cell against the value that the database had."""

import base64
import datetime
import json
import re
import struct
from decimal import Decimal

from tests.expected.wire import Json, Wire

_TEMPORAL = ("date", "datetime", "timestamp", "time")
_CHARACTERS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "vector")
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def same_cell(got: Json, wanted: Json, wire: Wire) -> bool:
    """Whether *got* says *wanted*, or says as much of it as *wire* can, and says that it is not all."""
    try:
        return (wire.debezium and _lossy(got, wanted)) if got.get("lossy") else _exact(got, wanted, wire)
    except (ValueError, ArithmeticError):  # neither a number nor JSON
        return False


def _base(type_: str) -> str:
    return re.split(r"[ (]", type_, maxsplit=1)[0]


def _exact(got: Json, wanted: Json, wire: Wire) -> bool:
    type_, value = wanted["mysql_type"], wanted["value"]
    base = _base(type_)
    if value is None:
        return got["value"] is None and not got.keys() & {"index", "value_utc"}
    if base in ("enum", "set"):
        return not got.get("is_binary") and _alternatives(got, {"index": wanted["index"], "value": value})
    if base == "timestamp":
        return not got.get("is_binary") and _alternatives(
            got, {"value": value, "value_utc": wanted.get("value_utc", value)}
        )
    text = got["value"]
    if text is None or bool(got.get("is_binary")) != bool(wanted.get("is_binary")):
        return False
    if base == "json":
        return bool(json.loads(text) == json.loads(value))
    if base in ("float", "double"):
        width = "<f" if base == "float" else "<d"
        return struct.pack(width, float(text)) == struct.pack(width, float(value))
    if base == "decimal" and wire.debezium:
        return Decimal(text) == Decimal(value)
    return bool(text == value)


def _alternatives(got: Json, wanted: Json) -> bool:
    """Whether *got* has at least one of the members *wanted*, and each that it has is right."""
    there = [name for name in wanted if name in got]
    return bool(there) and all(got[name] == wanted[name] for name in there)


def _lossy(got: Json, wanted: Json) -> bool:
    """Whether Debezium may show *wanted* as *got*."""
    base, value = _base(wanted["mysql_type"]), wanted["value"]
    text: str | None = got.get("value", got.get("value_utc"))
    if value is None:
        return "not_null" not in wanted["flag"]  # the column's default, or null where that can also be a zero date
    if base in ("enum", "set"):
        return _alternatives(got, {"index": wanted["index"], "value": value})
    if text is None:
        return base in _TEMPORAL and _is_no_date(value)
    if base in _TEMPORAL:
        return any(_same_moment(text, form) for form in _temporal_forms(wanted))
    if base in _BINARY:
        return text in (value, base64.b64decode(value).decode("latin-1"))
    if base == "bit":
        return text in (value, *_bit_forms(wanted))
    if base == "json":
        return bool(json.loads(text) == json.loads(value))
    if base in _CHARACTERS:
        return bool(text == value)
    number, exact = Decimal(text), Decimal(value)
    if base == "bigint" and "unsigned" in wanted["mysql_type"]:
        return int(number) % 2**64 == int(exact) and number >= -(2**63)
    if base == "float":
        return struct.pack("<f", number) == struct.pack("<f", exact)
    return float(number) == float(exact)


def _is_no_date(value: str) -> bool:
    return value.startswith("0000") or "-00" in value[4:]


def _same_moment(text: str, wanted: str) -> bool:
    """Whether the texts are equal but for zeros at the end of a fraction."""

    def cut(moment: str) -> str:
        return moment.rstrip("0").rstrip(".") if "." in moment else moment

    return cut(text) == cut(wanted)


def _temporal_forms(wanted: Json) -> list[str]:
    """What of a date or time arrives: itself, what a year below 100 or no date became, or the number without a schema."""
    forms = [value for value in (wanted["value"], wanted.get("value_utc")) if value is not None]
    value = forms[0]
    base = _base(wanted["mysql_type"])
    if base == "time":
        return [*forms, str(_microseconds(value))]
    if _is_no_date(value) or (base == "timestamp" and wanted.get("value_utc", value) < "1970-01-01 00:00:01"):
        return [*forms, "1970-01-01", "1970-01-01 00:00:00", "1970-01-01T00:00:00Z", "0"]
    if value < "0100":
        shifted = f"{'20' if value < '0070' else '19'}{value[2:]}"
        forms.append(shifted)
        value = shifted
    if base == "timestamp":
        return [*forms, f"{forms[-1].replace(' ', 'T')}Z"]
    moment = datetime.datetime.fromisoformat(value)
    since = moment - datetime.datetime(1970, 1, 1)
    units = {"days": datetime.timedelta(days=1), "ms": datetime.timedelta(milliseconds=1)}
    numbers = [since // unit for unit in (*units.values(), datetime.timedelta(microseconds=1))]
    return [*forms, *map(str, numbers)]


def _microseconds(value: str) -> int:
    sign = -1 if value.startswith("-") else 1
    hours, minutes, seconds = value.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    return sign * ((int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0")))


def _bit_forms(wanted: Json) -> tuple[str, ...]:
    """A bit without a schema: base64 of little-endian bytes, or a boolean."""
    width = int(re.sub(r"\D", "", wanted["mysql_type"]) or 1)
    number = int(wanted["value"])
    if width == 1:
        return ("true" if number else "false",)
    return (base64.b64encode(number.to_bytes((width + 7) // 8, "little")).decode(),)
