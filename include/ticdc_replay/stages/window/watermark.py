"""Whether a window is complete in Kafka."""

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError, UnprovenWindowError, WatermarkNotReachedError, WindowBoundsError
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot import watermark
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import WatermarkStatus
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.changefeed import Windows, possible_windows


def watermark_status(context: ReplayContext, window: Window) -> WatermarkStatus:
    """How far each partition of the changefeed has come. Raises what reading Kafka raises."""
    return watermark.watermark_status(pin_request(context, window, SchemaHistory()), context.kafka)


def require_watermark(context: ReplayContext, window: Window) -> None:
    """Raise WatermarkNotReachedError where *window* is not complete in Kafka yet."""
    status = watermark_status(context, window)
    if not status.reached:
        raise WatermarkNotReachedError(f"window {window} is not complete in Kafka yet: {status}")


def pin_request(
    context: ReplayContext, window: Window, schemas: SchemaHistory, policy: PinPolicy | None = None
) -> PinRequest:
    """What the pipeline asks for when *window* is awaited or pinned; *policy* replaces that of its file.

    Raises WindowBoundsError for a window after the changefeed's target-ts, as later commits were not sent;
    UnprovenWindowError if no window can be proven and the policy stops; ConfigError if windows are bounded by offsets
    and a target is no mirror, or windows end at the head.
    """
    windows, why = possible_windows(context.changefeed)
    _check_windows(context, windows, why)
    by_offset = windows == "by offset"
    settings = context.pipeline.window
    policy = policy or settings.pin
    if by_offset and policy == "head":
        raise ConfigError(
            f"{context.loaded.path}: window.pin: head is not for this changefeed: {'; '.join(why)}, so what came later is of the "
            "next window. Choose first"
        )
    target_ts = context.loaded.target_ts
    if not by_offset and target_ts is not None and window.to_ts > target_ts + 1:
        raise WindowBoundsError(
            f"window {window} ends after the changefeed's target-ts {tso.describe(target_ts)}: what committed later was not "
            f"sent. End the window at TSO {target_ts + 1}"
        )
    return PinRequest(
        pipeline=context.pipeline.name,
        changefeed=context.changefeed,
        window=window,
        pin=policy,
        tables=context.pipeline.tables,
        retired_topics=context.pipeline.changefeed.retired_topics,
        start_ts=context.loaded.start_ts,
        target_ts=target_ts,
        pre_roll_ms=settings.pre_roll_seconds * 1000,
        clock_skew_ms=settings.clock_skew_seconds * 1000,
        ends_by_time=by_offset
        or not carried_by(context.changefeed).watermarks
        or not context.pipeline.changefeed.sends_resolved_ts,
        by_offset=by_offset,
        lag_ms=settings.lag_seconds * 1000,
        claim_check_margin_ms=settings.claim_check_margin_hours * 3_600_000,
        list_store=settings.list_claim_check_store,
        unproven=context.pipeline.policies.unproven,
        decompressed_max_bytes=context.pipeline.limits.decompressed_max_bytes,
        schemas=schemas,
        writer_schemas=context.writer_schemas,
    )


def _check_windows(context: ReplayContext, windows: Windows, why: tuple[str, ...]) -> None:
    """Raise where windows of the kind that the changefeed can have are not what the pipeline is for."""
    if windows != "proven" and context.pipeline.policies.unproven == "stop":
        raise UnprovenWindowError(
            f"{context.loaded.path}: no window of this changefeed can be proven complete: {'; '.join(why)}. Choose options that "
            "allow a proof (docs/protocols.md), or accept unproven windows with policies.unproven: allow"
        )
    if windows == "by offset":
        others = [target.name for target in context.pipeline.targets if not target.is_mirror]
        if others:
            raise ConfigError(
                f"{context.loaded.path}: targets: {', '.join(others)} can't be loaded: {'; '.join(why)}, so copies that TiCDC "
                f"sent twice look like changes, and only a mirror comes out right"
            )
