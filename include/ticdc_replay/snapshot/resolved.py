"""Searching resolved-ts in many partitions at once, reading no more of them than it takes.

TiCDC sends each resolved-ts to all partitions at about the same moment, so where the changefeed stood at a moment is
found in one partition, by bisecting record times; in all others a few seconds around that moment are read. That
partitions may differ, and that resolved-ts may step back, costs reading, never rightness: a partition is read from
further back until a resolved-ts is seen that is too small, or all of it is.

A resolved-ts that is later than its record by more than the allowed clock skew is not TiCDC's, or clocks differ by more than was
allowed. It counts nowhere; a partition that is waited for names its last one.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, RecordPlace
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.clocks import Sent, counts
from ticdc_replay.snapshot.request import PinRequest

Tails = Mapping[Partition, tuple[int, int]]
"""Offsets ``[start, end)`` by partition."""

_FIRST_TAIL = 32
_TAIL_GROWTH = 16
_STEP_MS = 1_000
"""How often TiCDC sends a resolved-ts; how near the search by time comes."""
_BACK_GROWTH = 4
_FAULTS = 8
"""So many resolved-ts that do not count, and no other, are the clocks': then none is looked for further back."""


def last_watermarks(
    request: PinRequest, kafka: KafkaSettings, tails: Tails
) -> tuple[dict[Partition, Sent], dict[Partition, Sent]]:
    """The largest resolved-ts in the last stretch of each of *tails* that holds one; stretches grow towards the start.

    And the last of each that does not count (``clocks.counts``). Partitions without any are missing in either.
    """
    codec = request.codec()
    found: dict[Partition, Sent] = {}
    ignored: dict[Partition, Sent] = {}
    faults: Counter[Partition] = Counter()
    left, size = {partition: tail for partition, tail in tails.items() if tail[1] > tail[0]}, _FIRST_TAIL

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        for each in _watermarks(codec, messages):
            if not counts(each, request.clock_skew_ms):
                faults[partition] += 1
                ignored[partition] = max(each, ignored.get(partition, each), key=lambda sent: sent.offset)
            elif partition not in found or each.commit_ts > found[partition].commit_ts:
                found[partition] = each
        return False

    while left:
        stretches = {partition: (max(start, end - size), end) for partition, (start, end) in left.items()}
        read_beginnings(kafka, ranges_of(stretches), take)
        left = {
            partition: (start, stretches[partition][0])
            for partition, (start, _) in left.items()
            if partition not in found and faults[partition] < _FAULTS and stretches[partition][0] > start
        }
        size *= _TAIL_GROWTH
    return found, ignored


def first_watermarks(
    request: PinRequest, kafka: KafkaSettings, offsets: Offsets, tails: Tails
) -> dict[Partition, Sent]:
    """The first resolved-ts at or after the window's end in each of *tails*, which start where none has been before by its
    record time; partitions without any are missing."""
    left = {partition: tail for partition, tail in tails.items() if tail[1] > tail[0]}
    found: dict[Partition, Sent] = {}
    at_ms, back_ms = _time_of_end(request, kafka, offsets, left), _STEP_MS
    while left:
        search = _Search(request)
        starts = _starts(offsets, left, at_ms) if at_ms > request.complete_from_ms else {}
        stretches = {partition: (starts.get(partition, start), end) for partition, (start, end) in left.items()}
        read_beginnings(kafka, ranges_of(stretches), search.take)
        found |= search.reached
        left = {
            partition: (start, stretches[partition][0])
            for partition, (start, _) in left.items()
            # Behind a smaller one it is the first; else one before it may be.
            if stretches[partition][0] > start and not (partition in found and partition in search.below)
        }
        at_ms, back_ms = at_ms - back_ms, back_ms * _BACK_GROWTH
    return found


def tails_from(
    records: Mapping[Partition, RecordPlace | None], bounds: Mapping[Partition, Bounds]
) -> dict[Partition, tuple[int, int]]:
    """From each of *records* to the end of its partition; partitions without a record are missing."""
    return {
        partition: (max(record.offset, bounds[partition].low), bounds[partition].high)
        for partition, record in records.items()
        if record is not None
    }


def ranges_of(tails: Tails) -> list[OffsetRange]:
    """*tails* as ranges."""
    return [OffsetRange(partition.topic, partition.number, *tail) for partition, tail in tails.items()]


class _Search:
    """Looks for the resolved-ts that ends the window, going forward."""

    def __init__(self, request: PinRequest) -> None:
        self._codec = request.codec()
        self._request = request
        self.reached: dict[Partition, Sent] = {}
        self.below: set[Partition] = set()
        """Partitions where a smaller one came first."""

    def take(self, partition: Partition, messages: list[RawMessage]) -> bool:
        for each in _watermarks(self._codec, messages):
            if not counts(each, self._request.clock_skew_ms):
                continue
            if each.commit_ts >= self._request.resolved_ts:
                self.reached[partition] = each
                return True
            self.below.add(partition)
        return False


def _time_of_end(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, tails: Tails) -> int:
    """A record time (ms) within two seconds before that of the resolved-ts that ends the window, in one of *tails*."""
    low_ms = request.complete_from_ms
    if not tails:
        return low_ms
    probe = min(tails, key=lambda partition: (partition.topic != request.changefeed.topic, partition))
    start, end = tails[probe]

    def is_over(ms: int) -> bool:
        """Whether the first resolved-ts that was recorded at *ms* or later, and counts, ends the window, or there is none."""
        stretch = (_starts(offsets, {probe: (start, end)}, ms)[probe], end)
        first: list[Sent] = []

        def take(_: Partition, messages: list[RawMessage]) -> bool:
            first.extend(each for each in _watermarks(codec, messages) if counts(each, request.clock_skew_ms))
            return bool(first)

        read_beginnings(kafka, ranges_of({probe: stretch}), take)
        return not first or first[0].commit_ts >= request.resolved_ts

    codec = request.codec()
    high_ms, step_ms = tso.physical_ms(request.resolved_ts), _STEP_MS
    now_ms = time.time() * 1000
    while high_ms <= now_ms and not is_over(high_ms):  # after a record with a time to come the last is never reached
        low_ms, high_ms, step_ms = high_ms, high_ms + step_ms, step_ms * 2
    while high_ms - low_ms > 2 * _STEP_MS:
        middle_ms = (low_ms + high_ms) // 2
        if is_over(middle_ms):
            high_ms = middle_ms
        else:
            low_ms = middle_ms
    return low_ms


def _starts(offsets: Offsets, tails: Tails, ms: int) -> dict[Partition, int]:
    """Where in *tails* the first record of *ms* or later is; their ends where there is none."""
    at = offsets.at_or_after(dict.fromkeys(tails, ms))
    found = {}
    for partition, (start, end) in tails.items():
        record = at[partition]
        found[partition] = end if record is None else min(max(record.offset, start), end)
    return found


def _watermarks(codec: Codec, messages: Iterable[RawMessage]) -> Iterator[Sent]:
    """The resolved-ts of *messages*, those that do not count too."""
    for message in messages:
        if codec.is_watermark(message):
            for event in codec.decode(message):
                if isinstance(event, WatermarkEvent):
                    yield Sent(message.offset, event.commit_ts, message.timestamp_ms, resolves=True)
