"""Whether a window is complete in Kafka."""

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError, WatermarkNotReachedError, WindowBoundsError
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot import watermark
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import WatermarkStatus
from ticdc_replay.stages.context import ReplayContext


def watermark_status(context: ReplayContext, window: Window) -> WatermarkStatus:
    """How far each partition of the changefeed has come. Raises what reading Kafka raises."""
    return watermark.watermark_status(pin_request(context, window, SchemaHistory()), context.kafka)


def require_watermark(context: ReplayContext, window: Window) -> WatermarkStatus:
    """The status of a window that is complete. Raises WatermarkNotReachedError where it is not yet."""
    status = watermark_status(context, window)
    if not status.reached:
        raise WatermarkNotReachedError(f"window {window} is not complete in Kafka yet: {status}")
    return status


def pin_request(context: ReplayContext, window: Window, schemas: SchemaHistory) -> PinRequest:
    """What the pipeline asks for when *window* is waited for or pinned.

    Raises WindowBoundsError for a window that ends after the changefeed's target-ts: what committed later was never sent;
    ConfigError where rows have no commitTs: nothing tells which window such a row belongs to.
    """
    carried = carried_by(context.changefeed)
    if carried.commit_ts != "rows":
        which = "deletes" if carried.commit_ts == "rows but deletes" else "rows"
        raise ConfigError(
            f"{context.loaded.path}: changefeed.sink_uri: with protocol={context.changefeed.protocol} and these options {which} "
            "carry no commitTs, so no window of commit time can be cut out of the topic; windows by offset are not supported "
            "yet. Choose options that send it (docs/protocols.md)"
        )
    settings = context.pipeline.window
    target_ts = context.loaded.target_ts
    if target_ts is not None and window.to_ts > target_ts + 1:
        raise WindowBoundsError(
            f"window {window} ends after the changefeed's target-ts {tso.describe(target_ts)}: what committed later was not "
            f"sent. End the window at TSO {target_ts + 1}"
        )
    return PinRequest(
        pipeline=context.pipeline.name,
        changefeed=context.changefeed,
        window=window,
        tables=context.pipeline.tables,
        retired_topics=context.pipeline.changefeed.retired_topics,
        start_ts=context.loaded.start_ts,
        target_ts=target_ts,
        pre_roll_ms=settings.pre_roll_seconds * 1000,
        clock_skew_ms=settings.clock_skew_seconds * 1000,
        ends_by_time=not carried.watermarks or not context.pipeline.changefeed.sends_resolved_ts,
        lag_ms=settings.lag_seconds * 1000,
        claim_check_margin_ms=settings.claim_check_margin_hours * 3_600_000,
        list_store=settings.list_claim_check_store,
        unproven=context.pipeline.policies.unproven,
        decompressed_max_bytes=context.pipeline.limits.decompressed_max_bytes,
        schemas=schemas,
        writer_schemas=context.writer_schemas,
    )
