"""People's decisions about a deletion plan, beside the plan: ``plans/<plan_hash>/decision-<sha256>.json``.

The state store has them, too. After a restore from a backup it lacks the newest, and a plan that somebody has rejected must not
come back.
"""

import msgspec

from ticdc_replay.reconcile.delete.deletion_plan import plan_folder
from ticdc_replay.state.deletion_plans import DeletionPlanRecord, PlanStatus
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document, read_documents


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of *person* about a plan, and why; Unix ms."""

    format: int = 1
    store: str
    plan_hash: str
    status: PlanStatus
    person: str
    why: str
    at_ms: int


def put_decision(artifacts: ObjectStore, record: DeletionPlanRecord) -> None:
    """Put the decision about the plan of *record*. A repeat does no harm."""
    assert record.decided_at_ms is not None
    decision = Decision(
        store=record.store,
        plan_hash=record.plan_hash,
        status=record.status,
        person=record.decided_by,
        why=record.decided_why,
        at_ms=record.decided_at_ms,
    )
    put_document(artifacts, f"{plan_folder(record.plan_hash)}/decision-", decision)


def rejection_of(artifacts: ObjectStore, plan_hash: str) -> Decision | None:
    """The first rejection of the plan; None where nobody has rejected it."""
    decisions = read_documents(artifacts, f"{plan_folder(plan_hash)}/decision-", Decision)
    rejections = [decision for decision in decisions if decision.status == "rejected"]
    return min(rejections, key=lambda decision: decision.at_ms, default=None)
