"""Cells of dates and times. MySQL has dates no calendar has (zero and partial dates): those keep their text."""

import datetime
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.changelog.cells.judging import REFUSED, Converted, DoesNotFit, array_of, judged, matched, within
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATETIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST_MICROSECOND = (datetime.datetime.min - _EPOCH) // _MICROSECOND
_LAST_MICROSECOND = (datetime.datetime.max - _EPOCH) // _MICROSECOND
_FIRST_DAY = (datetime.datetime.min - _EPOCH).days
_LAST_DAY = (datetime.datetime.max - _EPOCH).days


def date_cells(values: Sequence[Any]) -> Converted:
    """DATE, from the year 1 on: zero and partial dates, and the year 0, do not fit."""

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(array_of(fitting, pa.string()), pa.date32())

    try:
        array = build(values)
    except REFUSED:
        pass
    else:
        if within(array.cast(pa.int32()), _FIRST_DAY, _LAST_DAY):
            return Converted(array, {}, {})

    def judge(value: Any) -> str:
        match = matched(_DATE, value, "a date")
        try:
            datetime.date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            raise DoesNotFit(value.encode()) from None
        return str(value)

    return judged(values, judge, build)


def time_cells(values: Sequence[Any]) -> Converted:
    """TIME as microseconds, negative and beyond 24 h too."""
    try:
        texts = array_of(values, pa.string())
        if within(pc.binary_length(texts), 8, 15):
            clock = pc.cast(pc.binary_join_element_wise("1970-01-01", texts, " "), pa.timestamp("us"))
            return Converted(clock.cast(pa.int64()), {}, {})
    except REFUSED:
        pass

    def judge(value: Any) -> int:
        match = matched(_TIME, value, "a time")
        seconds = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])
        micros = seconds * 1_000_000 + int((match[5] or "").ljust(6, "0"))
        return -micros if match[1] else micros

    return judged(values, judge, lambda fitting: pa.array(fitting, pa.int64()))


def moment_cells(values: Sequence[Any], column_type: ColumnType, zone: str) -> Converted:
    """DATETIME, and TIMESTAMP: text in the zone *zone*, or in UTC where it ends with Z.

    More fraction digits than declared do not fit: a target would round them. Neither does a local time that the zone's
    clocks showed twice or never, nor one of another zone, whose name follows. Raises ConfigError for an unknown zone.
    """
    if column_type.base == "datetime":
        return _local_moments(values, column_type)
    check_zone(zone)
    if not _may_name_a_zone(values):
        return _instants(values, column_type, zone)
    values = values.to_pylist() if isinstance(values, pa.Array) else values
    in_utc = [at for at, value in enumerate(values) if isinstance(value, str) and value.endswith("Z")]
    elsewhere = {
        at: value.encode() for at, value in enumerate(values) if isinstance(value, str) and _FOREIGN.match(value)
    }
    local, utc = list(values), [None] * len(values)
    for at in in_utc:
        local[at], utc[at] = None, values[at].removesuffix("Z")
    for at in elsewhere:
        local[at] = None
    here, there = _instants(local, column_type, zone), _instants(utc, column_type, "UTC")
    exact = here.exact | {at: text + b"Z" for at, text in there.exact.items()} | elsewhere
    return Converted(pc.coalesce(here.array, there.array), exact, here.bad | there.bad)


_FOREIGN = re.compile(r"[0-9][0-9:. -]* [A-Za-z][A-Za-z0-9_+/-]*\Z")
"""A local time and the name of its zone."""


def _may_name_a_zone(values: Sequence[Any]) -> bool:
    """Whether some of *values* ends with a letter, or is no text; 0.1 µs a value, a third of looking at each."""
    try:
        return bool(pc.any(pc.match_substring_regex(array_of(values, pa.string()), "[A-Za-z]")).as_py())
    except REFUSED:
        return True


def _instants(values: Sequence[Any], column_type: ColumnType, zone: str) -> Converted:
    naive = _local_moments(values, column_type)
    try:
        return naive._replace(array=_to_utc(naive.array, zone, "raise"))
    except pa.ArrowInvalid:
        earliest, latest = _to_utc(naive.array, zone, "earliest"), _to_utc(naive.array, zone, "latest")
    same = pc.equal(earliest, latest)  # a local time that clocks showed twice, or never, is two instants
    exact = dict(naive.exact)
    for at in pc.indices_nonzero(pc.fill_null(pc.invert(same), False)).to_pylist():
        exact[at] = str(values[at]).encode()
    return Converted(pc.if_else(same, earliest, pa.scalar(None, earliest.type)), exact, naive.bad)


def _to_utc(local: pa.Array, zone: str, choose: str) -> pa.Array:
    return pc.assume_timezone(local, zone, ambiguous=choose, nonexistent=choose).cast(pa.timestamp("us", "UTC"))


def _local_moments(values: Sequence[Any], column_type: ColumnType) -> Converted:
    scale = column_type.scale
    longest = 26 if scale is None else 20 + scale if scale else 19

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pc.cast(array_of(fitting, pa.string()), pa.timestamp("us"))

    try:
        if within(pc.binary_length(array_of(values, pa.string())), 19, longest):
            array = build(values)
            if within(array.cast(pa.int64()), _FIRST_MICROSECOND, _LAST_MICROSECOND):
                return Converted(array, {}, {})
    except REFUSED:
        pass

    def judge(value: Any) -> str:
        match = matched(_DATETIME, value, "a date and time")
        try:
            datetime.datetime(*map(int, match.groups()[:6]))  # type: ignore[arg-type]
        except ValueError:
            raise DoesNotFit(value.encode()) from None
        if len(value) > longest:
            raise DoesNotFit(value.encode())
        return str(value)

    return judged(values, judge, build)


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
