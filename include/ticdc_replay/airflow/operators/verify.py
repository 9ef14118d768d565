"""The comparison of the mirrors of one target with the upstream."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.form import verify_options
from ticdc_replay.airflow.operators.base import ReplayOperator


class VerifyOperator(ReplayOperator):
    """Compares the mirrors of *target* with the upstream. Returns counts by table.

    Raises PolicyStopError with what differs; the report is kept. A later attempt goes on where one broke.
    """

    def __init__(self, *, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.upkeep.verification import require_equal
        from ticdc_replay.stages.upkeep.verify import verify
        from ticdc_replay.verify.compare import Pace

        options = verify_options(context)
        with self.opened() as replay:
            report = verify(
                replay,
                self.target,
                options.tables,
                at=options.at,
                pace=Pace(options.share),
                tell=lambda line: self.log.info("%s", line),
            )
            self.log.info("report: %s", replay.artifacts.uri(report.name))
            if report.without_mirror:
                self.log.warning("not compared, without a mirror: %s", ", ".join(map(str, report.without_mirror)))
            require_equal(report, replay.artifacts.uri(report.name))
        return {str(table.table): table.findings.source_rows for table in report.tables}
