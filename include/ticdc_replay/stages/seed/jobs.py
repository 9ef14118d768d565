"""The job that makes the changelog of a dump, and what is kept once it has."""

from collections.abc import Sequence

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.dumps.survey import Dump
from ticdc_replay.jobspec import SeedJob, WrittenJob
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import CheckResult, check
from ticdc_replay.stages.seed.pin import SeedRequest, definitions_of
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.stages.window.base_definitions import keep_definitions


def seed_targets(context: ReplayContext, wanted: list[str] | None = None) -> list[str]:
    """The targets that a base is loaded into: the pipeline's mirrors, or those that are *wanted*. Raises ConfigError for one
    that can't have a base."""
    known = {target.name: target for target in context.pipeline.targets}
    for name in wanted or ():
        if name not in known:
            raise ConfigError(f"--target: {name} is not in the pipeline; its targets: {', '.join(known)}")
        if not known[name].takes_base:
            raise ConfigError(
                f"--target: {name} ({known[name].description}) keeps all versions by window: one that holds the dump's TSO would "
                "replace the base, or be replaced by it. Its history begins with the first window"
            )
    names = list(dict.fromkeys(wanted)) if wanted else [name for name, target in known.items() if target.is_mirror]
    if not names:
        raise ConfigError(f"pipeline {context.pipeline.name} has no mirror to seed")
    return names


def write_seed_job(
    context: ReplayContext, pinned: PinnedManifest, request: SeedRequest, tables: tuple[str, ...] | None = None
) -> WrittenJob:
    """The spec that makes the changelog of the *pinned* dump; ConfigError for *tables* outside the pipeline's patterns."""
    pipeline = context.pipeline
    job = SeedJob(
        library_version=__version__,
        pipeline=pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=pipeline.connections.artifacts,
        dump=request.uri,
        dump_connection=None if request.uri.startswith("file:") else pipeline.connections.dumps,
        manifest=pinned.name,
        input_hash=pinned.manifest.input_hash,
        window=pinned.manifest.window,
        dialect=request.dialect,
        zone=request.zone,
        dispatch=context.changefeed.dispatch,
        tables=selected_tables(pipeline, tables),
        file_rows=pipeline.limits.file_rows,
    )
    return WrittenJob(jobspec.put(context.artifacts, job), job.run_hash)


def check_base(context: ReplayContext, run_hash: str, tables: Sequence[str] | None = None) -> CheckResult:
    """Record the changelog *run_hash* of a dump, and the definitions that its tables have from then on. Raises what ``check``
    raises, and ArtifactNotFoundError without the changelog or what it was made of."""
    result = check(context, run_hash, tables)
    index = read_index(context.artifacts, run_hash)
    manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
    assert manifest.base is not None, "the changelog of a dump"
    dump = msgspec.json.decode(context.artifacts.get(manifest.base.files.name), type=Dump)
    wanted = {version.schema.name for version in index.tables}
    keep_definitions(context, run_hash, (each for each in definitions_of(context, dump) if each.name in wanted))
    return result
