"""Whether changes can continue a dump: everything that committed after its TSO must still be had."""

import logging

from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError, NotCoveredError, UnprovenWindowError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.start import beginning_doubt, read_heads
from ticdc_replay.snapshot.topics import find_topics
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.derive import find_changelogs
from ticdc_replay.stages.window.watermark import pin_request

log = logging.getLogger(__name__)


def require_continuation(context: ReplayContext, snapshot_ts: int) -> None:
    """Check that all that committed after *snapshot_ts* (TSO) is in Kafka, or in changelogs up to where Kafka begins.

    Raises NotCoveredError, which lists what is missing; UnprovenWindowError if nothing shows that the changefeed ran at that
    time, and the policy stops; ConfigError for a changefeed whose rows have no commitTs.
    """
    since = Window(snapshot_ts + 1, snapshot_ts + 2)
    request = pin_request(context, since, SchemaHistory())
    if request.by_offset:
        raise ConfigError(
            f"{context.loaded.path}: not all rows of this changefeed carry a commitTs, so nothing shows which are newer than "
            "the dump. Choose options that let rows carry one (docs/protocols.md), or fill the mirror by hand (docs/targets.md)"
        )
    kept_from, doubt = _kept_by_kafka(context, request)
    if kept_from > since.from_ts:
        lacking = find_changelogs(context, Window(since.from_ts, kept_from)).lacking
        if lacking:
            raise NotCoveredError(
                f"the dump was taken at {tso.describe(snapshot_ts)}, and nothing can continue from there: Kafka holds what "
                f"committed from {tso.describe(kept_from)} on, and {lacking}. Take a newer dump, and set retention.ms of the "
                "topics so that it covers the time a dump and its seed take"
            )
    elif doubt is not None:
        if context.pipeline.policies.unproven == "stop":
            raise UnprovenWindowError(
                f"the dump was taken at {tso.describe(snapshot_ts)}, and nothing shows that changes continue it: {doubt}. Or "
                "accept unproven windows with policies.unproven: allow"
            )
        log.warning("nothing shows that changes continue the dump: %s", doubt)


def _kept_by_kafka(context: ReplayContext, request: PinRequest) -> tuple[int, str | None]:
    """From which TSO on Kafka holds everything, 0 for all that was ever sent; and why it is in doubt that the changefeed ran at
    the beginning of the window of *request*."""
    with Offsets(context.kafka) as offsets:
        topics = find_topics(request, offsets, context.kafka)
        partitions = [
            partition for topic in topics for partition in topic.partitions if not request.is_surplus(partition)
        ]
        needed = offsets.at_or_after(dict.fromkeys(partitions, request.needed_from_ms))
        bounds = offsets.bounds(partitions)
        expired = [
            partition
            for partition in partitions
            if bounds[partition].low > 0
            and (record := needed[partition]) is not None
            and record.offset <= bounds[partition].low
        ]
        oldest = offsets.at_or_after(dict.fromkeys(expired, 0))
    if expired:
        oldest_ms = max((record.timestamp_ms for record in oldest.values() if record is not None), default=0)
        return tso.from_ms(oldest_ms + request.clock_skew_ms + 1), None
    heads = read_heads(
        request,
        context.kafka,
        [
            OffsetRange(partition.topic, partition.number, bounds[partition].low, bounds[partition].high)
            for partition in partitions
            if bounds[partition].high > bounds[partition].low
        ],
    )
    emptied = [str(partition) for partition in partitions if 0 < bounds[partition].low == bounds[partition].high]
    if not heads and emptied:
        return (
            0,
            f"all messages of {', '.join(emptied)} have expired, and some may have been of what committed after the dump. Let "
            "the changefeed run, and take a newer dump",
        )
    if not heads and request.start_ts is None:
        return (
            0,
            "the topics hold no message yet. Start the changefeed first, with --start-ts at or before the dump's TSO",
        )
    return 0, beginning_doubt(request, heads, needed, bounds)
