"""Finding resolved-ts in partitions: how far each has come, and where a window ends.

A resolved-ts W says that every row with commitTs ≤ W was sent to the partition before it. TiCDC sends one about every
second to every partition it uses, so the tail of a partition shows how far it is. After a restart it may step back for
a while; then the tail shows less than was proven before, never more.

Where TiCDC sends none (Debezium without the extension, Avro), a window is over once time has passed that its rows were
sent by, and nothing proves that they were.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from ticdc_replay.domain import tso
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, RecordPlace, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.clocks import Sent, waiting
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.resolved import last_watermarks, tails_from
from ticdc_replay.snapshot.retirement import retired_by_ddl
from ticdc_replay.snapshot.topics import find_topics

PartitionState = Literal["reached", "lagging", "silent", "retired", "unused"]

_NEW_MS = 60_000


class PartitionWatermark(msgspec.Struct, frozen=True):
    """How far one partition has come.

    ``reached``: it carried a resolved-ts at or after the window's end, or the window is over by time where TiCDC sends none.
    ``lagging``: not yet. ``silent``: it holds messages
    since the window's start, but no resolved-ts among them. ``retired``: of a topic that TiCDC stopped to write to, as a DDL or
    the pipeline says; what it holds is all there is. ``unused``: TiCDC does not write to it, because partition-num
    says so and nothing came since the window's start, or because it never held a message. ``resolved_ts`` is the last one
    seen (TSO).
    """

    partition: Partition
    state: PartitionState
    resolved_ts: int | None
    ignored: str | None = None
    """The last resolved-ts that does not count, for being later than its record, and what to do; None where none was seen."""


class WatermarkStatus(msgspec.Struct, frozen=True):
    """How far the changefeed has come, as its topics show it. ``to_ts`` is the resolved-ts that completes the window (TSO).

    ``over_ms`` is when (ms since the epoch) the window is over where TiCDC sends no resolved-ts; else None.
    """

    to_ts: int
    partitions: tuple[PartitionWatermark, ...]
    over_ms: int | None = None

    @property
    def reached(self) -> bool:
        """Whether the window is complete in every partition that carries resolved-ts."""
        return not self.lagging and any(each.state == "reached" for each in self.partitions)

    @property
    def lagging(self) -> tuple[PartitionWatermark, ...]:
        """The partitions that are waited for."""
        return tuple(each for each in self.partitions if each.state == "lagging")

    @property
    def resolved_ts(self) -> int | None:
        """The smallest last resolved-ts of all live partitions (TSO); None where one of them has none yet."""
        live = [each.resolved_ts for each in self.partitions if each.state in ("reached", "lagging")]
        if not live or None in live:
            return None
        return min(found for found in live if found is not None)

    def __str__(self) -> str:
        by_state = {state: sum(each.state == state for each in self.partitions) for state in _STATES}
        counts = ", ".join(f"{number} {state}" for state, number in by_state.items() if number)
        if self.over_ms is not None:
            over = tso.to_datetime(tso.from_ms(self.over_ms)).isoformat(" ", "seconds")
            return f"no resolved-ts is sent: rows are waited for until {over}; partitions: {counts or 'none'}"
        text = f"resolved-ts to reach: {tso.describe(self.to_ts)}; partitions: {counts or 'none'}"
        for each in self.lagging[:_SHOWN]:
            seen = (
                "no resolved-ts since the window's start"
                if each.resolved_ts is None
                else tso.describe(each.resolved_ts)
            )
            text += f"; {each.partition} at {seen}"
        if len(self.lagging) > _SHOWN:
            text += f" and {len(self.lagging) - _SHOWN} more"
        ignored = next((each.ignored for each in self.lagging if each.ignored is not None), None)
        if ignored is not None:
            text += f"; {ignored}"
        if by_state["silent"] and by_state["silent"] + by_state["unused"] == len(self.partitions):
            text += "; no partition carries resolved-ts: does this release send them? (changefeed.sends_resolved_ts)"
        return text


_STATES: tuple[PartitionState, ...] = ("reached", "lagging", "silent", "retired", "unused")
_SHOWN = 5


def watermark_status(request: PinRequest, kafka: KafkaSettings) -> WatermarkStatus:
    """How far every partition of *request* has come. Reads tails of partitions only, so that asking often is cheap.

    Raises TopicChangedError where a topic is missing, and what reading Kafka raises.
    """
    with Offsets(kafka) as offsets:
        default, *_ = find_topics(request, offsets, kafka)
        partitions = _examine(request, kafka, offsets, [default])
        # Only now: what the default topic's resolved-ts speaks of was sent before it, so its topics exist by now.
        others = [topic for topic in find_topics(request, offsets, kafka) if topic.name != default.name]
        partitions += _examine(request, kafka, offsets, others)
        return status_of(request, retire(request, kafka, offsets, partitions))


def status_of(request: PinRequest, partitions: Iterable[PartitionWatermark]) -> WatermarkStatus:
    """What *partitions*, all that there are, say together."""
    over_ms = request.over_ms if request.ends_by_time else None
    return WatermarkStatus(request.resolved_ts, tuple(partitions), over_ms)


def _examine(
    request: PinRequest, kafka: KafkaSettings, offsets: Offsets, topics: list[Topic]
) -> list[PartitionWatermark]:
    partitions = [partition for topic in topics for partition in topic.partitions]
    since = offsets.at_or_after(dict.fromkeys(partitions, request.read_from_ms))
    bounds = offsets.bounds(partitions)
    return list(partition_watermarks(request, kafka, since, bounds).values())


def retire(
    request: PinRequest, kafka: KafkaSettings, offsets: Offsets, partitions: Iterable[PartitionWatermark]
) -> list[PartitionWatermark]:
    """*partitions*, those marked as retired that lag for a topic's table being gone.

    Nothing is retired before the default topic has reached the window's end: until then a later DDL may be on its way.
    """
    found = list(partitions)
    if any(each.state == "lagging" and each.partition.topic == request.changefeed.topic for each in found):
        return found
    lagging = {each.partition.topic for each in found if each.state == "lagging"}
    retired = {topic for topic in sorted(lagging) if retired_by_ddl(request, kafka, offsets, topic)}
    return [
        PartitionWatermark(each.partition, "retired", each.resolved_ts) if each.partition.topic in retired else each
        for each in found
    ]


def partition_watermarks(
    request: PinRequest,
    kafka: KafkaSettings,
    since: Mapping[Partition, RecordPlace | None],
    bounds: Mapping[Partition, Bounds],
) -> dict[Partition, PartitionWatermark]:
    """How far each partition of *since*, its first record since the window's start, has come."""
    if request.ends_by_time:
        now_ms = time.time() * 1000
        return {partition: partition_in_time(request, partition, first, now_ms) for partition, first in since.items()}
    last, ignored = last_watermarks(request, kafka, tails_from(since, bounds))
    return {
        partition: _judged(request, partition, first, bounds[partition], last.get(partition), ignored.get(partition))
        for partition, first in since.items()
    }


def _judged(
    request: PinRequest,
    partition: Partition,
    since: RecordPlace | None,
    bounds: Bounds,
    last: Sent | None,
    ignored: Sent | None,
) -> PartitionWatermark:
    declared = request.retired_topics.get(partition.topic) is not None
    if since is None:
        never_written = bounds.high == 0 and not request.is_used(partition)
        unused = never_written or request.is_surplus(partition)
        return PartitionWatermark(partition, "unused" if unused else "retired" if declared else "lagging", None)
    resolved_ts = None if last is None else last.commit_ts
    if resolved_ts is not None and resolved_ts >= request.resolved_ts:
        return PartitionWatermark(partition, "reached", resolved_ts)
    if declared:
        return PartitionWatermark(partition, "retired", resolved_ts)
    if ignored is not None:
        return PartitionWatermark(partition, "lagging", resolved_ts, waiting(request, partition, ignored))
    if last is None and not _is_new(request, partition, since):
        return PartitionWatermark(partition, "silent", None)
    return PartitionWatermark(partition, "lagging", resolved_ts)


def partition_in_time(
    request: PinRequest, partition: Partition, since: RecordPlace | None, now_ms: float
) -> PartitionWatermark:
    """How far *partition* is at *now_ms* where TiCDC sends no resolved-ts."""
    if since is None and request.is_surplus(partition):
        return PartitionWatermark(partition, "unused", None)
    return PartitionWatermark(partition, "reached" if now_ms >= request.over_ms else "lagging", None)


def _is_new(request: PinRequest, partition: Partition, first: RecordPlace) -> bool:
    """Whether a topic of a rule was made just now: its first resolved-ts comes about a second later."""
    return partition.topic != request.changefeed.topic and first.timestamp_ms > time.time() * 1000 - _NEW_MS
