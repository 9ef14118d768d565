"""Local times as moments in UTC, where a message or the changefeed names their zone."""

import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo


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


@lru_cache(maxsize=1024)
def zone_info(zone: str) -> ZoneInfo:
    """The zone called *zone*. Raises ValueError where this machine knows none of that name."""
    try:
        return ZoneInfo(zone)
    except (OSError, LookupError) as error:
        raise ValueError(f"{zone[:80]!r} is not a time zone this machine knows ({error})") from None
