"""The Spark jobs of a pipeline: the decode of a window or of a quarantine, and the load of each target."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.form import quarantine_options, run_options
from ticdc_replay.airflow.naming import CHECK, SELECT, SNAPSHOT
from ticdc_replay.airflow.operators.step import Finished, SparkStep
from ticdc_replay.airflow.xcom import Checked, Pinned, pull
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import DecodeJob, JobSpec, WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext


@dataclass(frozen=True)
class Decode(SparkStep["ReplayContext"]):
    """Decodes the pinned range into a changelog, and holds a lease of the claim-check store meanwhile. Skipped in a dry run.

    Of windows that share a decode one task decodes, and the others wait.
    """

    one_at_a_time = False

    def skip(self, context: Mapping[str, Any]) -> str | None:
        return "Dry run: nothing is pinned, decoded or loaded" if run_options(context).dry_run else None

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        return pull(context, SNAPSHOT, Pinned).decode

    def held(
        self, engine: "ReplayContext", job: WrittenJob, spec: JobSpec, holder: str | None = None
    ) -> AbstractContextManager[object]:
        from ticdc_replay.stages.window.shared import decoding

        assert isinstance(spec, DecodeJob)
        return decoding(engine, spec.manifest, job.run_hash, job.shared, holder=holder)

    def finish(self, engine: "ReplayContext", job: WrittenJob) -> Finished:
        from ticdc_replay.changelog.files.reading import read_index
        from ticdc_replay.stages.load import lineage
        from ticdc_replay.stages.load.recording import record_decode

        index = read_index(engine.artifacts, job.run_hash)
        record_decode(engine, index)  # here already: what it set aside must be known before the lease ends
        events = index.report.events
        summary = {
            "messages": index.report.messages.consumed,
            "events": events.rows,
            "outside_window": events.outside_window,
            "duplicates": events.duplicates,
            "claim_checks": events.claim_checks_resolved,
            "quarantined": sum(index.report.quarantine_reasons.values()),
            "written": events.written,
            "tables": [str(name) for name in index.table_names()],
        }
        return Finished(summary, lineage.decoded(engine, job.run_hash))


@dataclass(frozen=True)
class DecodeAgain(Decode):
    """Decodes quarantined messages again. Skipped where the run is for something else."""

    def skip(self, context: Mapping[str, Any]) -> str | None:
        action = quarantine_options(context).action
        return None if action == "redrive" else f"The action of this run is {action}: nothing is decoded or loaded"

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        return pull(context, SELECT, Pinned).decode


@dataclass(frozen=True)
class LoadTarget(SparkStep["ReplayContext"]):
    """Loads the changelog into one target. Skipped where the run's form leaves the target out."""

    target: str

    def skip(self, context: Mapping[str, Any]) -> str | None:
        if self.target in run_options(context).targets:
            return None
        return f"Target {self.target} is not among the targets of this run"

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        job = self._checked(context)
        return _begun(engine, job, reload=run_options(context).reload)

    def finish(self, engine: "ReplayContext", job: WrittenJob) -> Finished:
        from ticdc_replay.stages.load import lineage
        from ticdc_replay.stages.load.asset_event import asset_event
        from ticdc_replay.stages.load.publish import load_of

        report = load_of(engine, job.run_hash, self.target)
        summary = {
            str(table.table): {
                "outcome": table.outcome,
                "upserted": table.upserted,
                "deleted": table.deleted,
                "tombstones": table.tombstones,
                "superseded": table.superseded,
                "quarantined": table.quarantined,
            }
            for table in report.tables
        }
        return Finished(summary, lineage.loaded(engine, report), asset_event(report))

    def _checked(self, context: Mapping[str, Any]) -> WrittenJob:
        """The load that the check has prepared. Raises ConfigError if there was no such target then."""
        job = pull(context, CHECK, Checked).loads.get(self.target)
        if job is None:
            raise ConfigError(f"target {self.target} is newer than the check of this run; clear the run from there on")
        return job


@dataclass(frozen=True)
class LoadAgain(LoadTarget):
    """Loads what came out of quarantine into one target. Skipped where the target has no part in it."""

    window: bool = False
    """Whether it is the window's own run, which is loaded first into a target that lacks it."""

    def skip(self, context: Mapping[str, Any]) -> str | None:
        action = quarantine_options(context).action
        if action != "redrive":
            return f"The action of this run is {action}: nothing is decoded or loaded"
        if self._job(context) is not None:
            return None
        return f"There is nothing of this kind to load into target {self.target}"

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        job = self._job(context)
        assert job is not None
        return _begun(engine, job, reload=False)

    def _job(self, context: Mapping[str, Any]) -> WrittenJob | None:
        checked = pull(context, CHECK, Checked)
        return (checked.window_loads if self.window else checked.loads).get(self.target)


@dataclass(frozen=True)
class ReadDump(SparkStep["ReplayContext"]):
    """Reads the pinned dump into a changelog."""

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        return pull(context, SNAPSHOT, Pinned).decode

    def finish(self, engine: "ReplayContext", job: WrittenJob) -> Finished:
        from ticdc_replay.changelog.files.reading import read_index
        from ticdc_replay.stages.load import lineage
        from ticdc_replay.stages.load.recording import record_decode

        index = read_index(engine.artifacts, job.run_hash)
        record_decode(engine, index)
        summary = {"rows": index.report.events.written, "tables": [str(name) for name in index.table_names()]}
        return Finished(summary, lineage.decoded(engine, job.run_hash))


@dataclass(frozen=True)
class LoadBase(LoadTarget):
    """Loads the changelog of a dump into one target. Skipped where the run's form leaves the target out."""

    def skip(self, context: Mapping[str, Any]) -> str | None:
        if self.target in context["params"]["targets"]:
            return None
        return f"Target {self.target} is not among the targets of this run"

    def find(self, engine: "ReplayContext", context: Mapping[str, Any]) -> WrittenJob:
        return _begun(engine, self._checked(context), reload=False)


def _begun(engine: "ReplayContext", job: WrittenJob, *, reload: bool) -> WrittenJob:
    """*job*, a load that begins now. Its spec may be much older: somebody clears the task after the window was pinned again."""
    from ticdc_replay.changelog.files.reading import read_index
    from ticdc_replay.stages.load.begin_load import begin_load
    from ticdc_replay.stages.window.jobs import require_current

    if not reload:
        require_current(engine, read_index(engine.artifacts, job.run_hash))
    begin_load(engine, job.uri)
    return job
