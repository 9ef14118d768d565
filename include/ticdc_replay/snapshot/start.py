"""Where a window starts in a partition, and how sure that is."""

from collections.abc import Iterable, Mapping

from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ExpiredRangeError
from ticdc_replay.domain.events import DdlEvent, RowEvent, WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, Record
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state.records import Stretch

HEAD_MESSAGES = 1_000
_HEAD_BYTES = 32 * 1024 * 1024
"""The margin is measured on as many messages or bytes per partition, whichever come first."""


def check_retention(
    request: PinRequest, offsets: Offsets, needed: Mapping[Partition, Record | None], bounds: Mapping[Partition, Bounds]
) -> None:
    """Raise ExpiredRangeError where records that may belong to the window are gone.

    *needed* is the first record of each partition that may; *bounds* were looked up after it. The range is whole where the
    partition still holds an older record, or never lost one. The message names the oldest window start that can be replayed.
    """
    expired = [
        partition
        for partition, record in needed.items()
        if record is not None and bounds[partition].low > 0 and record.offset <= bounds[partition].low
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


def measure_margin(request: PinRequest, kafka: KafkaSettings, head: OffsetRange) -> int | None:
    """The smallest (record time − physical commitTs) of all events in *head*, in ms; None where there is nothing to measure.

    A record is made after its commit, so a negative value is what clocks differ by.
    """
    codec = codec_for(request.changefeed, request.decompressed_max_bytes)
    margin: int | None = None
    size = 0
    for messages in read_range(kafka, head):
        for message in messages:
            size += len(message.value or b"")
            for event in codec.decode(message):
                if not isinstance(event, RowEvent | DdlEvent | WatermarkEvent) or event.commit_ts is None:
                    continue
                this = message.timestamp_ms - tso.physical_ms(event.commit_ts)
                margin = this if margin is None else min(margin, this)
        if size >= _HEAD_BYTES:
            break
    return margin


def margin_doubt(request: PinRequest, partition: Partition, margin_ms: int | None) -> str | None:
    """Why *margin_ms* leaves the start in doubt, None where it does not: more than half of the allowed skew is used up."""
    if margin_ms is None or margin_ms >= -(request.clock_skew_ms // 2):
        return None
    return (
        f"{partition}: records have times up to {-margin_ms} ms before their commit, near or beyond the allowed clock skew of "
        f"{request.clock_skew_ms} ms, so rows of the window may lie before the range; raise window.clock_skew_seconds"
    )
