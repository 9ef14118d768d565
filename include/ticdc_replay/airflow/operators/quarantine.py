"""The tasks of a pipeline's quarantine DAG, beside its Spark jobs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.form import quarantine_options, quarantine_selection
from ticdc_replay.airflow.naming import CHECK, SELECT
from ticdc_replay.airflow.operators.base import EmitsLineage, ReplayOperator, logged
from ticdc_replay.airflow.xcom import Checked, Pinned, encode, pull
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.stages.quarantine.entries import RunQuarantine, Selection


class SelectOperator(ReplayOperator):
    """Lists what is in quarantine, accepts it as lost, or pins it for a re-drive and writes the job spec of its decode."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.quarantine.entries import Selection, list_quarantine

        options, selection = quarantine_options(context), quarantine_selection(context)
        if options.action == "accept" and selection == Selection():
            raise ConfigError(
                "this would accept the loss of everything in quarantine: choose a run, a window or entries"
            )
        with self.opened() as replay:
            if options.action == "redrive":
                return self._pin(replay, selection)
            if options.action == "accept":
                return self._accept(replay, selection, options.person, options.why)
            found = list_quarantine(replay, selection)
            for run in found:
                self._log_entries(run)
        return {"entries": sum(len(run.entries) for run in found)}

    def _log_entries(self, run: "RunQuarantine") -> None:
        from ticdc_replay.stages.quarantine.entries import grouped

        self.log.info("%s, run %s, in targets: %s", run.window, run.run_hash, ", ".join(run.targets) or "none")
        for group in grouped(run):
            self.log.info(
                "%s, table %s: %d %s, such as %s",
                group.reason,
                group.table or "unknown",
                group.entries,
                group.status,
                group.example,
            )

    def _accept(self, replay: "ReplayContext", selection: "Selection", person: str, why: str) -> dict[str, Any]:
        from ticdc_replay.stages.quarantine.entries import accept

        accepted = {str(record.window): len(record.entries) for record in accept(replay, selection, person, why)}
        self.log.info("%s accepted as lost: %s (%s)", person, accepted, why)
        return {"accepted": accepted}

    def _pin(self, replay: "ReplayContext", selection: "Selection") -> dict[str, Any]:
        from ticdc_replay.stages.quarantine.redrive import open_runs, pin_redrive
        from ticdc_replay.stages.window.jobs import write_decode_job

        runs = open_runs(replay, selection)
        for run in runs:
            self._log_entries(run)
        if len(runs) != 1:
            windows = "".join(f"\n{run.window}, run {run.run_hash}" for run in runs)
            raise ConfigError(
                f"a run of this DAG re-drives one window, and this selection has open entries of {len(runs)}: name one by Run, "
                f"or by From and To{windows}"
                if runs
                else "nothing of this selection is open; action list shows what is there"
            )
        pinned = pin_redrive(replay, runs[0])
        made = Pinned(str(runs[0].window), pinned.uri, write_decode_job(replay, pinned))
        return {"entries": len(runs[0].entries), **encode(made)}


class CheckRedriveOperator(ReplayOperator):
    """Records what the re-drive brought, and writes the job specs of the loads."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.quarantine.redrive import check_redrive, write_redrive_loads

        run_hash = pull(context, SELECT, Pinned).decode.run_hash
        with self.opened() as replay:
            result = check_redrive(replay, run_hash)
            self.log.info("%s", result.summary)
            loads = write_redrive_loads(replay, run_hash, quarantine_options(context).targets)
        return encode(
            Checked(
                summary=result.summary,
                run_hash=run_hash,
                loads={load.target: WrittenJob(load.redrive_job, run_hash) for load in loads},
                window_loads={
                    load.target: WrittenJob(load.window_job, result.window_run) for load in loads if load.window_job
                },
            )
        )


class PublishRedriveOperator(EmitsLineage, ReplayOperator):
    """Records what the window's coverage is now, keeps the re-drive's report, and gives lineage."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.stages.load import lineage
        from ticdc_replay.stages.quarantine.redrive import publish_redrive

        checked = pull(context, CHECK, Checked)
        targets = sorted(checked.loads)
        with self.opened() as replay:
            report = publish_redrive(replay, checked.run_hash, targets)
            self.lineage = lineage.published(replay, checked.run_hash, targets)
        summary: dict[str, Any] = {
            "window": str(report.window),
            "messages": report.messages.consumed,
            "left": report.left,
            "open": report.open,
            "applied": {target.target: target.applied for target in report.targets},
        }
        return logged(self.log, summary)
