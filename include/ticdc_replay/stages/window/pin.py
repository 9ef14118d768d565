"""Fixes what a window's replay reads."""

import logging

from ticdc_replay.domain.errors import ConfigError, ExpiredRangeError, NotCoveredError, WatermarkNotReachedError
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import PinnedManifest, pin_window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.derive import derive, find_changelogs
from ticdc_replay.stages.window.schemas import known_schemas
from ticdc_replay.stages.window.shared import pin_shared
from ticdc_replay.stages.window.watermark import pin_request, require_watermark

log = logging.getLogger(__name__)


def pin(
    context: ReplayContext,
    window: Window,
    *,
    repin: bool = False,
    from_changelog: bool = False,
    policy: PinPolicy | None = None,
) -> PinnedManifest:
    """The manifest of *window*: the one it has, or a new one if it has none or with *repin*.

    A new one names ranges of Kafka; or changelogs of the pipeline that hold the window, if *from_changelog* or
    ``window.from_changelog`` asks for it; or the wider window whose decode it shares (``window.decode_hours``). A
    repinned window shares nothing, since that input is to be repaired. A *policy* other than the pipeline's
    ``window.pin`` asks for a window of its own, from Kafka.

    Raises what ``snapshot.pin.pin_window``, ``require_asked`` and, with *from_changelog*, ``derive`` raise.
    """
    if policy is not None and from_changelog:
        raise ConfigError("a window that is taken from changelogs has no end in Kafka: leave out the pin policy")
    if policy is not None and policy != context.pipeline.window.pin:
        request = pin_request(context, window, known_schemas(context, window), policy)
        pinned = pin_window(request, context.kafka, context.artifacts, context.claim_check, context.state, repin=repin)
    else:
        pinned = _pin_as_configured(context, window, repin=repin, from_changelog=from_changelog)
    require_asked(context, pinned.manifest, policy, from_changelog=from_changelog)
    return pinned


def require_asked(
    context: ReplayContext, manifest: Manifest, policy: PinPolicy | None, *, from_changelog: bool = False
) -> None:
    """Check that the window's *manifest* has the *policy* that the run asks for, or is from changelogs. Raises
    ConfigError otherwise, such as when the window was pinned before."""
    before = f"window {manifest.window} was pinned before, and not"
    if from_changelog and not manifest.derived:
        raise ConfigError(f"{before} to changelogs, which this run asks for: pin it again (repin)")
    # What is taken from changelogs has no end in Kafka: whoever asks for what is configured anyway gets it.
    own = context.pipeline.window.pin if manifest.derived else manifest.pin
    if policy not in (None, own):
        raise ConfigError(f"{before} with the policy {policy} that this run asks for: pin it again (repin)")


def is_pinned(context: ReplayContext, window: Window) -> bool:
    """Whether *window* has a manifest: then all of it was complete, and there is nothing to wait for."""
    return context.state.manifests.of_window(context.pipeline.name, window) is not None


def require_input(context: ReplayContext, window: Window, *, repin: bool = False, from_changelog: bool = False) -> None:
    """Check that *window* is pinned (without *repin*), or complete in Kafka, or in changelogs that it may be taken
    from. Raises WatermarkNotReachedError otherwise."""
    if from_changelog or (is_pinned(context, window) and not repin):
        return
    try:
        require_watermark(context, window)
    except WatermarkNotReachedError:
        if not is_in_changelogs(context, window):
            raise


def is_in_changelogs(context: ReplayContext, window: Window) -> bool:
    """Whether *window* can be taken from changelogs, and policy lets it: all of it was complete in Kafka once."""
    return context.pipeline.window.from_changelog != "never" and not find_changelogs(context, window).lacking


def _pin_as_configured(context: ReplayContext, window: Window, *, repin: bool, from_changelog: bool) -> PinnedManifest:
    if not is_pinned(context, window) or repin:
        wanted = context.pipeline.window.from_changelog
        if from_changelog:
            return derive(context, window)
        if wanted == "prefer" and not repin and not find_changelogs(context, window).lacking:
            return derive(context, window)
        if wanted != "never":
            return _pin_or_derive(context, window, repin=repin)
    return _pin(context, window, repin=repin)


def _pin_or_derive(context: ReplayContext, window: Window, *, repin: bool) -> PinnedManifest:
    try:
        return _pin(context, window, repin=repin)
    except (ExpiredRangeError, WatermarkNotReachedError) as error:
        # What lies after the last record that Kafka expired looks as if it had never come.
        try:
            pinned = derive(context, window)
        except NotCoveredError as lacking:
            if isinstance(error, WatermarkNotReachedError):
                raise error from None
            raise ExpiredRangeError(f"{error}. Changelogs do not hold it either: {lacking}") from None
        log.warning("%s is taken from changelogs, not from Kafka: %s", window, error)
        return pinned


def _pin(context: ReplayContext, window: Window, *, repin: bool) -> PinnedManifest:
    pinned_before = is_pinned(context, window)
    if not pinned_before and (shared := pin_shared(context, window)) is not None:
        return shared
    # The schemas of a pinned window are pinned with it: no need to look back into Kafka, which may have expired.
    schemas = SchemaHistory() if pinned_before and not repin else known_schemas(context, window)
    request = pin_request(context, window, schemas)
    return pin_window(request, context.kafka, context.artifacts, context.claim_check, context.state, repin=repin)
