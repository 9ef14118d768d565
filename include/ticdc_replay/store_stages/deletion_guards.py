"""Checks that the execution of a deletion plan repeats."""

import time
from collections.abc import Callable

from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan
from ticdc_replay.reconcile.delete.release import RecheckedPlan, objections, objections_to_recheck, unforeseen
from ticdc_replay.stages.leases import Hold
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.judged import known_plan
from ticdc_replay.store_stages.replayable import replayable_ranges, unlisted_replays

_LEASE_EVERY_S = 10.0
"""Far below the time to live of a lease."""
_NAMED = 5


def now_ms() -> int:
    """This moment by this machine's clock, Unix ms."""
    return time.time_ns() // 1_000_000


def require_release(context: StoreContext, plan: DeletionPlan, recheck: RecheckedPlan) -> None:
    """Check that *plan* may be executed now. Reads the files of store and pipelines again, and people's decisions.

    Raises PolicyStopError with every objection.
    """
    found: list[str] = []
    store, owners_complete = context.store, context.loaded.owners_complete
    try:
        # The folder of pipelines is that of the listed ones: a file that appeared there counts, too.
        now = load_store(context.loaded.path, context.loaded.pipelines[0].path.parent)
        store, owners_complete = now.store, owners_complete and now.owners_complete
    except ConfigError as error:
        found.append(f"the store's file is no longer valid: {error}")
    record = known_plan(context, plan.hash)
    found += objections(store, owners_complete, plan, record, now_ms())
    found += objections_to_recheck(store, plan, recheck, now_ms())
    if found:
        raise PolicyStopError(f"plan {plan.hash} of store {plan.store} is not executed: {'; '.join(found)}")


def require_no_new_reader(context: StoreContext, recheck: RecheckedPlan) -> None:
    """Check that nobody reads, or may read, messages that Kafka had expired at the *recheck* and that did not count there, and
    that no replay of a pipeline that is not listed uses the store.

    Raises PolicyStopError where somebody does: another recheck will respect it.
    """
    unlisted = unlisted_replays(context)
    if unlisted:
        raise PolicyStopError(f"store {context.store.name}: {'; '.join(unlisted)}")
    ranges = [part for pipeline in context.pipelines for part in replayable_ranges(pipeline)]
    new = unforeseen(recheck.evidence, ranges)
    if new:
        named = ", ".join(f"{part.topic}[{part.partition}]@{part.start}-{part.end - 1}" for part in new[:_NAMED])
        raise PolicyStopError(
            f"store {context.store.name}: since the recheck somebody reads messages that Kafka has expired: {named}"
            f"{' and more' if len(new) > _NAMED else ''}. Recheck the plan and execute it again: what is done is done"
        )


class EverySoOften:
    """Verifies the lease, but not for every object."""

    def __init__(self, hold: Hold, clock: Callable[[], float] = time.monotonic) -> None:
        self._hold = hold
        self._clock = clock
        self._asked = float("-inf")

    def __call__(self) -> None:
        """Raises LeaseLostError where the lease was lost."""
        now = self._clock()
        if now - self._asked >= _LEASE_EVERY_S:
            self._hold.verify()
            self._asked = now
