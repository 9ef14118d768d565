"""What the times of records say of the clocks of TiDB, TiCDC and the brokers.

A record is made after what it holds was committed or resolved. An older one shows that clocks differ by at least as much, or that
the message is damaged or another program's. ``window.clock_skew_seconds`` decides between the two.
"""

import msgspec

from ticdc_replay.domain import tso
from ticdc_replay.domain.limits import may_resolve
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.snapshot.request import PinRequest


class Sent(msgspec.Struct, frozen=True):
    """An event's commitTs or resolved-ts (TSO), the offset of its record, and the record's time (ms)."""

    offset: int
    commit_ts: int
    recorded_ms: int
    resolves: bool = False
    """Whether it is a resolved-ts."""

    @property
    def margin_ms(self) -> int:
        """Record time − physical commitTs: a record is made after its commit, so a negative one is what clocks differ by."""
        return self.recorded_ms - tso.physical_ms(self.commit_ts)


def counts(sent: Sent, skew_ms: int) -> bool:
    """Whether *sent*, a resolved-ts, shows what TiCDC has sent: it is later than its record by *skew_ms*, as allowed, at most."""
    return may_resolve(sent.commit_ts, sent.recorded_ms, skew_ms)


def ignored(partition: Partition, sent: Sent, skew_ms: int) -> str:
    """What is said of *sent*, a resolved-ts of *partition* that does not count."""
    return f"{_ahead(partition, sent)}: more than the allowed clock skew of {skew_ms} ms, so it does not count"


def remedy(partition: Partition, sent: Sent) -> str:
    """How to find out what *sent* is, and the skew that is enough for it."""
    enough_s = -(2 * sent.margin_ms // 1000)
    return (
        f"Look at the message (ticdc-replay inspect --topic {partition.topic} --partition {partition.number} "
        f"--from {sent.offset} --limit 1). If TiCDC sent it so, set window.clock_skew_seconds to {enough_s} or more; if it is "
        "damaged or another program's, "
    )


def margin_doubt(request: PinRequest, partition: Partition, sent: Sent | None) -> str | None:
    """Why *sent*, the event of the smallest margin in the head of a range, leaves the start in doubt.

    None where it does not, or the head has no event: half of the allowed skew, or less, is used up.
    """
    if sent is None or sent.margin_ms >= -(request.clock_skew_ms // 2):
        return None
    otherwise = "it says nothing of the clocks: set policies.unproven: allow for the run of this window"
    if sent.resolves and counts(sent, request.clock_skew_ms):
        otherwise = (
            "the window may end at it and lack rows: once TiCDC's own resolved-ts has passed the window's end, pin it to the "
            "head of the topics (--pin head), with policies.unproven: allow"
        )
    return (
        f"{_ahead(partition, sent)}: more than half of the allowed clock skew of {request.clock_skew_ms} ms. If clocks differ "
        f"so, rows of the window may lie before the range. {remedy(partition, sent)}{otherwise}"
    )


def waiting(request: PinRequest, partition: Partition, sent: Sent) -> str:
    """What is said of *sent*, a resolved-ts that does not count, where *partition* is waited for."""
    return f"{ignored(partition, sent, request.clock_skew_ms)}. {remedy(partition, sent)}TiCDC's own is waited for"


def _ahead(partition: Partition, sent: Sent) -> str:
    # Of a record time that no TSO has, the nearest.
    recorded = tso.to_datetime(tso.from_ms(sent.recorded_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    what = "resolved-ts" if sent.resolves else "commitTs"
    return (
        f"{partition}@{sent.offset}: {what} {tso.describe(sent.commit_ts)} is {-sent.margin_ms} ms later than the time of its "
        f"record, {recorded}"
    )
