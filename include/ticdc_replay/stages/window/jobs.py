"""Writes the job specs that Spark jobs are given."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from ticdc_replay import __version__, jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.former_names import FormerNames
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob, Limits, LoadJob, Series, SharedDecode, SourceWindow, WrittenJob
from ticdc_replay.schemas.changes import TableChanges, changes_of
from ticdc_replay.schemas.ddl.reader import key_of
from ticdc_replay.schemas.former_names import former_names
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.named import named_places, require_set_aside
from ticdc_replay.stages.selection import selected_tables, undecoded
from ticdc_replay.stages.window.bases import find_bases
from ticdc_replay.stages.window.derive import is_of
from ticdc_replay.stages.window.schemas import all_schemas
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run
from ticdc_replay.targets.shaped_load import has_records

_CHANGES: WeakKeyDictionary[ReplayContext, tuple[frozenset[DdlEvent], list[TableChanges]]] = WeakKeyDictionary()
"""What the DDL that is known did: many jobs may be written one after the other, and it takes seconds for thousands of DDLs."""
_MAY_RENAME = re.compile(r"\b(?:RENAME|CHANGE|FLASHBACK)\b", re.IGNORECASE)


def decode_job(context: ReplayContext, pinned: PinnedManifest, tables: tuple[str, ...] | None = None) -> DecodeJob:
    """The job that decodes the pinned range; ConfigError for *tables* outside the pipeline's patterns."""
    pipeline = context.pipeline
    return DecodeJob(
        library_version=__version__,
        pipeline=pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=pipeline.connections.artifacts,
        kafka_connection=pipeline.connections.kafka,
        claim_check_connection=pipeline.connections.claim_check,
        schema_registry_connection=pipeline.connections.schema_registry,
        source_connection=pipeline.connections.source if pipeline.policies.handle_key_only == "reread" else None,
        accept_damaged=pipeline.policies.damaged == "accept",
        set_aside=_set_aside(context, pinned.manifest),
        filters_ddl=context.loaded.filters_ddl,
        manifest=pinned.name,
        input_hash=pinned.manifest.input_hash,
        changefeed=context.changefeed,
        tables=selected_tables(pipeline, tables),
        shared_tables=pipeline.tables if pinned.manifest.shared is not None else (),
        limits=Limits(**pipeline.limits.model_dump()),
        clock_skew_ms=pipeline.window.clock_skew_seconds * 1000,
    )


def _set_aside(context: ReplayContext, manifest: Manifest) -> tuple[EventPlace, ...]:
    """The places in ``set_aside`` that the input of *manifest* may hold; others do not change its run."""
    if manifest.derived or not context.pipeline.set_aside:
        return ()
    if manifest.redrive is not None:
        return named_places(context.pipeline)
    if manifest.shared is not None:
        manifest = manifests.decode(context.artifacts.get(manifest.shared.manifest))
    return named_places(context.pipeline, manifest.ranges())


def write_decode_job(
    context: ReplayContext, pinned: PinnedManifest, tables: tuple[str, ...] | None = None
) -> WrittenJob:
    """The spec of ``decode_job``. Raises what that raises. The run, and the decode that it shares, get their generation
    here: a run that is decoded later is newer."""
    job = decode_job(context, pinned, tables)
    if pinned.manifest.redrive is None:  # else it is a part of the run whose quarantine it decodes
        _give_generation(context, job, pinned.manifest.window)
    shared, decoded = pinned.manifest.shared, None
    if shared is not None:
        wide = job.decoding(shared)
        _give_generation(context, wide, shared.window)
        decoded = SharedDecode(shared.manifest, wide.run_hash)
    return WrittenJob(jobspec.put(context.artifacts, job), job.run_hash, decoded)


def write_load_job(
    context: ReplayContext,
    run_hash: str,
    target_name: str,
    tables: tuple[str, ...] | None = None,
    *,
    reload: bool = False,
) -> WrittenJob:
    """The spec that loads the changelog of *run_hash* into the target called *target_name*.

    Raises ConfigError for an unknown target, for tables that are not the pipeline's or were not decoded, and where a base and a
    window would replace each other,
    ArtifactNotFoundError if the changelog, or a source of it, is not complete, what ``require_set_aside`` raises, and
    without *reload* what ``require_current`` raises.
    """
    pipeline = context.pipeline
    target = next((target for target in pipeline.targets if target.name == target_name), None)
    if target is None:
        known = ", ".join(target.name for target in pipeline.targets)
        raise ConfigError(f"pipeline {pipeline.name} has no target {target_name!r}; its targets: {known}")
    index = read_index(context.artifacts, run_hash)
    selection = selected_tables(pipeline, tables)
    if lacking := undecoded(index, selection):
        raise ConfigError(
            f"run {run_hash} decoded tables {', '.join(index.selection)}, and this load is for {', '.join(lacking)}, too: their "
            "rows are not in its changelog. Start a new run of the window, which decodes them; in Airflow "
            "clear the run from snapshot on"
        )
    require_set_aside(context, index, selection)
    _refuse_to_replace(context, index, target)
    sources: tuple[SourceWindow, ...] = ()
    if not reload:
        sources = _sources(context, index)
        # After the sources: whoever pins one of these windows again from here on has a newer generation.
        require_current(context, index)
    job = LoadJob(
        library_version=__version__,
        pipeline=pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=pipeline.connections.artifacts,
        index=f"{changelog_root(run_hash)}/{INDEX}",
        run_hash=run_hash,
        window=index.window,
        target=target.model_dump(mode="json", by_alias=True),
        tables=selection,
        target_value=pipeline.policies.target_value,
        ddl=pipeline.policies.ddl,
        truncate=pipeline.policies.truncate,
        drop=pipeline.policies.drop,
        drop_column=pipeline.policies.drop_column,
        reload=reload,
        generation=_generation(context, index, reload=reload),
        sources=sources,
        former_names=_former_names(context, index) if target.shape or has_records(context.artifacts) else (),
    )
    return WrittenJob(jobspec.put(context.artifacts, job), run_hash)


def _refuse_to_replace(context: ReplayContext, index: ChangelogIndex, target: TargetSection) -> None:
    """Raise ConfigError if *target* has one run of each window, and *index* would replace a base, or as a base another run."""
    window, pipeline = index.window, context.pipeline.name
    if target.is_mirror or not target.takes_base or window.to_ts > window.from_ts + 1:
        return
    records = context.state.coverage.all(pipeline)
    held = {each.run_hash for each in records if (each.place, each.window) == (target.place, window)}
    bases = {base.run_hash for base in find_bases(context)} if held else set()
    if any((run in bases) is not index.is_base for run in held):
        raise ConfigError(
            f"target {target.name} has one run of each window, and {window} is both that of a base and one of Kafka: one would "
            "replace the other. Load a wider window into it in place of this one, or a base of another TSO"
        )


def _former_names(context: ReplayContext, index: ChangelogIndex) -> tuple[FormerNames, ...]:
    """Those of the tables of *index*, at the end of its window."""
    known = context.state.ddl.all(context.pipeline.name)
    if not any(_MAY_RENAME.search(each.event.query) for each in known):
        return ()
    own = {key_of(table) for table in index.table_names()}
    ddls = frozenset(each.event for each in known)  # several topics may have one
    if _CHANGES.get(context, (None,))[0] != ddls:
        _CHANGES[context] = ddls, changes_of(ddls, all_schemas(context))
    _, changes = _CHANGES[context]
    names = former_names(each for each in changes if each.commit_ts < index.window.to_ts)
    return tuple(each for each in names if key_of(each.table) in own)


def write_series(context: ReplayContext, jobs: Sequence[WrittenJob]) -> str:
    """The URI of a spec by which one driver runs *jobs*, of one kind, in their order; of one job its own."""
    if len(jobs) == 1:
        return jobs[0].uri
    specs = [jobspec.read(context.artifacts, job.uri) for job in jobs]
    members = tuple(each for each in specs if isinstance(each, DecodeJob | LoadJob))
    assert len(members) == len(specs), "a series is of decodes or of loads"
    return jobspec.put(context.artifacts, Series(jobs=members))


def require_current(context: ReplayContext, index: ChangelogIndex) -> None:
    """Check that the changelog of *index*, or the one it re-drives, and each of its sources come from what their
    windows are pinned to now, or are taken from. Windows of which nothing is known pass.

    Raises PermanentError if a window was pinned again since: of equal commitTs the version loaded last counts, so rows
    that the newer run repaired would be replaced by older ones. A base always passes: what a dump has does not change, and only
    empty mirrors take it, whatever the window of its TSO is pinned to.
    """
    index = _of_window(context, index)
    if index.is_base:
        return
    pinned = context.state.manifests.of_window(context.pipeline.name, index.window)
    if pinned is not None and pinned.input_hash != index.input_hash:
        raise PermanentError(
            f"run {index.run_hash} is of an older input of window {index.window}: the window was pinned again (repin) at "
            f"{_pinned_at(pinned)}, and this run would replace rows that the newer one may have repaired (its input is "
            f"{index.input_hash}, the window's is now {pinned.input_hash}). Clear the run from snapshot on, which reads what is "
            "pinned now; only a run that was started with reload is loaded all the same"
        )
    for run in _source_runs(context, index):
        pinned = context.state.manifests.of_window(context.pipeline.name, run.window)
        if pinned is not None and not _counts(context, run, pinned):
            raise PermanentError(
                f"run {index.run_hash} of window {index.window} takes rows from run {run.run_hash} of window {run.window}, which "
                f"was pinned again (repin) at {_pinned_at(pinned)}: it would bring back rows that the newer input may have "
                f"repaired. Pin window {index.window} again (repin; with from_changelog where Kafka has expired it); only "
                "a run that was started with reload is loaded all the same"
            )


def _generation(context: ReplayContext, index: ChangelogIndex, *, reload: bool) -> int:
    """The generation of a load of *index*; a re-drive has that of the run it completes, and a base whose window is pinned to
    Kafka a new one. Raises what ``require_current`` raises if the window was pinned again since that was asked."""
    index = _of_window(context, index)
    generations, pipeline, window = context.state.generations, context.pipeline.name, index.window
    given = None if reload else generations.of_run(pipeline, window, index.run_hash, index.input_hash)
    if given is not None:
        return given
    if not reload and not index.is_base:
        require_current(context, index)
        raise TransientError(f"window {window} was pinned again while a load of it was prepared; try again")
    return generations.advance(pipeline, window, index.run_hash)


def _give_generation(context: ReplayContext, job: DecodeJob, window: Window) -> None:
    context.state.generations.of_run(job.pipeline, window, job.run_hash, job.input_hash, job.rows_hash)


def _sources(context: ReplayContext, index: ChangelogIndex) -> tuple[SourceWindow, ...]:
    """The windows that *index* takes rows from, each with the newest generation that one of its runs has now."""
    state, pipeline = context.state, context.pipeline.name
    found = {}
    for run in _source_runs(context, _of_window(context, index)):
        # One from before runs had generations, or of a state store that was lost, gets its own: targets may know larger ones.
        state.generations.of_run(pipeline, run.window, run.run_hash, run.input_hash)
        found[run.window] = state.generations.newest(pipeline, run.window)
    return tuple(SourceWindow(window, generation) for window, generation in sorted(found.items()))


def _source_runs(context: ReplayContext, index: ChangelogIndex) -> Iterator[Run | ChangelogIndex]:
    """The runs that *index* takes rows from, from the state store, or from their changelogs if it was lost. Raises
    ArtifactNotFoundError if neither exists."""
    for run_hash in dict.fromkeys(source.run_hash for source in index.derived):
        yield context.state.runs.get(context.pipeline.name, run_hash) or read_index(context.artifacts, run_hash)


def _counts(context: ReplayContext, run: Run | ChangelogIndex, pinned: WindowManifest) -> bool:
    """Whether *run* is of what its window is *pinned* to, or what that is taken from."""
    return run.input_hash == pinned.input_hash or is_of(
        run, pinned, manifests.decode(context.artifacts.get(pinned.name))
    )


def _pinned_at(pinned: WindowManifest) -> str:
    return f"{datetime.fromtimestamp(pinned.pinned_at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _of_window(context: ReplayContext, index: ChangelogIndex) -> ChangelogIndex:
    """The changelog of the window's run: *index*, or the one whose quarantine it re-drives."""
    return index if index.redrives is None else read_index(context.artifacts, index.redrives)
