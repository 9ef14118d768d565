"""The gate between decode and load."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.form import run_options
from ticdc_replay.airflow.naming import SNAPSHOT
from ticdc_replay.airflow.operators.base import ReplayOperator, open_replay


class CheckOperator(ReplayOperator):
    """Holds the decode's report against the pipeline's policies, and writes the job specs of the loads.

    Raises PolicyStopError with what was found and how to go on; no target was touched then.
    """

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.check import check
        from ticdc_replay.stages.jobs import write_load_job

        options = run_options(context)
        run_hash = context["ti"].xcom_pull(task_ids=SNAPSHOT)["run_hash"]
        with open_replay(self.pipeline_file) as replay:
            result = check(replay, run_hash, options.tables)
            self.log.info("%s", result.summary)
            jobs = {
                target: write_load_job(replay, run_hash, target, options.tables, reload=options.reload).uri
                for target in options.targets
            }
        return {"summary": result.summary, "run_hash": run_hash, "load_jobs": jobs}
