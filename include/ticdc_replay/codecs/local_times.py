"""Local times as moments in UTC, where a message or the changefeed names their zone."""

import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

_FIRST_TIMESTAMP = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_TIMESTAMP = datetime.datetime(2038, 1, 20, tzinfo=datetime.UTC)


@lru_cache(maxsize=65_536)
def in_utc(local: str, zone: str) -> tuple[str, ...]:
    """The moments, as text in UTC, that clocks in *zone* (IANA) showed as *local*, ``YYYY-MM-DD HH:MM:SS[.f]``.

    Two where clocks showed it twice, or never. Zero and partial dates, which TiCDC does not convert, stay as they are.
    Raises ValueError for an unknown zone.
    """
    info = zone_info(zone)
    whole, dot, fraction = local.partition(".")
    try:
        moment = datetime.datetime.fromisoformat(whole).replace(tzinfo=info)
        moments = {moment.replace(fold=fold).astimezone(datetime.UTC) for fold in (0, 1)}
    except (ValueError, OverflowError):
        return (local,)
    return tuple(f"{found:%Y-%m-%d %H:%M:%S}{dot}{fraction}" for found in sorted(moments))


@lru_cache(maxsize=64)
def repeated_minutes(zone: str) -> frozenset[str]:
    """The minutes, as ``YYYY-MM-DDTHH:MM`` in UTC, whose local time clocks in *zone* (IANA) show twice; of TIMESTAMP's years.

    Takes 40 ms where clocks change. Raises ValueError for an unknown zone.
    """
    info = zone_info(zone)
    day, minute = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
    found = set()
    before = _FIRST_TIMESTAMP
    offset = before.astimezone(info).utcoffset()
    while before < _LAST_TIMESTAMP:
        after = before + day
        other = after.astimezone(info).utcoffset()
        assert offset is not None, "a zone has an offset at any time"
        assert other is not None, "a zone has an offset at any time"
        if other < offset:
            changed = next(
                at
                for at in (before + number * minute for number in range(1, 1441))
                if at.astimezone(info).utcoffset() != offset
            )
            first, last = changed - (offset - other), changed + (offset - other)
            found |= {f"{first + number * minute:%Y-%m-%dT%H:%M}" for number in range((last - first) // minute)}
        before, offset = after, other
    return frozenset(found)


@lru_cache(maxsize=1024)
def zone_info(zone: str) -> ZoneInfo:
    """The zone called *zone*. Raises ValueError where this machine knows none of that name."""
    try:
        return ZoneInfo(zone)
    except (OSError, LookupError) as error:
        raise ValueError(f"{zone[:80]!r} is not a time zone this machine knows ({error})") from None
