"""What a deletion reads: results of reconciliations and rechecks, and plans with people's decisions."""

import pyarrow as pa

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, PolicyStopError
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.reconcile.delete.decisions import rejection_of
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan
from ticdc_replay.reconcile.delete.release import RecheckedPlan
from ticdc_replay.reconcile.judge.classified import (
    ClassifiedIndex,
    read_classified,
    recheck_folder,
    reconciliation_folder,
)
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.reconcile.look.survey import read_survey
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import read_evidence


def evidence_of(context: StoreContext, found: ClassifiedIndex) -> Evidence:
    """What *found* was judged by. Raises ArtifactCorruptError where it was changed since."""
    evidence = read_evidence(context.artifacts, found.evidence)
    if found.evidence != f"evidence/{canonical.hash_of(evidence)}.json":
        raise ArtifactCorruptError(
            f"{context.artifacts.uri(found.evidence)} was changed since {found.id} was judged by it"
        )
    return evidence


def read_recheck(context: StoreContext, recheck_id: str) -> RecheckedPlan:
    """The recheck *recheck_id*. Raises ArtifactNotFoundError where there is none, ArtifactCorruptError where it was changed."""
    found = read_classified(context.artifacts, recheck_folder(recheck_id))
    survey = read_survey(context.artifacts, found.survey)
    return RecheckedPlan(
        recheck_id=recheck_id,
        store=found.store,
        plan_hash=found.plan_hash or "",
        pipelines=tuple(feed.pipeline for feed in survey.feeds),
        evidence=evidence_of(context, found),
        files=tuple(file.name for file in found.objects),
    )


def last_copies(context: StoreContext, found: ClassifiedIndex) -> pa.Array:
    """Names of objects that hold a row whose own object the reconciliation *found* missing."""
    return plans.last_copies(context.artifacts, [file.name for file in found.references])


def newest_last_copies(context: StoreContext, plan: DeletionPlan) -> frozenset[str]:
    """``last_copies`` of the newest reconciliation: it may have missed objects that were there when *plan* was made.

    Raises PolicyStopError where the files of that reconciliation were removed.
    """
    newest = context.state.reconciliations.all(plan.store)[-1:]
    if not newest or newest[0].reconciliation_id == plan.reconciliation_id:
        return frozenset()
    try:
        found = read_classified(context.artifacts, reconciliation_folder(newest[0].reconciliation_id))
    except ArtifactNotFoundError as error:
        raise PolicyStopError(
            f"plan {plan.hash} of store {plan.store} is not executed: the files of the newest reconciliation are gone, so nobody "
            f"knows which objects are the last copy of a row ({error}). Reconcile again, and execute the plan after that"
        ) from error
    return frozenset(last_copies(context, found).to_pylist())


def known_plan(context: StoreContext, plan_hash: str) -> DeletionPlanRecord:
    """The plan *plan_hash*. If its artefacts have a rejection that the state store lost, that is recorded again.

    Raises ConfigError where the state store has no such plan.
    """
    return _with_rejection(context, context.state.deletion_plans.get(context.store.name, plan_hash))


def known_plans(context: StoreContext) -> list[DeletionPlanRecord]:
    """All plans of the store, the oldest first; see ``known_plan``."""
    return [_with_rejection(context, record) for record in context.state.deletion_plans.all(context.store.name)]


def _with_rejection(context: StoreContext, record: DeletionPlanRecord) -> DeletionPlanRecord:
    if record.status not in ("open", "approved"):
        return record
    rejection = rejection_of(context.artifacts, record.plan_hash)
    if rejection is None:
        return record
    return context.state.deletion_plans.decide(
        record.store, record.plan_hash, "rejected", by=rejection.person, why=rejection.why
    )
