"""What people said to a deletion plan, beside the plan: ``plans/<plan_hash>/decision-<sha256>.json``.

The state store says the same. Where a backup of it was restored it has forgotten what was said since, and a plan that
somebody has rejected must not come back with it.
"""

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.reconcile.delete.deletion_plan import plan_folder
from ticdc_replay.state.deletion_plans import DeletionPlanRecord, PlanStatus
from ticdc_replay.storage.base import ObjectStore


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What *person* said to a plan, and why; Unix ms."""

    format: int = 1
    store: str
    plan_hash: str
    status: PlanStatus
    person: str
    why: str
    at_ms: int


def put_decision(artifacts: ObjectStore, record: DeletionPlanRecord) -> None:
    """Put what was said to the plan of *record*. A repeat does no harm."""
    assert record.decided_at_ms is not None
    content = canonical.encode(
        Decision(
            store=record.store,
            plan_hash=record.plan_hash,
            status=record.status,
            person=record.decided_by,
            why=record.decided_why,
            at_ms=record.decided_at_ms,
        )
    )
    artifacts.put_once(f"{plan_folder(record.plan_hash)}/decision-{canonical.digest(content)}.json", content)


def rejection_of(artifacts: ObjectStore, plan_hash: str) -> Decision | None:
    """The first rejection of the plan; None where nobody has rejected it."""
    found = artifacts.list(f"{plan_folder(plan_hash)}/decision-")
    decisions = [msgspec.json.decode(artifacts.get(info.name), type=Decision) for info in found]
    rejections = [decision for decision in decisions if decision.status == "rejected"]
    return min(rejections, key=lambda decision: decision.at_ms, default=None)
