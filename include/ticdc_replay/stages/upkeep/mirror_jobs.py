"""Mirrors whose tables only Spark can read and write, and jobs that change them outside of loads."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.jobspec import MirrorJob, MirrorTask
from ticdc_replay.stages.context import ReplayContext

Submit = Callable[[str], None]
"""Runs the job whose spec has a URI, and waits for it."""

T = TypeVar("T")


def no_jobs(uri: str) -> NoReturn:
    """As ``Submit``, of a caller that runs no jobs. Raises ConfigError."""
    raise ConfigError(
        f"the job {uri} changes a mirror in a lake, and needs Spark: run the command `ticdc-replay mirror`"
    )


def needs_job(section: TargetSection) -> bool:
    """Whether only a job in Spark can read and write the tables of the target of *section*."""
    return bool(section.spark_properties)


def run_as_job(
    context: ReplayContext, section: TargetSection, table: TableName, task: MirrorTask, result: type[T], submit: Submit
) -> T:
    """Have *submit* run *task* for the mirror of *table* in the target of *section*; what it gave, of the type *result*.

    Raises what *submit* raises: the errors of the task.
    """
    job = MirrorJob(
        library_version=__version__,
        pipeline=context.pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=context.pipeline.connections.artifacts,
        target=section.model_dump(mode="json", by_alias=True),
        table=table,
        task=task,
    )
    submit(jobspec.put(context.artifacts, job))
    return msgspec.json.decode(context.artifacts.get(job.report), type=result)
