"""The Spark job that compares the lake tables of one target with the upstream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.form import verify_options
from ticdc_replay.airflow.operators.step import Finished, SparkStep
from ticdc_replay.jobspec import WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext


@dataclass(frozen=True)
class VerifyTarget(SparkStep["ReplayContext"]):
    """Compares the mirrors of one target with the upstream. Raises PolicyStopError with what differs; the report is kept."""

    target: str

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        from ticdc_replay import jobspec
        from ticdc_replay.stages.upkeep.verify import verify_job
        from ticdc_replay.verify.compare import Pace

        options, run = verify_options(context), context["dag_run"]
        asked_at = run.start_date or run.run_after  # of all attempts alike: each finds the job of the first
        job = verify_job(
            engine,
            self.target,
            options.tables,
            at=options.at,
            pace=Pace(options.share),
            asked_at_ms=int(asked_at.timestamp() * 1000),
        )
        return WrittenJob(jobspec.put(engine.artifacts, job), job.comparison_id)

    def finish(self, engine: "ReplayContext", job: WrittenJob) -> Finished:
        from ticdc_replay import jobspec
        from ticdc_replay.drivers.verify import result_of
        from ticdc_replay.stages.upkeep.verification import require_equal
        from ticdc_replay.stages.upkeep.verify import explained

        spec = jobspec.read(engine.artifacts, job.uri)
        assert isinstance(spec, jobspec.VerifyJob), job.uri
        report = explained(engine, spec, result_of(engine.artifacts, spec))
        require_equal(report, engine.artifacts.uri(report.name))
        return Finished({str(table.table): table.findings.source_rows for table in report.tables})
