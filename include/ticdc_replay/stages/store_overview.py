"""What is known of a store: its newest reconciliation, how that changed, and what is planned and was deleted."""

import msgspec

from ticdc_replay.reconcile import report as reports
from ticdc_replay.reconcile.report import ReconciliationReport
from ticdc_replay.reconcile.undo import Undone, undos_of
from ticdc_replay.stages.store_context import StoreContext
from ticdc_replay.state.records import DeletionExecution, DeletionPlanRecord, Reconciliation

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


def store_overview(context: StoreContext) -> StoreOverview:
    """What is known of the store of *context*. Reads the state store, one report, and the records of undos; raises what the
    stores raise."""
    name = context.store.name
    trend = context.state.reconciliations(name)[-_TREND:]
    newest = reports.decode(context.artifacts.get(trend[-1].report)) if trend else None
    executions: dict[str, list[DeletionExecution]] = {}
    for execution in context.state.deletion_executions(name):
        executions.setdefault(execution.plan_hash, []).append(execution)
    plans = context.state.deletion_plans(name)[: -_PLANS - 1 : -1]
    return StoreOverview(
        newest=newest,
        folder=context.artifacts.uri(trend[-1].report.rpartition("/")[0]) if trend else None,
        trend=tuple(trend),
        plans=tuple(_with_history(context, plan, executions.get(plan.plan_hash, [])) for plan in plans),
    )


def _with_history(
    context: StoreContext, plan: DeletionPlanRecord, executions: list[DeletionExecution]
) -> PlanAndExecutions:
    undos = undos_of(context.artifacts, plan.plan_hash) if executions else []
    return PlanAndExecutions(plan, tuple(executions), tuple(undos))
