"""Cells of Simple: how the values of a column are read, whose type is in the table's schema.

A cell of JSON is text, but bytes for binary types; a cell of Avro is the number or the bytes that stand in the message.
Of a TIMESTAMP the text is the cell, for the location is one for all of a message. ``of_json`` and ``of_avro`` convert a
whole column.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from ticdc_replay.codecs import text_forms
from ticdc_replay.codecs.local_times import in_utc
from ticdc_replay.codecs.neutral import (
    MAX_UINT64,
    Arrow,
    Float32,
    Neutral,
    as_they_are,
    finite,
    in_64_bits,
    integer,
    present,
    texts,
    with_nulls,
    within,
    without_sign,
)
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType, integer_range
from ticdc_replay.domain.withheld import withheld

NULL, LONG, FLOAT, DOUBLE, STRING, BYTES, TIMESTAMP, UNSIGNED = range(8)
"""Branches of the union that the values of Avro's maps are."""

_LARGEST_FLOAT64 = 1.7976931348623157e308
_Float64 = Annotated[float, Meta(ge=-_LARGEST_FLOAT64, le=_LARGEST_FLOAT64)]
_CONTENT = (STRING, BYTES)


class SimpleCellKind(NamedTuple):
    """How cells of one type are read."""

    type: ColumnType
    of_json: Neutral
    of_avro: Neutral
    branches: tuple[int, ...]
    """Those of Avro's union that a cell may be, besides null."""
    arrow: Arrow | None = None
    """See ``WireColumn.arrow``: of either encoding."""


@lru_cache(maxsize=4096)
def cell_kind(type_: ColumnType, foreign_zone: str | None) -> SimpleCellKind:
    """How cells of *type_* are read; the same object for equal arguments.

    *foreign_zone* is the location of a message's timestamps (IANA) where it is not the changefeed's zone: they become UTC then.
    """
    base = type_.base
    if base in INTEGER_TYPES:
        low, high = integer_range(type_)
        if high == MAX_UINT64:
            return SimpleCellKind(type_, _integers(low, high), without_sign, (UNSIGNED,))
        return SimpleCellKind(type_, _integers(low, high), within(low, high), (LONG,))
    if base == "year":
        return SimpleCellKind(type_, _integers(0, 2155), within(0, 2155), (LONG,))
    if base == "bit":
        return SimpleCellKind(type_, _integers(0, _mask(type_.length)), _bits(_mask(type_.length)), (LONG, STRING))
    if base == "enum":
        return SimpleCellKind(type_, _integers(0, 65535), within(0, 65535), (LONG,))
    if base == "set":
        members = _mask(len(type_.elements or ()) or 64)
        # Avro's long has a sign, and wraps from 2^63 on.
        return SimpleCellKind(
            type_, _integers(0, members), lambda values: within(0, members)(without_sign(values)), (LONG,)
        )
    if base == "float":
        return SimpleCellKind(type_, _reals(Float32), _singles, (FLOAT,))
    if base == "double":
        return SimpleCellKind(type_, _reals(_Float64), _doubles, (DOUBLE,))
    if base == "timestamp":
        return _timestamp_kind(type_, foreign_zone)
    form = _FORMS.get(base)
    if form is not None:
        return SimpleCellKind(type_, form.of_texts, form.of_bytes, _CONTENT, form.arrow)
    if base in BINARY_TYPES:
        return SimpleCellKind(type_, as_they_are, as_they_are, _CONTENT)
    return SimpleCellKind(type_, as_they_are, texts, _CONTENT, text_forms.utf8_array)


_FORMS = {
    "decimal": text_forms.DECIMAL,
    "date": text_forms.DATE,
    "datetime": text_forms.MOMENT,
    "time": text_forms.TIME,
    "vector": text_forms.VECTOR,
}


def _mask(bits: int | None) -> int:
    return (1 << (bits or 64)) - 1


def _integers(low: int, high: int) -> Neutral:
    """Hot: a column is read as one JSON array, at 0.05 µs a value."""
    decode = msgspec.json.Decoder(list[integer(low, high) | None]).decode  # type: ignore[misc]
    checked = in_64_bits if high == MAX_UINT64 else as_they_are
    return lambda values: checked(_numbers(decode, values, f"an integer from {low} to {high}"))


def _numbers(decode: Callable[[str], list[Any]], values: Sequence[str | None], what: str) -> list[Any]:
    """*values*, each the text of a number, read by *decode* as an array of JSON. Raises ValueError."""
    nulls = values.count(None)
    texts_ = ["null" if value is None else value for value in values] if nulls else values
    try:
        numbers = decode(f"[{','.join(texts_)}]")  # type: ignore[arg-type]
    except ValueError:
        numbers = []
    if len(numbers) != len(values) or numbers.count(None) != nulls:
        # The search for what is wrong ends with a column of one value.
        raise ValueError(f"{withheld(values[0])} is not {what}")
    return numbers


def _bits(largest: int) -> Neutral:
    """Old TiCDC writes BIT as long, new as text."""

    def neutral(values: Sequence[int | bytes | None]) -> Sequence[int | None]:
        numbers: list[int | None] = []
        for value in values:
            if isinstance(value, bytes):
                if not value.isdigit() or len(value) > 20:
                    raise ValueError(f"{withheld(value)} is not an unsigned integer")
                numbers.append(int(value))
            else:
                numbers.append(None if value is None else value & MAX_UINT64)
        return within(0, largest)(numbers)

    return neutral


def _reals(annotation: Any) -> Neutral:
    decode = msgspec.json.Decoder(list[annotation | None]).decode

    def neutral(values: Sequence[str | None]) -> list[float | None]:
        numbers: list[float | None] = _numbers(decode, values, "a number within the type's range")
        if "-0" in values:  # no integer of JSON
            return [-0.0 if value == "-0" else number for value, number in zip(values, numbers, strict=True)]
        return numbers

    return neutral


def _singles(values: Sequence[bytes | None]) -> Sequence[float | None]:
    """FLOAT as 4 bytes: the double whose text is the shortest that means the same 32-bit number, as other protocols have it."""
    numbers = np.frombuffer(b"".join(present(values)), "<f4")
    return finite(with_nulls(values, numbers.astype(str).astype(np.float64).tolist()))


def _doubles(values: Sequence[bytes | None]) -> Sequence[float | None]:
    content = b"".join(present(values))
    return finite(with_nulls(values, list(struct.unpack(f"<{len(content) // 8}d", content))))


def _timestamp_kind(type_: ColumnType, foreign_zone: str | None) -> SimpleCellKind:
    form = text_forms.MOMENT
    if foreign_zone is None:
        return SimpleCellKind(type_, form.of_texts, form.of_bytes, (TIMESTAMP,), form.arrow)
    zone = foreign_zone

    def in_zone(texts_of: Neutral) -> Neutral:
        return lambda values: [None if value is None else _utc(value, zone) for value in texts_of(values)]

    return SimpleCellKind(type_, in_zone(form.of_texts), in_zone(form.of_bytes), (TIMESTAMP,))


def _utc(local: str, zone: str) -> str:
    moments = in_utc(local, zone)
    if len(moments) != 1:  # shown twice or never: no moment, but the row is sound
        return f"{local} {zone}"
    return local if moments[0] == local and local.startswith("0000-") else moments[0] + "Z"
