"""Loads one changelog into one target, whatever engine runs the work."""

from pkgutil import resolve_name
from uuid import uuid4

from ticdc_replay.changelog.files import index as changelog_index
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.targets.base import AnyTarget, Execute, Load, LoadReport, StoreAddress
from ticdc_replay.targets.ddl import stopping_policies
from ticdc_replay.targets.shaped_load import shaped
from ticdc_replay.targets.sql import Sql


def load(
    job: LoadJob, connections: Connections, execute: Execute, parallelism: int = 1, sql: Sql | None = None
) -> LoadReport:
    """Load the changelog of *job* into its target; *execute* runs tasks, *parallelism* at a time; *sql* is
    Spark's, for targets that need it. Safe to repeat.

    Raises what ``base.Target.load`` raises, ArtifactNotFoundError without a complete changelog, ConfigError for an
    unknown target section.
    """
    target = open_target(read_section(job.target), connections)
    artifacts = StoreAddress(job.artifacts, connections.get(job.artifacts_connection))
    index = changelog_index.decode(artifacts.open().get(job.index))
    if index.run_hash != job.run_hash or index.window != job.window:
        raise ArtifactCorruptError(
            f"{artifacts.uri}/{job.index} is the changelog of run {index.run_hash} and window {index.window}; "
            f"the job asks for run {job.run_hash} and window {job.window}"
        )
    wanted, in_full = TablePatterns(job.tables), {pattern.lower() for pattern in job.tables}
    tables = tuple(name for name in index.table_names() if wanted.wants(name.schema, name.table))
    plan = Load(
        index=index,
        selection=job.tables,
        tables=tables,
        named=frozenset(table for table in tables if str(table).lower() in in_full),
        artifacts=artifacts,
        target=target.config.name,
        attempt=uuid4().hex[:16],
        quarantine_values=job.target_value == "quarantine",
        stopping=stopping_policies(job.ddl, job.truncate, job.drop, job.drop_column),
        drop_column=job.drop_column,
        reload=job.reload,
        generation=job.generation,
        sources=job.sources,
        former_names=job.former_names,
        parallelism=parallelism,
        sql=sql,
    )
    with shaped(plan, target, execute) as shaped_plan:
        loaded = target.load(shaped_plan, execute)
    return LoadReport(
        pipeline=job.pipeline,
        run_hash=job.run_hash,
        input_hash=index.input_hash,
        window=job.window,
        target=plan.target,
        type=target.config.type,
        place=target.config.place,
        attempt=plan.attempt,
        selection=job.tables,
        tables=loaded.tables,
        quarantine_files=loaded.quarantine_files,
        other_runs=loaded.other_runs,
        generation=plan.generation,
    )


def open_target(section: TargetSection, connections: Connections) -> AnyTarget:
    """The target that *section* describes. Nothing is connected by opening."""
    target: AnyTarget = resolve_name(section.loader)(section, connections)
    return target
