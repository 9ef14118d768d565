"""Which modules a job needs, by name: for workers that import them before their first task."""

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.jobspec import (
    DecodeJob,
    JobSpec,
    LoadJob,
    MaintainJob,
    MirrorJob,
    ReconcileJob,
    ScanJob,
    SeedJob,
    VerifyJob,
    first_of,
    kind_of,
)

_OF_TASKS: dict[type, str] = {
    DecodeJob: "ticdc_replay.decode.read.split",
    LoadJob: "ticdc_replay.targets.last_versions",
    ScanJob: "ticdc_replay.reconcile.look.scan",
    ReconcileJob: "ticdc_replay.reconcile.judge.judgement",
    MaintainJob: "ticdc_replay.targets.lake.tombstones",
    MirrorJob: "ticdc_replay.targets.lake.mirror",
    SeedJob: "ticdc_replay.dumps.table_rows",
    VerifyJob: "ticdc_replay.targets.lake.stage",
}


def module_of_tasks(job: JobSpec) -> str:
    """The module that brings most of what tasks of *job* need."""
    return _OF_TASKS[type(first_of(job))]


def modules_of(job: JobSpec) -> list[str]:
    """What a driver of *job* and its tasks need."""
    first = first_of(job)
    target = [read_section(first.target).loader.partition(":")[0]] if isinstance(first, LoadJob) else []
    return [f"ticdc_replay.drivers.{kind_of(job)}", module_of_tasks(job), *target]
