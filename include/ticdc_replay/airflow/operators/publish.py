"""The end of a run."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.naming import CHECK
from ticdc_replay.airflow.operators.base import EmitsLineage, ReplayOperator, logged
from ticdc_replay.airflow.xcom import Checked, pull


class PublishOperator(EmitsLineage, ReplayOperator):
    """Records the coverage, keeps and logs the run's report, and emits lineage from Kafka to the targets."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.load import lineage
        from ticdc_replay.stages.load.publish import publish

        checked = pull(context, CHECK, Checked)
        run_hash = checked.run_hash
        with self.opened() as replay:
            # In the order of the pipeline file, which an XCom does not keep.
            targets = [target.name for target in replay.pipeline.targets if target.name in checked.loads]
            report = publish(replay, run_hash, targets)
            self.lineage = lineage.published(replay, run_hash, targets)
        events = report.events
        summary: dict[str, Any] = {
            "window": str(report.window),
            "grade": report.grade,
            "coverage": {target.target: target.quality for target in report.targets},
            "messages": report.messages.consumed,
            "events": events.rows,
            "duplicates": events.duplicates,
            "claim_checks": events.claim_checks_resolved,
            "quarantined": sum(report.quarantine_reasons.values()),
            "applied": {target.target: target.applied for target in report.targets},
        }
        return logged(self.log, summary)
