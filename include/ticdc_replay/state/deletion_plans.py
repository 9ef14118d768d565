"""The deletion plans of claim-check stores, the decisions about them, and their executions."""

import time
from collections.abc import Sequence
from typing import Literal

import msgspec
from sqlalchemy import select, update

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, insert_new, row_of

PlanStatus = Literal["open", "approved", "rejected", "executed"]


class DeletionPlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion plan, and the decision about it."""

    store: str
    """Name of the store."""
    plan_hash: str
    name: str
    """Name of the plan below the store's artefacts."""
    made_at_ms: int
    due_at_ms: int
    """Not executed before."""
    objects: int
    bytes: int
    status: PlanStatus = "open"
    decided_by: str = ""
    decided_why: str = ""
    decided_at_ms: int | None = None
    reconciliation_id: str | None = None
    """The reconciliation that it follows from; each has one plan at most. None for plans of earlier versions."""
    policy: str | None = None
    """The store's when the plan was made: only a plan that was made under ``automatic`` needs nobody's approval."""


class DeletionExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a deletion plan."""

    store: str
    plan_hash: str
    execution_id: str
    started_at_ms: int
    finished_at_ms: int | None = None
    audit: str | None = None
    """Name of the audit record below the store's artefacts, once there is one."""
    counts: dict[str, int] = {}


class DeletionPlans(Subject):
    """The deletion plans of claim-check stores."""

    def record(self, plan: DeletionPlanRecord) -> None:
        """Keep *plan*, unless it or another one of the same reconciliation is known: then that stays, with its decision."""
        with self._database.writing() as connection:
            insert_new(connection, tables.deletion_plan, [row_of(plan)])

    def all(self, store: str) -> list[DeletionPlanRecord]:
        """The deletion plans of *store*, oldest first."""
        columns = tables.deletion_plan.c
        wanted = select(tables.deletion_plan).where(columns.store == store)
        return self._records(DeletionPlanRecord, wanted.order_by(columns.made_at_ms, columns.plan_hash))

    def get(self, store: str, plan_hash: str) -> DeletionPlanRecord:
        """The plan *plan_hash* of *store*. Raises ConfigError where there is none."""
        columns = tables.deletion_plan.c
        wanted = select(tables.deletion_plan).where(columns.store == store, columns.plan_hash == plan_hash)
        for plan in self._records(DeletionPlanRecord, wanted):
            return plan
        raise ConfigError(f"store {store} has no deletion plan {plan_hash}; list its plans, and give one of them")

    def decide(
        self, store: str, plan_hash: str, decision: Literal["approved", "rejected"], *, by: str, why: str
    ) -> DeletionPlanRecord:
        """Note what *by* decided and *why*; the plan as it is now.

        The first decision stays, except that an approved plan may still be rejected; a plan that was executed stays so. Raises
        ConfigError where there is no such plan.
        """
        undecided = ["open"] if decision == "approved" else ["open", "approved"]
        now_ms = int(time.time() * 1000)
        self._update(store, plan_hash, undecided, status=decision, decided_by=by, decided_why=why, decided_at_ms=now_ms)
        return self.get(store, plan_hash)

    def finish(self, store: str, plan_hash: str) -> None:
        """Note that nothing of the plan is left to do. A rejected plan stays so."""
        self._update(store, plan_hash, ["open", "approved", "executed"], status="executed")

    def _update(self, store: str, plan_hash: str, statuses: Sequence[str], **values: object) -> None:
        """Set *values* of the plan if it has one of *statuses*."""
        table = tables.deletion_plan
        conditions = table.c.store == store, table.c.plan_hash == plan_hash, table.c.status.in_(statuses)
        with self._database.writing() as connection:
            connection.execute(update(table).where(*conditions).values(**values))

    def record_execution(self, execution: DeletionExecution) -> None:
        """Keep what is known of *execution* now."""
        self._replace(tables.deletion_execution, [execution])

    def executions(self, store: str, plan_hash: str | None = None) -> list[DeletionExecution]:
        """The executions of the plan *plan_hash*, without it of all plans of *store*, oldest first."""
        columns = tables.deletion_execution.c
        wanted = select(tables.deletion_execution).where(columns.store == store)
        if plan_hash is not None:
            wanted = wanted.where(columns.plan_hash == plan_hash)
        return self._records(DeletionExecution, wanted.order_by(columns.started_at_ms, columns.execution_id))
