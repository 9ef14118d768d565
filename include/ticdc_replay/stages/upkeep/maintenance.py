"""The job that maintains the lake tables of one target, and its report."""

import time

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import MaintainJob, WrittenJob
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.upkeep import MaintenanceReport


def lake_targets(pipeline: Pipeline) -> list[LakeSection]:
    """The targets of *pipeline* that have lake tables."""
    return [target for target in pipeline.targets if isinstance(target, LakeSection)]


def write_maintain_job(
    context: ReplayContext,
    target_name: str,
    tables: tuple[str, ...] = (),
    *,
    dry_run: bool = False,
    asked_at_ms: int | None = None,
) -> WrittenJob:
    """The spec that maintains the target called *target_name*: all its tables, or those of the patterns *tables*.

    *asked_at_ms*, by default now, makes it another job than any before; attempts at one job have the same.

    Raises ConfigError if it has no lake tables.
    """
    known = {target.name: target for target in lake_targets(context.pipeline)}
    if target_name not in known:
        raise ConfigError(
            f"{target_name} is not a target with lake tables; those of pipeline {context.pipeline.name}: "
            f"{', '.join(known) or 'none'}"
        )
    job = MaintainJob(
        library_version=__version__,
        pipeline=context.pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=context.pipeline.connections.artifacts,
        target=known[target_name].model_dump(mode="json", by_alias=True),
        tables=tables or ("*.*",),
        dry_run=dry_run,
        asked_at_ms=time.time_ns() // 1_000_000 if asked_at_ms is None else asked_at_ms,
    )
    return WrittenJob(jobspec.put(context.artifacts, job), job.maintenance_id)


def maintenance_of(context: ReplayContext, target_name: str, maintenance_id: str) -> MaintenanceReport:
    """The report of a job that was done. Raises ArtifactNotFoundError."""
    name = f"maintenance/{target_name}/{maintenance_id}.json"
    return msgspec.json.decode(context.artifacts.get(name), type=MaintenanceReport)
