"""The beginning of a load: whether it may still begin, and a note that its target is about to change."""

from ticdc_replay import jobspec
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.named import require_set_aside
from ticdc_replay.state.coverage import BegunLoad

_POLICIES = ("target_value", "ddl", "truncate", "drop", "drop_column")
"""Those that a job spec has."""


def begin_load(context: ReplayContext, uri: str) -> None:
    """Note that the load of the job spec at *uri* begins. Called before each attempt, whoever runs it.

    A mirror and a re-drive need no note: their loads take nothing away. Raises ArtifactNotFoundError if the spec or the
    changelog is gone, ConfigError if the pipeline no longer has the target, or has it in another place or with other settings
    or policies than when the spec was written, and what ``require_set_aside`` raises.
    """
    job = jobspec.read(context.artifacts, uri)
    if not isinstance(job, jobspec.LoadJob):
        raise ConfigError(f"{uri} is not the job spec of a load")
    name = str(job.target["name"])
    section = next((target for target in context.pipeline.targets if target.name == name), None)
    if section is None:
        raise ConfigError(f"pipeline {job.pipeline} no longer has a target {name!r}")
    written_for = read_section(job.target)
    place = written_for.place
    if section.place != place:
        raise ConfigError(
            f"this load of target {name} was prepared for another place ({place}) than the target has in the pipeline file now "
            f"({section.place}): start the run again; in Airflow clear it from check on"
        )
    policies = context.pipeline.policies
    changed = [f"policies.{each}" for each in _POLICIES if getattr(job, each) != getattr(policies, each)]
    if written_for != section:
        changed.append(f"target {name}")
    if changed:
        raise ConfigError(
            f"this load of target {name} was prepared before the pipeline file was changed ({', '.join(changed)}), and would go "
            "by what the file said then: start the run again; in Airflow clear it from check on"
        )
    index = read_index(context.artifacts, job.run_hash)
    require_set_aside(context, index, job.tables)  # the spec may be older than the line in the pipeline file
    if section.is_mirror or index.redrives is not None:
        return
    context.state.coverage.record_begun(
        BegunLoad(
            pipeline=job.pipeline,
            target=name,
            place=place,
            window=job.window,
            run_hash=job.run_hash,
            selection=job.tables,
            generation=job.generation,
        )
    )
