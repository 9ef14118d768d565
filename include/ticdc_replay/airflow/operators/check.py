"""The gate between decode and load."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.form import run_options
from ticdc_replay.airflow.naming import SNAPSHOT
from ticdc_replay.airflow.operators.base import ReplayOperator
from ticdc_replay.airflow.xcom import Checked, Pinned, encode, pull


class CheckOperator(ReplayOperator):
    """Compares the decode's report with the pipeline's policies, and writes the job specs of the loads.

    Raises PolicyStopError with what was found and how to go on; no target was touched then.
    """

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.load.check import check
        from ticdc_replay.stages.window.jobs import write_load_job

        options = run_options(context)
        run_hash = pull(context, SNAPSHOT, Pinned).decode.run_hash
        with self.opened() as replay:
            result = check(replay, run_hash, options.tables)
            self.log.info("%s", result.summary)
            loads = {
                target: write_load_job(replay, run_hash, target, options.tables, reload=options.reload)
                for target in options.targets
            }
        return encode(Checked(summary=result.summary, run_hash=run_hash, loads=loads))
