"""Fixes what a window's replay reads."""

from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.pin import PinnedManifest, pin_window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.schemas import known_schemas
from ticdc_replay.stages.watermark import pin_request


def pin(context: ReplayContext, window: Window, *, repin: bool = False) -> PinnedManifest:
    """The manifest of *window*: the one it has, or a new one where it has none or *repin* asks for it.

    Raises what ``snapshot.pin.pin_window`` raises.
    """
    pinned_before = context.state.manifest_of(context.pipeline.name, window) is not None
    # The schemas of a pinned window are pinned with it: no need to look back into Kafka, which may have expired.
    schemas = SchemaHistory() if pinned_before and not repin else known_schemas(context, window)
    request = pin_request(context, window, schemas)
    return pin_window(request, context.kafka, context.artifacts, context.claim_check, context.state, repin=repin)
