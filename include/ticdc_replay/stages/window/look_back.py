"""Looks for the DDL before a window in Kafka, in the first partition of each topic, and reads each stretch once.

A resolved-ts R shows that every DDL with a smaller commitTs was sent to the partition before it. So the search ends at
the first resolved-ts at or after the window's start, however far the changefeed lags. It begins at a record time: a
record is made after its commit, up to clock skew.
"""

import logging
from collections.abc import Mapping

import msgspec

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.decode.plan.schema_pass import Unread, find_schemas
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import WatermarkNotReachedError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, RecordPlace, Topic
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.resolved import first_watermarks
from ticdc_replay.snapshot.topics import find_topics
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.searched_ddl import Chain, chains_of, without
from ticdc_replay.stages.window.versions import record_versions
from ticdc_replay.stages.window.watermark import pin_request
from ticdc_replay.state.ddl import DdlScan, KnownDdl

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


def look_back(context: ReplayContext, window: Window) -> dict[TopicIdentity, int]:
    """Bring the DDL before *window* into the state store, as far back as ``window.schema_look_back_hours`` allows.

    Returns, by topic, the offset in its first partition before which all DDL below the window's start was sent. That
    partition has all DDL, if any has. A retired topic is searched to its end. Stretches that a look back or a decode
    searched before are skipped.

    Raises WatermarkNotReachedError if the changefeed has not reached the window's start, and what reading raises.
    """
    if carried_by(context.changefeed).ddl == "nowhere" or window.from_ts == 0:
        return {}
    before = Window(window.from_ts - 1, window.from_ts)
    request = msgspec.structs.replace(pin_request(context, window, SchemaHistory()), window=before)
    # Topics that TiCDC writes to no more are searched, too: a RENAME out of one is there and nowhere else.
    others = {topic: last for topic, last in request.retired_topics.items() if last is None}
    searching = msgspec.structs.replace(request, retired_topics=others)
    with Offsets(context.kafka) as offsets:
        topics = {min(topic.partitions): topic for topic in find_topics(searching, offsets, context.kafka)}
        searched = _searched(context, topics)
        far_ms = max(0, tso.physical_ms(window.from_ts) - context.pipeline.window.schema_look_back_hours * _HOUR_MS)
        far_ts = tso.from_ms(far_ms + request.clock_skew_ms)
        ends: dict[TopicIdentity, int] = {}
        for topic in topics.values():
            for chain in searched[topic.identity]:
                if chain.resolved_ts >= request.resolved_ts and chain.known_from <= far_ts:
                    ends[topic.identity] = chain.end
        left = {partition: topic for partition, topic in topics.items() if topic.identity not in ends}
        if left:
            first = offsets.at_or_after(dict.fromkeys(left, far_ms))
            found = _ends(context, request, offsets, left)
            for partition, bounds in offsets.bounds(left).items():
                topic, (end, resolved_ts) = left[partition], found[partition]
                start = min(end, _start(first[partition], bounds))
                unread = _search(context, topic, partition, start, end, searched[topic.identity])
                scan = DdlScan(
                    topic=topic.identity,
                    partition=partition.number,
                    start=start,
                    end=end,
                    known_from=_known_from(first[partition], bounds, far_ms, request),
                    resolved_ts=resolved_ts,
                )
                context.state.ddl.record_scans(context.pipeline.name, without(unread, scan, request.clock_skew_ms))
                ends[topic.identity] = end
    return ends


def _searched(context: ReplayContext, topics: Mapping[Partition, Topic]) -> dict[TopicIdentity, list[Chain]]:
    scans = context.state.ddl.scans(context.pipeline.name)
    return {
        topic.identity: chains_of(scan for scan in scans if scan.topic == topic.identity) for topic in topics.values()
    }


def _start(first: RecordPlace | None, bounds: Bounds) -> int:
    return bounds.high if first is None else max(first.offset, bounds.low)


def _known_from(first: RecordPlace | None, bounds: Bounds, far_ms: int, request: PinRequest) -> int:
    """The commitTs (TSO) from which on no DDL lies before the start of the search, which was looked for from *far_ms* on."""
    if first is not None and first.offset < bounds.low:  # expired between two questions
        return request.window.to_ts
    if first is not None and first.offset == bounds.low:  # what was before it is gone, up to its time
        return 0 if bounds.low == 0 else tso.from_ms(first.timestamp_ms + request.clock_skew_ms + 1)
    return tso.from_ms(far_ms + request.clock_skew_ms)


def _ends(
    context: ReplayContext, request: PinRequest, offsets: Offsets, topics: Mapping[Partition, Topic]
) -> dict[Partition, tuple[int, int]]:
    """Where the search ends in each partition, and the resolved-ts before that; 0 where there is none."""
    if request.ends_by_time:
        over = offsets.at_or_after(dict.fromkeys(topics, request.end_ms))
        bounds = offsets.bounds(topics)
        return {
            partition: (bounds[partition].high if record is None else record.offset, 0)
            for partition, record in over.items()
        }
    complete = offsets.at_or_after(dict.fromkeys(topics, request.complete_from_ms))
    bounds = offsets.bounds(topics)
    tails = {
        partition: (max(record.offset, bounds[partition].low), bounds[partition].high)
        for partition, record in complete.items()
        if record is not None
    }
    found = first_watermarks(request, context.kafka, offsets, tails)
    ends = {partition: (last.offset + 1, last.commit_ts) for partition, last in found.items()}
    missing = [partition for partition in topics if partition not in ends]
    if missing:
        status = watermark_status(request, context.kafka)
        if any(each.partition in missing for each in status.lagging):
            raise WatermarkNotReachedError(
                f"not complete in Kafka {context.kafka.where} yet: DDL from before its start may still come; {status}"
            )
        # Asked for after that: what a topic holds that is written to no more is all there is.
        ends |= {partition: (held.high, 0) for partition, held in offsets.bounds(missing).items()}
    return ends


def _search(
    context: ReplayContext, topic: Topic, partition: Partition, start: int, end: int, searched: list[Chain]
) -> list[Unread]:
    """Record what ``[start, end)`` says of tables, but for what was *searched* before. Returns what of it can't be read."""
    unread: list[Unread] = []
    for chain in [*searched, Chain(end, end, 0)]:
        stop = min(chain.start, end)
        if start < stop:
            log.info("looking for DDL in %s, offsets %d to %d", partition, start, stop - 1)
            schemas = find_schemas(
                [OffsetRange(topic.name, partition.number, start, stop)],
                context.changefeed,
                context.kafka,
                context.pipeline.limits.decompressed_max_bytes,
                context.connections.get(context.pipeline.connections.schema_registry),
            )
            context.state.ddl.record(context.pipeline.name, (KnownDdl(topic.identity, event) for event in schemas.ddl))
            record_versions(context, schemas.definitions)
            for message in schemas.unread:
                log.warning("%s[%d]@%d may hold DDL and can't be read", *message[:3])
            unread += schemas.unread
        start = max(start, min(chain.end, end))
    return unread
