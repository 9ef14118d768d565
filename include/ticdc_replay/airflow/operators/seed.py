"""The tasks of a base load, beside its Spark jobs."""

from collections.abc import Mapping
from typing import Any

from ticdc_replay.airflow.form import seed_request
from ticdc_replay.airflow.naming import SNAPSHOT
from ticdc_replay.airflow.operators.base import ReplayOperator, logged
from ticdc_replay.airflow.xcom import Checked, Pinned, encode, pull


class PinDumpOperator(ReplayOperator):
    """Fixes the files of the dump in a manifest, checks that changes can continue it, and writes the job spec that reads it."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.domain import tso
        from ticdc_replay.stages.seed.continuation import require_continuation
        from ticdc_replay.stages.seed.jobs import seed_targets, write_seed_job
        from ticdc_replay.stages.seed.pin import pin_dump

        request, tables = seed_request(context), tuple(context["params"]["tables"])
        with self.opened() as replay:
            seed_targets(replay, context["params"]["targets"])
            pinned = pin_dump(replay, request, tables)
            snapshot_ts = pinned.manifest.window.from_ts
            require_continuation(replay, snapshot_ts)
            assert pinned.manifest.base is not None, "a dump was pinned"
            summary: dict[str, Any] = {
                "dump": request.uri,
                "taken_at": tso.describe(snapshot_ts),
                "files": pinned.manifest.base.files.count,
            }
            logged(self.log, summary)
            job = write_seed_job(replay, pinned, request, tables)
        return {**summary, **encode(Pinned(str(pinned.manifest.window), pinned.uri, job))}


class CheckBaseOperator(ReplayOperator):
    """Records the base's changelog and definitions, and writes the job specs of the loads."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.seed.jobs import check_base
        from ticdc_replay.stages.window.jobs import write_load_job

        answers = context["params"]
        tables = tuple(answers["tables"])
        run_hash = pull(context, SNAPSHOT, Pinned).decode.run_hash
        with self.opened() as replay:
            result = check_base(replay, run_hash, tables)
            self.log.info("%s", result.summary)
            loads = {target: write_load_job(replay, run_hash, target, tables) for target in answers["targets"]}
        return encode(Checked(summary=result.summary, run_hash=run_hash, loads=loads))
