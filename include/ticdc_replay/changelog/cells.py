"""One column of neutral values → one Arrow array, whole columns at a time.

Every converter has two ways to the same answer. The fast way casts the column at once; Arrow refuses it as a whole when
one value does not fit. Then the slow way judges each value by itself: it fits, or the typed cell can't hold it (``exact``:
the cell is null and the wire text is kept beside it), or it is not of the column's kind at all (``bad``). What a value
becomes must not depend on its neighbours, so both ways accept the same values; a test holds them to it.
"""

import datetime
import decimal
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.types import arrow_type
from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.errors import ConfigError


class Converted(NamedTuple):
    """A column of cells. ``exact`` maps a position to its wire text, ``bad`` to the reason why it is no value."""

    array: pa.Array
    exact: dict[int, bytes]
    bad: dict[int, str]


class _DoesNotFit(Exception):  # noqa: N818 - an outcome, not an error
    """The typed cell can't hold the value; ``text`` is what the wire had."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError, KeyError, TypeError)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATETIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_YEAR_ONE = datetime.date(1, 1, 1)
_MEDIUMINT = {False: (-(1 << 23), (1 << 23) - 1), True: (0, (1 << 24) - 1)}


def typed_array(values: Sequence[Any], column_type: ColumnType, zone: str) -> Converted:
    """*values* (neutral form, None for NULL) as cells of *column_type*; timestamps are text in the zone *zone*.

    Never raises for a value: see ``Converted``. Raises ConfigError for an unknown zone.
    """
    base = column_type.base
    if base in INTEGER_TYPES or base in ("bit", "year"):
        return _integers(values, column_type)
    if base in ("float", "double"):
        return _floats(values, column_type)
    if base == "decimal":
        return _decimals(values, column_type)
    if base == "date":
        return _dates(values)
    if base == "time":
        return _times(values)
    if base in ("datetime", "timestamp"):
        return _moments(values, column_type, zone)
    if base in ("enum", "set"):
        return _names(values, column_type)
    if base in BINARY_TYPES:
        return _bytes(values)
    return _text(values)


def _sift(
    values: Sequence[Any], judge: Callable[[Any], Any], build: Callable[[list[Any]], pa.Array]
) -> Converted:  # the slow way, about 1 µs per value
    fitting: list[Any] = []
    exact: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    for at, value in enumerate(values):
        kept = None
        if value is not None:
            try:
                kept = judge(value)
            except _DoesNotFit as outcome:
                exact[at] = outcome.text
            except (ValueError, TypeError) as error:
                bad[at] = str(error)
        fitting.append(kept)
    return Converted(build(fitting), exact, bad)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _integers(values: Sequence[Any], column_type: ColumnType) -> Converted:
    arrow = arrow_type(column_type)
    low, high = _integer_range(column_type, arrow)
    try:
        array = pa.array(values, arrow)
    except _REFUSED:
        pass
    else:
        if column_type.base not in ("mediumint", "bit") or _within(array, low, high):
            return Converted(array, {}, {})

    def judge(value: Any) -> int:
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            raise ValueError(f"{value!r:.80} is not an integer")
        if not low <= value <= high:
            raise _DoesNotFit(str(int(value)).encode())
        return int(value)

    return _sift(values, judge, lambda fitting: pa.array(fitting, arrow))


def _integer_range(column_type: ColumnType, arrow: pa.DataType) -> tuple[int, int]:
    if column_type.base == "mediumint":
        return _MEDIUMINT[column_type.unsigned]
    bits = arrow.bit_width
    if column_type.base == "bit" and column_type.length is not None:
        bits = column_type.length
    if pa.types.is_unsigned_integer(arrow):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _within(array: pa.Array, low: Any, high: Any) -> bool:
    bounds = pc.min_max(array)
    smallest = bounds["min"].as_py()
    return smallest is None or (low <= smallest and bounds["max"].as_py() <= high)


def _floats(values: Sequence[Any], column_type: ColumnType) -> Converted:
    # FLOAT is the shortest decimal of a 32-bit number: read as 64 bits and rounded once it is that number again.
    def build(fitting: Sequence[Any]) -> pa.Array:
        return pa.array(fitting, pa.float64()).cast(arrow, safe=False)

    arrow = arrow_type(column_type)
    try:
        array = build(values)
    except _REFUSED:
        array = None
    if array is not None and not pc.any(pc.is_inf(array)).as_py():
        return Converted(array, {}, {})

    def judge(value: Any) -> float:
        if isinstance(value, int) and abs(value) > 1 << 53:
            raise _DoesNotFit(str(value).encode())
        if not isinstance(value, (int, float)):
            raise ValueError(f"{value!r:.80} is not a number")
        if math.isinf(build([value])[0].as_py()):
            raise _DoesNotFit(repr(value).encode())
        return float(value)

    return _sift(values, judge, build)


def _decimals(values: Sequence[Any], column_type: ColumnType) -> Converted:
    arrow = arrow_type(column_type)
    if pa.types.is_string(arrow):
        return _text(values)

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(pa.array(fitting, pa.string()), arrow)

    try:
        return Converted(build(values), {}, {})
    except _REFUSED:
        pass
    step = decimal.Decimal(1).scaleb(-arrow.scale)
    limit = decimal.Decimal(1).scaleb(arrow.precision - arrow.scale)
    context = decimal.Context(prec=200)

    def judge(value: Any) -> str:
        if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
            raise ValueError(f"{value!r:.80} is not a decimal number")
        number = decimal.Decimal(value)
        if abs(number) >= limit or number.remainder_near(step, context) != 0:
            raise _DoesNotFit(value.encode())
        return value

    return _sift(values, judge, build)


# -- dates and times --------------------------------------------------------------------------------------------------


def _dates(values: Sequence[Any]) -> Converted:
    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(pa.array(fitting, pa.string()), pa.date32())

    try:
        array = build(values)
    except _REFUSED:
        pass
    else:
        if _within(array, _YEAR_ONE, datetime.date.max):
            return Converted(array, {}, {})

    def judge(value: Any) -> str:
        match = _DATE.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r:.80} is not a date")
        try:
            datetime.date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            raise _DoesNotFit(value.encode()) from None
        return str(value)

    return _sift(values, judge, build)


def _times(values: Sequence[Any]) -> Converted:
    try:
        texts = pa.array(values, pa.string())
        if _within(pc.binary_length(texts), 8, 15):
            clock = pc.cast(pc.binary_join_element_wise("1970-01-01", texts, " "), pa.timestamp("us"))
            return Converted(clock.cast(pa.int64()), {}, {})
    except _REFUSED:
        pass

    def judge(value: Any) -> int:
        match = _TIME.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r:.80} is not a time")
        seconds = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])
        micros = seconds * 1_000_000 + int((match[5] or "").ljust(6, "0"))
        return -micros if match[1] else micros

    return _sift(values, judge, lambda fitting: pa.array(fitting, pa.int64()))


def _moments(values: Sequence[Any], column_type: ColumnType, zone: str) -> Converted:
    """DATETIME and TIMESTAMP text. More fraction digits than declared do not fit: a target would round them."""
    naive = _local_moments(values, column_type)
    if column_type.base == "datetime":
        return naive
    check_zone(zone)
    try:
        return naive._replace(array=_to_utc(naive.array, zone, "raise"))
    except pa.ArrowInvalid:
        earliest, latest = _to_utc(naive.array, zone, "earliest"), _to_utc(naive.array, zone, "latest")
    same = pc.equal(earliest, latest)  # a local time that clocks showed twice, or never, is two instants
    exact = dict(naive.exact)
    for at in pc.indices_nonzero(pc.fill_null(pc.invert(same), False)).to_pylist():
        exact[at] = values[at].encode()
    return Converted(pc.if_else(same, earliest, pa.scalar(None, earliest.type)), exact, naive.bad)


def _to_utc(local: pa.Array, zone: str, choose: str) -> pa.Array:
    return pc.assume_timezone(local, zone, ambiguous=choose, nonexistent=choose).cast(pa.timestamp("us", "UTC"))


def _local_moments(values: Sequence[Any], column_type: ColumnType) -> Converted:
    scale = column_type.scale
    longest = 26 if scale is None else 20 + scale if scale else 19

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(texts_of(fitting), pa.timestamp("us"))

    def texts_of(fitting: Sequence[Any]) -> pa.Array:
        return pa.array(fitting, pa.string())

    try:
        texts = texts_of(values)
        if _within(pc.binary_length(texts), 19, longest):
            array = pc.cast(texts, pa.timestamp("us"))
            if _within(array.cast(pa.int64()), _FIRST_MICROSECOND, _LAST_MICROSECOND):
                return Converted(array, {}, {})
    except _REFUSED:
        pass

    def judge(value: Any) -> str:
        match = _DATETIME.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r:.80} is not a date and time")
        try:
            datetime.datetime(*map(int, match.groups()[:6]))  # type: ignore[arg-type]
        except ValueError:
            raise _DoesNotFit(value.encode()) from None
        if len(value) > longest:
            raise _DoesNotFit(value.encode())
        return str(value)

    return _sift(values, judge, build)


_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_MICROSECOND = (datetime.datetime.min - _EPOCH) // datetime.timedelta(microseconds=1)
_LAST_MICROSECOND = (datetime.datetime.max - _EPOCH) // datetime.timedelta(microseconds=1)


@lru_cache(maxsize=64)
def check_zone(zone: str) -> None:
    """Raises ConfigError when *zone* is not a zone this machine's zone database knows."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"changefeed.timezone: {zone!r} is not a time zone this machine knows ({error}); "
            "use an IANA name such as Asia/Shanghai, and install the system's tzdata where it is missing"
        ) from None


# -- names, text and bytes --------------------------------------------------------------------------------------------


class _Names(dict[Any, str | None]):
    """Wire value of an enum or set → its text; combinations of a set's names are made when first met."""

    def __init__(self, column_type: ColumnType) -> None:
        elements = column_type.elements or ()
        super().__init__({None: None, 0: "", "": ""})
        self._set = elements if column_type.base == "set" else None
        if self._set is None:
            self.update(enumerate(elements, 1))
            self.update(zip(elements, elements, strict=True))

    def __missing__(self, key: Any) -> str:
        if self._set is None or not isinstance(key, (int, str)):
            raise KeyError(key)
        if isinstance(key, int):
            if not 0 < key < 1 << len(self._set):
                raise KeyError(key)
            text = ",".join(name for bit, name in enumerate(self._set) if key >> bit & 1)
        else:
            if not all(name in self._set for name in key.split(",")):
                raise KeyError(key)
            text = key
        self[key] = text
        return text


def _names(values: Sequence[Any], column_type: ColumnType) -> Converted:
    arrow = arrow_type(column_type)
    names = _Names(column_type)
    if column_type.elements is None:
        try:
            return Converted(pa.array(values, arrow), {}, {})
        except _REFUSED:
            highest = (1 << arrow.bit_width) - 1
    else:
        try:
            return Converted(pa.array(list(map(names.__getitem__, values)), arrow), {}, {})
        except _REFUSED:
            highest = -1

    def judge(value: Any) -> Any:
        if isinstance(value, str):
            if column_type.elements is None:
                raise _DoesNotFit(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r:.80} is neither a number nor a name of the {column_type.base}")
        elif column_type.elements is None:
            if not 0 <= value <= highest:
                raise _DoesNotFit(str(value).encode())
            return value
        try:
            return names[value]
        except KeyError:
            raise _DoesNotFit(str(value).encode("utf-8", "surrogatepass")) from None

    return _sift(values, judge, lambda fitting: pa.array(fitting, arrow))


def _text(values: Sequence[Any]) -> Converted:
    try:
        return Converted(pa.array(values, pa.string()), {}, {})
    except _REFUSED:
        pass

    def judge(value: Any) -> str:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _DoesNotFit(value.encode("utf-8", "surrogatepass")) from None
            return value
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise _DoesNotFit(value) from None
        raise ValueError(f"{value!r:.80} is not text")

    return _sift(values, judge, lambda fitting: pa.array(fitting, pa.string()))


def _bytes(values: Sequence[Any]) -> Converted:
    try:
        return Converted(pa.array(values, pa.binary()), {}, {})
    except _REFUSED:
        pass

    def judge(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes):
            return value
        raise ValueError(f"{value!r:.80} is not a byte string")

    return _sift(values, judge, lambda fitting: pa.array(fitting, pa.binary()))
