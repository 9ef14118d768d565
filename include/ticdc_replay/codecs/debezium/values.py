"""Cells of Debezium as values: whole columns at once.

NULL is None and stays None. What a converter refuses with ValueError can't be of the column's type.
"""

import decimal
import re
from binascii import a2b_base64, a2b_hex
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.codecs.avro.values import unsigned_texts as unsigned_bytes
from ticdc_replay.codecs.neutral import MAX_UINT64, Neutral, without_sign
from ticdc_replay.codecs.text_forms import TextForm
from ticdc_replay.domain.withheld import withheld

_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896
"""0000-01-01 and 9999-12-31, in days since 1970-01-01."""
_MILLISECONDS_A_DAY = 86_400_000
_LONGEST_TIME = (838 * 3600 + 59 * 60 + 59) * 1_000_000
"""Microseconds of 838:59:59."""
_DOUBLE_DIGITS = 15
"""So many decimal digits survive in any double."""
_MOST_DOUBLE_DIGITS = 17
"""So many identify a double; Go writes no more."""
_DOUBLE_AS_TEXT = re.compile(r"-?[0-9]{1,21}(?:\.[0-9]{1,30})?(?:e[+-][0-9]{2,3})?")
"""As Go writes it: from 1e21 on with an exponent."""
_LARGEST_DECIMAL = 1e65
_EXACT = decimal.Context(prec=120)
"""Enough for 65 digits and the digits of a double."""
_STANDARD = str.maketrans("-_+/", "+/--")
"""From the alphabet that is safe in URLs to that of base64, which has no ``-``."""
_UTC = TextForm("date and time in UTC", r"0000-00-00T00:00:00(?:\.0{1,6})?Z")


def unsigned_64(values: Sequence[int | None]) -> list[int | None]:
    """BIGINT UNSIGNED, of which TiCDC writes the 64 bits with a sign; some releases wrote them without."""
    for value in values:
        if value is not None and value > MAX_UINT64:
            raise ValueError(f"{withheld(value)} is above the largest unsigned 64-bit integer")
    return without_sign(values)


def flags(values: Sequence[bool | None]) -> list[int | None]:
    """BIT(1)."""
    return [None if value is None else int(value) for value in values]


@lru_cache(maxsize=64)
def bits(length: int) -> Neutral:
    """BIT(*length*): little-endian bytes, as many as hold it."""
    size = (length + 7) // 8

    def neutral(values: Sequence[bytes | None]) -> list[int | None]:
        numbers = [None if value is None else int.from_bytes(value, "little") for value in values]
        for value, number in zip(values, numbers, strict=True):
            if number is not None and (len(value or b"") != size or number >> length):
                raise ValueError(f"{withheld(value)} is not {length} bits")
        return numbers

    return neutral


@lru_cache(maxsize=64)
def decimals(scale: int) -> Neutral:
    """Doubles as decimals with *scale* digits after the point.

    Up to 15 digits the text is that of the only such decimal which the double can stand for; beyond, ``is_one_decimal`` decides
    whether it is, and the text has the digits that are on the wire. A double that is near no such decimal is refused: then the
    scale is not that of the column.
    """
    form = f"%.{scale}f"
    limit = limit_of(scale)

    def text(value: float) -> str:
        if -limit < value < limit:
            digits = form % (value or 0.0)  # without the sign of -0
            if float(digits) != value:
                raise ValueError(f"{withheld(value)} has more than {scale} digits after the point")
            return digits
        return format(_nearest(value, scale), "f")

    return lambda values: [None if value is None else text(value) for value in values]


def limit_of(scale: int) -> float:
    """Below this, a double can stand for one decimal with *scale* digits after the point only."""
    return float(10 ** (_DOUBLE_DIGITS - scale)) if scale <= _DOUBLE_DIGITS else 1 / 10 ** (scale - _DOUBLE_DIGITS)


def is_one_decimal(value: float, scale: int) -> bool:
    """Whether *value* can stand for one decimal with *scale* digits after the point only: then it is that one, exactly."""
    try:
        nearest = _nearest(value, scale)
    except ValueError:
        return False
    step = decimal.Decimal(1).scaleb(-scale)
    return float(_EXACT.add(nearest, step)) != value and float(_EXACT.subtract(nearest, step)) != value


def _nearest(value: float, scale: int) -> decimal.Decimal:
    nearest = decimal.Decimal(repr(value)).quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)
    if float(nearest) != value:
        raise ValueError(f"{withheld(value)} has more than {scale} digits after the point")
    return nearest


def may_be_decimals(value: float | None) -> bool:
    """Whether *value* may stand for several decimals, where their scale is not known: that of the shortest of them is taken."""
    if value is None or not abs(value) < _LARGEST_DECIMAL:
        return False
    digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()[1:]
    assert isinstance(exponent, int), "it is finite"
    return len(digits) > _DOUBLE_DIGITS if exponent < 0 else not is_one_decimal(value, 0)


def may_be_decimals_as_text(value: str | bytes | None) -> bool:
    """As ``may_be_decimals``, of the text on the wire if the type is unknown: what BIGINT can hold is no decimal."""
    if not isinstance(value, str) or _DOUBLE_AS_TEXT.fullmatch(value) is None:
        return False
    number = decimal.Decimal(value)
    if len(number.normalize(_EXACT).as_tuple().digits) > _MOST_DOUBLE_DIGITS:
        return False
    if "e" not in value and "." not in value and -(1 << 63) <= number <= MAX_UINT64:
        return False
    return may_be_decimals(float(number))


def plain_numbers(values: Sequence[float | None]) -> list[str | None]:
    """Doubles as decimals whose scale is not known: the digits on the wire."""
    return [None if value is None else format(decimal.Decimal(repr(value or 0.0)).normalize(), "f") for value in values]


def dates(values: Sequence[int | None]) -> Sequence[str | None]:
    """DATE: days since 1970-01-01."""
    days = pa.array(values, pa.int64())
    _check(days, _FIRST_DAY, _LAST_DAY, "date, in days since 1970")
    texts: list[str | None] = days.cast(pa.int32()).cast(pa.date32()).cast(pa.string()).to_pylist()
    return texts


@lru_cache(maxsize=16)
def moments(per_millisecond: int, digits: int | None) -> Neutral:
    """DATETIME with *digits* fraction digits: time since 1970, *per_millisecond* units to a millisecond.

    None where they are not known: as many as the value needs.
    """
    factor = _MILLISECONDS_A_DAY * per_millisecond
    first, last = _FIRST_DAY * factor, (_LAST_DAY + 1) * factor - 1
    sent = 3 if per_millisecond == 1 else 6

    def neutral(values: Sequence[int | None]) -> Sequence[str | None]:
        units = pa.array(values, pa.int64())
        _check(units, first, last, "date and time since 1970")
        stamps = units.cast(pa.timestamp("ms" if sent == 3 else "us"))
        if digits is None:
            return [_shortest(text) for text in stamps.cast(pa.string()).to_pylist()]
        if digits == 0:
            return _list(stamps.cast(pa.timestamp("s")).cast(pa.string()))  # refuses what it would cut off
        if digits < sent:
            coarse = 10 ** (sent - digits)
            if any(value % coarse for value in values if value is not None):
                raise ValueError(f"a time with more than {digits} fraction digits")
            return _list(pc.utf8_slice_codeunits(stamps.cast(pa.string()), 0, digits - sent))
        return _list(stamps.cast(pa.string()))

    return neutral


@lru_cache(maxsize=8)
def times(digits: int | None) -> Neutral:
    """TIME with *digits* fraction digits: microseconds. None where they are not known: as many as the value needs."""
    coarse = 1 if digits is None else 10 ** (6 - digits)

    def text(value: int) -> str:
        if not -_LONGEST_TIME <= value <= _LONGEST_TIME or value % coarse:
            raise ValueError(f"{withheld(value)} is not the µs of a TIME, or has more than {digits} fraction digits")
        seconds, fraction = divmod(abs(value), 1_000_000)
        clock = f"{'-' if value < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if digits is None:
            return f"{clock}.{fraction:06}".rstrip("0") if fraction else clock
        return f"{clock}.{fraction // coarse:0{digits}}" if digits else clock

    return lambda values: [None if value is None else text(value) for value in values]


def timestamps(values: Sequence[str | None]) -> Sequence[str | None]:
    """TIMESTAMP: text in UTC."""
    return [None if value is None else value.replace("T", " ", 1) for value in _UTC.of_texts(values)]


def base64_or(raw: frozenset[str | bytes], content: bytes) -> Neutral:
    """Bytes of a column with a default, for which classic TiCDC writes *raw* instead of base64."""

    def read(value: str | bytes) -> bytes:
        try:
            return a2b_base64(value, strict_mode=True)
        except ValueError:
            if value in raw:
                return content
            raise

    return lambda values: [None if value is None else read(value) for value in values]


def url_safe_bytes(values: Sequence[str | None]) -> list[bytes | None]:
    """Bytes as base64 that is safe in URLs."""
    return [None if value is None else a2b_base64(value.translate(_STANDARD), strict_mode=True) for value in values]


def hex_bytes(values: Sequence[str | None]) -> list[bytes | None]:
    """Bytes as hex."""
    return [None if value is None else a2b_hex(value) for value in values]


def unsigned_texts(values: Sequence[str | None]) -> list[int | None]:
    """BIGINT UNSIGNED with all its digits."""
    return unsigned_bytes([None if value is None else value.encode() for value in values])


def _list(texts: pa.Array) -> Sequence[str | None]:
    found: list[str | None] = texts.to_pylist()
    return found


def _shortest(text: str | None) -> str | None:
    return None if text is None else text.rstrip("0").removesuffix(".")


def _check(values: pa.Array, first: int, last: int, what: str) -> None:
    ends = pc.min_max(values).as_py()
    for value in ends.values():
        if value is not None and not first <= value <= last:
            raise ValueError(f"{withheld(value)} is not a {what}")
