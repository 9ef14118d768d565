"""The conditions for executing a deletion plan, without any I/O. They are checked throughout the execution."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from ticdc_replay.config.store import Store
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan
from ticdc_replay.reconcile.judge.rules import Evidence, ReplayableRange, merged
from ticdc_replay.state.deletion_plans import DeletionPlanRecord

RECHECK_MAX_AGE_MS = 6 * 3_600_000
"""A recheck is good for a deletion this long after it read the offsets of Kafka."""

PLANNING_MAX_AGE_MS = 24 * 3_600_000
"""A reconciliation is good for a plan this long after it read the offsets of Kafka."""

_HOUR_MS = 3_600_000


class RecheckedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan's objects, judged again by what Kafka holds now."""

    recheck_id: str
    store: str
    plan_hash: str
    pipelines: tuple[str, ...]
    """Those whose changefeeds were looked at."""
    evidence: Evidence
    files: tuple[str, ...]
    """``records.CLASSIFIED_OBJECTS``, below the store's artefacts."""


def due_ms(store: Store, plan: DeletionPlan | DeletionPlanRecord) -> int:
    """When the grace period of *plan* is over by anybody's clock (Unix ms): its own, or the store's where it is longer now."""
    grace_ms = store.deletion.grace_hours * _HOUR_MS
    return max(plan.due_at_ms, plan.made_at_ms + grace_ms) + store.rules.clock_skew_seconds * 1000


def objections(
    store: Store, owners_complete: bool, plan: DeletionPlan, record: DeletionPlanRecord, now_ms: int
) -> Iterator[str]:
    """Why *plan* of *store* may not be executed at *now_ms*, for people; none where it may.

    *owners_complete*: of the store's and all pipelines' files, as they are now. *record*: the plan with people's decisions.
    """
    policy = store.deletion.policy
    if policy == "never":
        yield "deletion.policy of the store is never"
    if not owners_complete:
        yield (
            "owners_complete of the store is not true, or a pipeline file can't be loaded: its changefeed may write to the "
            "store"
        )
    if (plan.store, plan.uri) != (store.name, store.uri):
        yield f"the plan is of store {plan.store} at {plan.uri}, not of {store.name} at {store.uri}"
    if record.status in ("rejected", "executed"):
        yield f"it was {record.status}"
    elif policy == "approval" and record.status != "approved":
        yield (
            f"nobody has approved it: ticdc-replay deletion approve STORE.yaml {record.plan_hash[:12]} --by … --why …, "
            f"or answer the question of the deletion DAG"
        )
    elif record.status != "approved" and record.policy != "automatic":
        yield "it was made under another policy than automatic, and nobody has approved it: approve or reject it"
    if now_ms < due_ms(store, plan):
        yield f"its grace period lasts until {_text(due_ms(store, plan))}"


def objections_to_recheck(store: Store, plan: DeletionPlan, recheck: RecheckedPlan, now_ms: int) -> Iterator[str]:
    """Why *recheck* does not allow to execute *plan* of *store* at *now_ms*, for people; none where it does."""
    evidence, skew_ms = recheck.evidence, store.rules.clock_skew_seconds * 1000
    read = _text(evidence.bounds_ms)
    if (recheck.store, recheck.plan_hash) != (plan.store, plan.hash):
        yield f"the recheck is of plan {recheck.plan_hash} of store {recheck.store}"
    if set(recheck.pipelines) != set(store.pipelines):
        yield f"the recheck is of other pipelines than the store has now: {', '.join(recheck.pipelines)}"
    if evidence.bounds_ms < due_ms(store, plan):
        yield f"the recheck read Kafka's offsets at {read}, before the grace period was over"
    if evidence.bounds_ms - skew_ms > now_ms:
        yield f"the recheck read Kafka's offsets at {read}, which is still to come: clocks differ by more than the rules allow"
    if now_ms > evidence.bounds_ms + RECHECK_MAX_AGE_MS:
        yield f"the recheck is more than {RECHECK_MAX_AGE_MS // _HOUR_MS} hours old: it read Kafka's offsets at {read}"
    yield from evidence.obstacles()
    wanted = (store.rules.young_ms, store.deletion.grace_hours * _HOUR_MS, skew_ms)
    if any(
        had < now for had, now in zip((evidence.young_ms, evidence.grace_ms, evidence.skew_ms), wanted, strict=True)
    ):
        yield "the rules of the store (young_hours, grace_hours, clock_skew_seconds) are stricter now than at the recheck"


def unforeseen(evidence: Evidence, replayable: Iterable[ReplayableRange]) -> tuple[ReplayableRange, ...]:
    """The ranges in *replayable* that may refer to objects that a recheck with *evidence* called deletable.

    Offsets that Kafka held at the recheck, or that came later, can't: messages that were there were searched, and later ones
    refer to objects that were too young to be judged. Nor can what was replayable at the recheck already.
    """
    bounds = {found.place: found for found in evidence.partitions}
    known = merged(evidence.replayable)
    result = []
    for part in merged(tuple(replayable)):
        held = bounds.get(part.place)
        if held is not None and part.start >= held.low:
            continue
        # Below the first offset that Kafka held: then all of it must have been known.
        wanted = part if held is None else msgspec.structs.replace(part, end=min(part.end, held.low))
        if not any(_contains(found, wanted) for found in known):
            result.append(part)
    return tuple(result)


def _contains(outer: ReplayableRange, inner: ReplayableRange) -> bool:
    return outer.place == inner.place and outer.start <= inner.start and inner.end <= outer.end


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
