"""The tasks of a store's reconciliation, beside its Spark jobs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from ticdc_replay.airflow.naming import RECONCILE, REPORT, SURVEY
from ticdc_replay.airflow.operators.base import EmitsLineage, StoreOperator, logged
from ticdc_replay.airflow.store_form import plans_deletion
from ticdc_replay.airflow.xcom import Inventoried, Reconciled, Reported, Surveyed, encode, pull
from ticdc_replay.domain.errors import PermanentError

if TYPE_CHECKING:
    from ticdc_replay.reconcile.judge.report import Alert

_NAMED = 10
"""How many alerts a failing task names; the report has them all."""


class SurveyOperator(StoreOperator):
    """Reads what Kafka retains of every changefeed of the store, and writes the job spec that scans what nobody has searched."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.reconcile import survey

        with self.opened() as store:
            surveyed = survey(store)
        self.log.info("Survey %s", surveyed.name)
        return encode(Surveyed(surveyed.name, surveyed.scan_job))


class ListObjectsOperator(StoreOperator):
    """Takes the inventory of the store: by listing it, or from S3's own reports."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.reconcile import take_inventory

        survey = pull(context, SURVEY, Surveyed).survey
        with self.opened() as store:
            inventory = take_inventory(store, survey)
        self.log.info("Inventory %s", inventory)
        return encode(Inventoried(inventory))


class ReportOperator(EmitsLineage, StoreOperator):
    """Writes the report of the reconciliation, logs its counts, and emits lineage with the data's quality."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.lineage import reconciled
        from ticdc_replay.store_stages.reconcile_report import publish_reconciliation

        reconciliation = pull(context, RECONCILE, Reconciled).reconciliation
        survey = pull(context, SURVEY, Surveyed).survey
        with self.opened() as store:
            report = publish_reconciliation(store, reconciliation)
            self.lineage = reconciled(store, report, survey)
        totals = logged(self.log, report.totals())
        for found in (*report.obstacles, *report.notes):
            self.log.warning("%s", found)
        return encode(
            Reported(
                reconciliation=reconciliation,
                totals=totals,
                alerts=len(report.alerts),
                first_alerts=tuple(_lines(alert) for alert in report.alerts[:_NAMED]),
            )
        )


class AlertOperator(StoreOperator):
    """Fails where the report has alerts, with the first of them."""

    def execute(self, context: Mapping[str, Any]) -> None:
        reported = pull(context, REPORT, Reported)
        if reported.alerts == 0:
            self.log.info("Nothing to alert anybody for")
            return
        lines = list(reported.first_alerts)
        for line in "\n".join(lines).splitlines():
            self.log.error("%s", line)
        if more := reported.alerts - len(lines):
            lines.append(f"and {more} more, in the report")
        raise PermanentError("\n".join([f"reconciliation {reported.reconciliation}:", *lines]))


class PlanDeletionOperator(StoreOperator):
    """Puts what may be deleted on a plan. Skipped where the form does not ask for it."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.deletion import make_plan

        if not plans_deletion(context):
            raise AirflowSkipException("This run is not to plan a deletion")
        with self.opened() as store:
            plan = make_plan(store, pull(context, REPORT, Reported).reconciliation)
        if plan is None:
            raise AirflowSkipException("Nothing may be deleted")
        summary = {"plan": plan.plan_hash, "objects": plan.objects, "bytes": plan.bytes, "due_at_ms": plan.due_at_ms}
        return logged(self.log, summary)


def _lines(alert: "Alert") -> str:
    """The alert in lines of its own."""
    places = [f"    still available from {place}" for place in alert.still_from]
    return "\n".join([f"{alert.kind}: {alert.text}", *places])
