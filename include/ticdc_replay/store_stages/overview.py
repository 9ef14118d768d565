"""What is known of a store: its newest reconciliation, how that changed, and what is planned and was deleted."""

import msgspec

from ticdc_replay.reconcile.delete.undo import Undone, undos_of
from ticdc_replay.reconcile.judge.report import ReconciliationReport, read_report
from ticdc_replay.state import StateStore
from ticdc_replay.state.deletion_plans import DeletionExecution, DeletionPlanRecord
from ticdc_replay.state.reconciliations import Reconciliation
from ticdc_replay.storage import ObjectStore

_TREND, _PLANS = 180, 30


class PlanAndExecutions(msgspec.Struct, frozen=True):
    """A deletion plan with its executions and undos, oldest first."""

    plan: DeletionPlanRecord
    executions: tuple[DeletionExecution, ...]
    undos: tuple[Undone, ...]


class StoreOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What the store's page shows."""

    newest: ReconciliationReport | None
    """None where the store was never reconciled."""
    folder: str | None
    """URI of the folder of the newest reconciliation."""
    trend: tuple[Reconciliation, ...]
    """The last reconciliations, oldest first."""
    plans: tuple[PlanAndExecutions, ...]
    """The last plans, newest first."""


def store_overview(name: str, state: StateStore, artifacts: ObjectStore) -> StoreOverview:
    """What is known of the store called *name*. Reads the state store, one report, and the records of undos; raises what the
    stores raise."""
    trend = state.reconciliations.all(name)[-_TREND:]
    newest = read_report(artifacts, trend[-1].report) if trend else None
    executions: dict[str, list[DeletionExecution]] = {}
    for execution in state.deletion_plans.executions(name):
        executions.setdefault(execution.plan_hash, []).append(execution)
    plans = state.deletion_plans.all(name)[: -_PLANS - 1 : -1]
    return StoreOverview(
        newest=newest,
        folder=artifacts.uri(trend[-1].report.rpartition("/")[0]) if trend else None,
        trend=tuple(trend),
        plans=tuple(_with_history(artifacts, plan, executions.get(plan.plan_hash, [])) for plan in plans),
    )


def _with_history(
    artifacts: ObjectStore, plan: DeletionPlanRecord, executions: list[DeletionExecution]
) -> PlanAndExecutions:
    undos = undos_of(artifacts, plan.plan_hash) if executions else []
    return PlanAndExecutions(plan, tuple(executions), tuple(undos))
