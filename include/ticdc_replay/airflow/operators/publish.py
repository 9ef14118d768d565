"""The end of a run."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.form import run_options
from ticdc_replay.airflow.naming import CHECK
from ticdc_replay.airflow.operators.base import ReplayOperator


class PublishOperator(ReplayOperator):
    """Records the coverage, keeps the run's report and tells it in the log."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.publish import publish

        run_hash = context["ti"].xcom_pull(task_ids=CHECK)["run_hash"]
        with self.replay_context() as replay:
            report = publish(replay, run_hash, run_options(context).targets)
        events = report.events
        summary = {
            "window": str(report.window),
            "messages": report.messages.consumed,
            "events": events.rows,
            "duplicates": events.duplicates,
            "claim_checks": events.claim_checks_resolved,
            "quarantined": sum(report.quarantine_reasons.values()),
            "applied": {target.target: target.applied for target in report.targets},
        }
        for name, value in summary.items():
            self.log.info("%s: %s", name.replace("_", " "), value)
        return summary
