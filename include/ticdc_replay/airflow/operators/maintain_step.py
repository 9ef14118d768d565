"""The Spark job that maintains the lake tables of one target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.operators.step import Finished, SparkStep
from ticdc_replay.jobspec import WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext


@dataclass(frozen=True)
class MaintainTarget(SparkStep["ReplayContext"]):
    """Compacts the tables of one target, and removes what nothing needs."""

    target: str

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        from ticdc_replay.stages.upkeep.maintenance import write_maintain_job

        answers = context["params"]
        run = context["dag_run"]
        asked_at = run.start_date or run.run_after  # of all attempts alike: each finds the job of the first
        return write_maintain_job(
            engine,
            self.target,
            tuple(answers["tables"]),
            dry_run=answers["dry_run"],
            asked_at_ms=int(asked_at.timestamp() * 1000),
        )

    def finish(self, engine: "ReplayContext", job: WrittenJob) -> Finished:
        from ticdc_replay.stages.upkeep.maintenance import maintenance_of

        return Finished(dict(maintenance_of(engine, self.target, job.run_hash).counts))
