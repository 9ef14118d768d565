"""Deletion plans of a store with what people said to them, also where the state store has forgotten it."""

from ticdc_replay.reconcile.delete.decisions import rejection_of
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.store_stages.context import StoreContext


def known_plan(context: StoreContext, plan_hash: str) -> DeletionPlanRecord:
    """The plan *plan_hash*, rejected where its artefacts say so: then the state store is told again.

    Raises ConfigError where the state store has no such plan.
    """
    return _with_rejection(context, context.state.deletion_plans.get(context.store.name, plan_hash))


def known_plans(context: StoreContext) -> list[DeletionPlanRecord]:
    """All plans of the store, the oldest first; see ``known_plan``."""
    return [_with_rejection(context, record) for record in context.state.deletion_plans.all(context.store.name)]


def _with_rejection(context: StoreContext, record: DeletionPlanRecord) -> DeletionPlanRecord:
    if record.status not in ("open", "approved"):
        return record
    said = rejection_of(context.artifacts, record.plan_hash)
    if said is None:
        return record
    return context.state.deletion_plans.decide(record.store, record.plan_hash, "rejected", by=said.person, why=said.why)
