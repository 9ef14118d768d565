"""Reconciliations of claim-check stores, plans to delete, and their executions."""

import time
from typing import Any, Literal

import msgspec
from sqlalchemy import Row, select, update

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.state import tables
from ticdc_replay.state.records import DeletionExecution, DeletionPlanRecord, Reconciliation
from ticdc_replay.state.rows import Rows


class Reconciliations(Rows):
    """The part of the state store that belongs to claim-check stores. ``store`` is the store's name."""

    def record_reconciliation(self, done: Reconciliation) -> None:
        """Keep what a reconciliation came to."""
        self._replace(tables.reconciliation, [msgspec.structs.asdict(done)])

    def reconciliations(self, store: str) -> list[Reconciliation]:
        """The reconciliations of *store*, oldest first."""
        columns = tables.reconciliation.c
        wanted = select(tables.reconciliation).where(columns.store == store)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.began_at_ms, columns.reconciliation_id)).all()
        return [Reconciliation(**row._mapping) for row in rows]

    def record_deletion_plan(self, plan: DeletionPlanRecord) -> None:
        """Keep *plan*, unless it or another one of the same reconciliation is known: then that stays, and what was said to it."""
        with self._database.writing() as connection:
            self._insert_new(connection, tables.deletion_plan, [msgspec.structs.asdict(plan)])

    def deletion_plans(self, store: str) -> list[DeletionPlanRecord]:
        """The deletion plans of *store*, oldest first."""
        columns = tables.deletion_plan.c
        wanted = select(tables.deletion_plan).where(columns.store == store)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.made_at_ms, columns.plan_hash)).all()
        return [_plan(row) for row in rows]

    def deletion_plan(self, store: str, plan_hash: str) -> DeletionPlanRecord:
        """The plan *plan_hash* of *store*. Raises ConfigError where there is none."""
        columns = tables.deletion_plan.c
        wanted = select(tables.deletion_plan).where(columns.store == store, columns.plan_hash == plan_hash)
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        if row is None:
            raise ConfigError(f"store {store} has no deletion plan {plan_hash}; list its plans, and give one of them")
        return _plan(row)

    def decide_deletion_plan(
        self, store: str, plan_hash: str, decision: Literal["approved", "rejected"], *, by: str, why: str
    ) -> DeletionPlanRecord:
        """Note what *by* decided and *why*; the plan as it is now.

        The first decision stays, except that an approved plan may still be rejected; a plan that was executed stays so. Raises
        ConfigError where there is no such plan.
        """
        table = tables.deletion_plan
        undecided = ("open",) if decision == "approved" else ("open", "approved")
        with self._database.writing() as connection:
            connection.execute(
                update(table)
                .where(table.c.store == store, table.c.plan_hash == plan_hash, table.c.status.in_(undecided))
                .values(status=decision, decided_by=by, decided_why=why, decided_at_ms=int(time.time() * 1000))
            )
        return self.deletion_plan(store, plan_hash)

    def finish_deletion_plan(self, store: str, plan_hash: str) -> None:
        """Note that nothing of the plan is left to do. A rejected plan stays so."""
        table = tables.deletion_plan
        with self._database.writing() as connection:
            connection.execute(
                update(table)
                .where(table.c.store == store, table.c.plan_hash == plan_hash, table.c.status != "rejected")
                .values(status="executed")
            )

    def record_deletion_execution(self, execution: DeletionExecution) -> None:
        """Keep what is known of *execution* now."""
        self._replace(tables.deletion_execution, [msgspec.structs.asdict(execution)])

    def deletion_executions(self, store: str, plan_hash: str | None = None) -> list[DeletionExecution]:
        """The executions of the plan *plan_hash*, without it of all plans of *store*, oldest first."""
        columns = tables.deletion_execution.c
        wanted = select(tables.deletion_execution).where(columns.store == store)
        if plan_hash is not None:
            wanted = wanted.where(columns.plan_hash == plan_hash)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.started_at_ms, columns.execution_id)).all()
        return [DeletionExecution(**row._mapping) for row in rows]


def _plan(row: Row[Any]) -> DeletionPlanRecord:
    return DeletionPlanRecord(**row._mapping)
