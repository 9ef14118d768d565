"""Where a window starts in a partition, and how sure that is.

Two things must hold for the start of a range to be complete. No partition lost a record that may belong to the window, neither at
its beginning (``check_retention``) nor between others (``compaction_doubt``). And the changefeed ran at the window's start:
``beginning_doubt``; the first record of a topic that never lost one shows only where the topic begins, not that rows were sent
from there on.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ExpiredRangeError
from ticdc_replay.domain.events import DdlEvent, RowEvent, WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, RecordPlace
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.clocks import Sent
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state.sparse_index import Stretch

_ALL_MESSAGES, _HEAD_MESSAGES = 32_000, (16, 1_000)
_ALL_BYTES, _HEAD_BYTES = 256 * 1024 * 1024, (256 * 1024, 32 * 1024 * 1024)
"""A head is as many messages or bytes of a partition, whichever come first: an equal share of these, within limits."""


class RangeHead(msgspec.Struct, frozen=True):
    """What the first messages of a partition's range show; None where they hold no event.

    ``soonest`` is the first event of the smallest margin. ``earliest_ts`` is the smallest commitTs or resolved-ts (TSO).
    """

    soonest: Sent | None = None
    earliest_ts: int | None = None

    @property
    def margin_ms(self) -> int | None:
        """The smallest margin of the events."""
        return None if self.soonest is None else self.soonest.margin_ms


def check_retention(
    request: PinRequest,
    offsets: Offsets,
    needed: Mapping[Partition, RecordPlace | None],
    bounds: Mapping[Partition, Bounds],
) -> None:
    """Raise ExpiredRangeError where records that may belong to the window are gone.

    *needed* is the first record of each partition that may; *bounds* were looked up after it. The range is whole where the
    partition still holds an older record, or never lost one. The message names the oldest window start that can be replayed.
    """
    expired = [
        partition
        for partition, record in needed.items()
        if bounds[partition].low > 0 and not _holds_older(record, bounds[partition])
    ]
    if not expired:
        return
    oldest = offsets.at_or_after(dict.fromkeys(expired, 0))
    oldest_ms = max(record.timestamp_ms for record in oldest.values() if record is not None)
    replayable = tso.from_ms(oldest_ms + request.clock_skew_ms + 1)
    raise ExpiredRangeError(
        f"window {request.window} starts before what Kafka still holds of {', '.join(map(str, sorted(expired)))}: "
        f"the oldest time that can be replayed is {tso.describe(replayable)} "
        f"(oldest record plus the clock skew of {request.clock_skew_ms} ms). Start the window there or later; to keep more, "
        "raise retention.ms of the topic"
    )


def skip_known(stretches: Iterable[Stretch], start: int, end: int, from_ts: int) -> int:
    """*start* moved forward, up to *end*, over *stretches* (in order) that leave no gap and hold no event of *from_ts* or later.

    With hours of replication lag, record times alone would have every byte read by many windows.
    """
    for stretch in stretches:
        if stretch.end <= start:
            continue
        if stretch.start > start or (stretch.max_commit_ts is not None and stretch.max_commit_ts >= from_ts):
            break
        start = stretch.end
    return min(start, end)


def _holds_older(needed: RecordPlace | None, bounds: Bounds) -> bool:
    """Whether a partition whose first record that may belong to the window is *needed* still holds one before it."""
    return needed is None or needed.offset > bounds.low


def read_heads(request: PinRequest, kafka: KafkaSettings, ranges: Sequence[OffsetRange]) -> dict[Partition, RangeHead]:
    """What the first messages of each of *ranges* show."""
    codec = request.codec()
    most, size = _share(_ALL_MESSAGES, len(ranges), _HEAD_MESSAGES), _share(_ALL_BYTES, len(ranges), _HEAD_BYTES)
    heads = {Partition(part.topic, part.partition): RangeHead() for part in ranges}
    sizes = dict.fromkeys(heads, 0)

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        for message in messages:
            sizes[partition] += len(message.value or b"")
            for event in codec.decode(message):
                if isinstance(event, RowEvent | DdlEvent | WatermarkEvent) and event.commit_ts is not None:
                    resolves = isinstance(event, WatermarkEvent)
                    sent = Sent(message.offset, event.commit_ts, message.timestamp_ms, resolves)
                    heads[partition] = _with(heads[partition], sent)
            if sizes[partition] >= size:
                return True
        return False

    parts = [OffsetRange(part.topic, part.partition, part.start, min(part.end, part.start + most)) for part in ranges]
    read_beginnings(kafka, parts, take)
    return heads


def _share(total: int, heads: int, limits: tuple[int, int]) -> int:
    least, most = limits
    return max(least, min(most, total // max(1, heads)))


def _with(head: RangeHead, sent: Sent) -> RangeHead:
    margin_ms, earliest_ts = head.margin_ms, head.earliest_ts
    return RangeHead(
        sent if margin_ms is None or sent.margin_ms < margin_ms else head.soonest,
        sent.commit_ts if earliest_ts is None else min(earliest_ts, sent.commit_ts),
    )


def beginning_doubt(
    request: PinRequest,
    heads: Mapping[Partition, RangeHead],
    needed: Mapping[Partition, RecordPlace | None],
    bounds: Mapping[Partition, Bounds],
) -> str | None:
    """Why it is in doubt that the changefeed ran at the window's start already, None where it is shown.

    *heads* are those of all partitions that carry resolved-ts; *needed* and *bounds* are as for ``check_retention``, which found
    nothing lost.

    A changefeed has one checkpoint for all its partitions, begins at its start-ts, and sends all that commits after it; paused or
    restarted, it goes on from the checkpoint. So one event or resolved-ts from before the window, in any partition, shows that
    the window's rows were sent to every partition. So does a record that is too old to hold anything of the window, without being
    read. "Before" is strict: a first resolved-ts may equal the start-ts, and rows of that TSO may not have been sent.

    A declared start-ts decides alone: records from before it are another changefeed's.
    """
    from_ts = request.window.from_ts
    if request.start_ts is not None:
        if request.start_ts < from_ts:
            return None
        return (
            f"changefeed.start_ts says that the changefeed started at {tso.describe(request.start_ts)}, not before the window: "
            "what committed up to then was not sent. Start the window after that TSO"
        )
    if any(_holds_older(needed[partition], bounds[partition]) for partition in heads):
        return None
    found = [(head.earliest_ts, partition) for partition, head in heads.items() if head.earliest_ts is not None]
    if not found:
        return (
            f"{', '.join(map(str, sorted(heads)))}: the first messages hold no event, so nothing shows that the changefeed ran "
            "at the window's start already. Start the window later, or declare the changefeed's start-ts as changefeed.start_ts"
        )
    earliest, partition = min(found)
    if earliest < from_ts:
        return None
    return (
        f"{partition}: the changefeed's first sign in Kafka is of {tso.describe(earliest)}, not before the window, so nothing "
        "shows that it ran at the window's start already. Start the window after that TSO; or, if the changefeed was created "
        "with an earlier --start-ts, declare that as changefeed.start_ts"
    )


def recreation_doubt(
    request: PinRequest,
    topic: str,
    heads: Mapping[Partition, RangeHead],
    needed: Mapping[Partition, RecordPlace | None],
    bounds: Mapping[Partition, Bounds],
) -> str | None:
    """Why rows of the window may be gone with an earlier topic called *topic*, None where this one shows that they are here.

    *heads* are those of its partitions; *needed* and *bounds* are as for ``beginning_doubt``. What TiCDC had sent to the earlier
    one it sends again only if it goes on from an older checkpoint: then this one holds a sign from before the window, too.
    """
    times = [head.earliest_ts for head in heads.values() if head.earliest_ts is not None]
    if any(_holds_older(needed[each], bounds[each]) for each in heads) or min(times, default=tso.MAX_TSO) < (
        request.window.from_ts
    ):
        return None
    return (
        f"topic {topic} was recreated, and holds nothing from before the window: rows of the window may be gone with the topic "
        "that the pipeline knew. Start the window later, or take it from changelogs (from_changelog)"
    )


def compaction_doubt(topic: str, policies: frozenset[str] | None) -> str | None:
    """Why messages in the middle of *topic* may be gone, None where Kafka removes them from its beginning only.

    Compaction keeps the last message of each Kafka key, and rows share keys: in Open Protocol all that one table
    commits at one TSO. Neither a partition's bounds nor its offsets show it: readers pass over gaps. *policies* are
    those of the topic's cleanup.policy; None where the account may not ask for them.
    """
    if policies is None:
        return (
            f"topic {topic}: the Kafka account may not read its configuration, so nothing shows that compaction removes no "
            "messages of it; grant the account DescribeConfigs on the topic"
        )
    if "compact" not in policies:
        return None
    return (
        f"topic {topic} has cleanup.policy={','.join(sorted(policies))}: compaction may have removed messages of the window, "
        "since rows share keys. Set cleanup.policy=delete; what was removed until then stays missing"
    )
