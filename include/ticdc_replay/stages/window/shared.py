"""One decode for several windows of a schedule: a wider, aligned window is pinned, and they use its changelog.

With hours of replication lag, the rows of a window lie after those of many others in Kafka, so windows of a backfill
that run side by side would read the same messages again and again.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import (
    ExpiredRangeError,
    LeaseHeldError,
    UnprovenWindowError,
    WatermarkNotReachedError,
    WindowBoundsError,
)
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import SharedDecode
from ticdc_replay.snapshot.manifest import Manifest, SharedInput
from ticdc_replay.snapshot.pin import PinnedManifest, pin_window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import Hold, replaying, unique
from ticdc_replay.stages.window.changefeed import possible_windows
from ticdc_replay.stages.window.derive import register, topics_of
from ticdc_replay.stages.window.schemas import known_schemas
from ticdc_replay.stages.window.watermark import pin_request, watermark_status

log = logging.getLogger(__name__)

TTL_MS = 120_000
"""How long a decode that others wait for may be silent before they take it for dead."""


def span_of(context: ReplayContext, window: Window) -> Window | None:
    """The aligned window whose decode *window* shares, or None. It begins at a multiple of ``window.decode_hours``
    since 1970 (UTC), but not before the schedule does."""
    hours = context.pipeline.window.decode_hours
    if hours is None or possible_windows(context.changefeed)[0] == "by offset":
        return None
    schedule_start = tso.from_datetime(context.pipeline.schedule.start)
    if window.from_ts < schedule_start:
        return None
    length = tso.from_ms(hours * 3_600_000)
    begin = window.from_ts // length * length
    span = Window(max(begin, schedule_start), begin + length)
    return span if window.to_ts <= span.to_ts and span != window else None


def pin_shared(context: ReplayContext, window: Window) -> PinnedManifest | None:
    """Pin *window*, still without manifest, to the input that it shares with others, which is pinned first if needed.

    None if the window is decoded by itself: nothing is configured, or the wider window is not over or can't be proven.
    """
    span = span_of(context, window)
    if span is None:
        return None
    known = context.state.manifests.of_window(context.pipeline.name, span)
    try:
        if known is None and not watermark_status(context, span).reached:
            log.info("%s is not over yet: %s is decoded by itself", span, window)
            return None
        schemas = known_schemas(context, span)
        wide = pin_window(
            pin_request(context, span, schemas), context.kafka, context.artifacts, context.claim_check, context.state
        )
    except (ExpiredRangeError, UnprovenWindowError, WatermarkNotReachedError, WindowBoundsError) as error:
        log.warning("%s is decoded by itself, not with %s: %s", window, span, error)
        return None
    manifest = wide.manifest
    if manifest.reasons or not manifest.reads_kafka:
        log.info("%s is decoded by itself: %s is not proven, or pinned to changelogs", window, span)
        return None
    log.info("%s is taken from the decode of %s", window, span)
    shares = Manifest(
        pipeline=manifest.pipeline,
        changefeed_hash=manifest.changefeed_hash,
        window=window,
        grade=manifest.grade,
        pin=manifest.pin,
        topics=topics_of(manifest),
        cluster_id=manifest.cluster_id,
        tables=manifest.tables,
        shared=SharedInput(wide.name, manifest.input_hash, span),
        pinned_at_ms=manifest.pinned_at_ms,
    )
    return register(context, shares, None)


@contextmanager
def decoding(
    context: ReplayContext,
    manifest: str,
    run_hash: str,
    shared: SharedDecode | None = None,
    *,
    holder: str | None = None,
    ttl_ms: int = TTL_MS,
    poll_s: float = 5,
) -> Iterator[list[Hold]]:
    """Held while *manifest* is decoded into *run_hash*, until that run is recorded: the lease of ``leases.replaying``. Gives what
    is held.

    With a *shared* decode, one of several runs does it; the others wait here for its changelog or its failure. After
    HandedOverError its holder has both leases; who goes on enters this as that *holder*, and waits for nobody.

    Raises LeaseHeldError after ``window.timeout_minutes``, and what ``leases.replaying`` raises.
    """
    if shared is None:
        with replaying(context, manifest, run_hash, holder=holder) as held:
            yield held
        return
    with (
        _alone(context, shared, holder, ttl_ms, poll_s) as alone,
        replaying(context, shared.manifest, shared.run_hash, holder=holder) as held,
    ):
        yield alone + held


@contextmanager
def _alone(
    context: ReplayContext, shared: SharedDecode, holder: str | None, ttl_ms: int, poll_s: float
) -> Iterator[list[Hold]]:
    """Nobody else decodes what *shared* names, or its changelog is there already."""
    leases = context.state.leases
    root = changelog_root(shared.run_hash)
    resource = context.artifacts.uri(root)
    deadline = time.monotonic() + context.pipeline.window.timeout_minutes * 60

    def is_there() -> bool:
        return context.artifacts.info(f"{root}/{INDEX}") is not None

    while holder is not None or not is_there():
        try:
            lease = leases.acquire(resource, holder or unique("decode"), "decode", shared.manifest, ttl_ms)
        except LeaseHeldError as error:
            if holder is not None:  # it was silent for too long, and both decode
                log.warning("%s", error)
                break
            if time.monotonic() > deadline:
                raise LeaseHeldError(
                    f"another run has been decoding {root} for longer than window.timeout_minutes: {error}"
                ) from None
            log.info("another run is decoding %s, which this one takes its window from; waiting for it", root)
            time.sleep(poll_s)
            continue
        hold = Hold(leases, lease, ttl_ms)
        try:
            yield [hold]
            hold.verify()
        except HandedOverError as error:
            hold.hand_over(error.holder)
            raise
        except BaseException:
            hold.release()
            raise
        hold.release()
        return
    yield []
