"""TiDB's timestamp: ``physical milliseconds << 18 | logical counter``."""

from datetime import UTC, datetime

LOGICAL_BITS = 18
MAX_TSO = (1 << 63) - 1
MAX_MS = MAX_TSO >> LOGICAL_BITS
"""The last time that a commit can have (ms). Records of Kafka may have any: their producer gives it."""


def physical_ms(tso: int) -> int:
    """Milliseconds since the Unix epoch at which *tso* was given out."""
    return tso >> LOGICAL_BITS


def from_ms(ms: int) -> int:
    """The smallest TSO of the millisecond *ms*; of a time that no TSO has, which a record of Kafka may have, the nearest one."""
    return max(0, min(ms << LOGICAL_BITS, MAX_TSO))


def from_datetime(moment: datetime) -> int:
    """The smallest TSO of the millisecond of *moment*. Raises ValueError for a moment without a zone: a window boundary
    must not depend on a machine's setting."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; write it as {moment.isoformat()}Z for UTC")
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return from_ms((elapsed.days * 86_400 + elapsed.seconds) * 1000 + elapsed.microseconds // 1000)


def to_datetime(tso: int) -> datetime:
    """The UTC moment of *tso*, to the millisecond."""
    ms = physical_ms(tso)
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def parse(text: str) -> int:
    """A TSO from its decimal text or an ISO 8601 moment with a zone (``2026-03-01T00:00:00Z``); else raises ValueError."""
    text = text.strip()
    if text.isdecimal():
        tso = int(text)
        if not 0 < tso <= MAX_TSO:
            raise ValueError(f"{text} is not a TSO: 1 to {MAX_TSO} allowed")
        return tso
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a TSO nor an ISO 8601 time such as 2026-03-01T00:00:00Z") from None
    return from_datetime(moment)


def describe(tso: int) -> str:
    """*tso* for people: the number and its UTC time."""
    return f"{tso} ({to_datetime(tso).isoformat(timespec='milliseconds').replace('+00:00', 'Z')})"
