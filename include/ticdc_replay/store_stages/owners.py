"""Which owners of a claim-check store its file does not list."""

import time

from ticdc_replay.stages.leases import replayed
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.replayable import DRIVER_OUTLIVES_MS


def unlisted_replays(context: StoreContext) -> list[str]:
    """Replays that use the store, or used it when they died, of pipelines that it does not list; sorted, for people.

    Those of ``former_pipelines`` count as long as they may run. Raises what the state stores raise.
    """
    listed = {each.pipeline.name for each in context.pipelines}
    former = set(context.store.former_pipelines)
    long_ago = int(time.time() * 1000) - DRIVER_OUTLIVES_MS
    found = set()
    for state in (context.state, *(each.state for each in context.pipelines)):
        for lease in (*state.leases.current(context.store.uri), *state.leases.lapsed(context.store.uri)):
            if lease.kind != "replay":
                continue
            pipeline = replayed(lease).pipeline
            if pipeline in listed or (pipeline in former and lease.expires_at_ms <= long_ago):
                continue
            found.add(
                f"a replay of the pipeline {pipeline}, which is not listed, used the store and did not tell of its end "
                f"({lease.subject}): list it, or, when it has ended and nobody will ever read its messages again, name it in "
                "former_pipelines"
            )
    return sorted(found)
