"""From when on a message with DDL that can't be read may count: as early as the messages before it allow, as late as its time."""

from collections.abc import Iterable, Sequence

from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import Unread
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import WatermarkEvent
from ticdc_replay.domain.limits import may_resolve
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.kafka.reader import backwards, read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.unread import UnreadDdl


def bounded(
    unread: Iterable[Unread], ranges: Sequence[OffsetRange], job: DecodeJob, settings: KafkaSettings
) -> tuple[UnreadDdl, ...]:
    """*unread*, found in *ranges*, with the moments between which each committed.

    A resolved-ts R says that all DDL with a smaller commitTs was sent before it: what comes after it and was not sent
    before has a commitTs of R or later. A record is made after its commit, up to clock skew. So is one with a
    resolved-ts; one that was not shows nothing.
    """
    codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes)
    starts = {(part.topic, part.partition): (part.start, 0) for part in sorted(ranges, reverse=True)}
    found = []
    for message in sorted(unread):
        has_time = 0 <= message.timestamp_ms <= tso.MAX_MS
        until = tso.from_ms(message.timestamp_ms + job.clock_skew_ms + 1) - 1 if has_time else tso.MAX_TSO
        if message.commit_ts is not None:
            found.append(_about(message, message.commit_ts, message.commit_ts))
            continue
        start, before = starts[message.topic, message.partition]
        part = OffsetRange(message.topic, message.partition, start, message.offset)
        after = max(before, _resolved_in(part, codec, settings, job.clock_skew_ms))
        starts[message.topic, message.partition] = message.offset, after
        found.append(_about(message, min(after, until), until))
    return tuple(found)


def _about(message: Unread, after: int, until: int) -> UnreadDdl:
    return UnreadDdl(*message[:3], after, until, message.schema, message.table)


def _resolved_in(part: OffsetRange, codec: Codec, settings: KafkaSettings, skew_ms: int) -> int:
    """A resolved-ts in *part*, of the last that are there; 0 without any."""
    for tail in backwards(part):
        found = [
            event.commit_ts
            for messages in read_range(settings, tail)
            for message in messages
            if codec.is_watermark(message)
            for event in codec.decode(message)
            if isinstance(event, WatermarkEvent) and may_resolve(event.commit_ts, message.timestamp_ms, skew_ms)
        ]
        if found:
            return max(found)
    return 0
