"""Brings what a decode found into the state store, where later windows use it."""

import time
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.index import ChangelogIndex, Ddl
from ticdc_replay.changelog.layout import INDEX, changelog_root
from ticdc_replay.changelog.reading import read_index
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.schemas import record_ddl, record_more_ddl, record_versions
from ticdc_replay.state.records import ReferenceFile, Run, Stretch

DERIVED = "derived_from"
"""The count of a run whose window was pinned to other changelogs, not to Kafka: to how many parts of them."""


def record_decode(context: ReplayContext, index: ChangelogIndex) -> None:
    """Keep the run, its DDL as schema history, its sparse index and the names of its reference files. Safe to repeat.

    The runs that it is derived from are kept first: of an input that windows share nobody else tells.
    """
    state, pipeline = context.state, context.pipeline.name
    for run_hash in dict.fromkeys(source.run_hash for source in index.derived):
        if state.run(pipeline, run_hash) is None:
            record_decode(context, read_index(context.artifacts, run_hash))
    manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
    now = int(time.time() * 1000)
    before = state.run(pipeline, index.run_hash)
    state.record_run(
        Run(
            pipeline=pipeline,
            run_hash=index.run_hash,
            window=index.window,
            input_hash=index.input_hash,
            status="running",
            started_at_ms=before.started_at_ms if before is not None else now,
            index=f"{changelog_root(index.run_hash)}/{INDEX}",
            counts=_counts(index, manifest),
        )
    )
    if index.redrives is None and not index.derived:
        record_ddl(context, _events(index.ddl))
    else:  # some of the window's, not all; or recorded with the runs that it is derived from
        record_more_ddl(context, _events(index.ddl))
    record_more_ddl(context, _events(index.other_ddl))
    record_versions(context, index.definitions)
    state.record_stretches(pipeline, list(_stretches(context, index, manifest)))
    state.record_reference_files(
        ReferenceFile(pipeline, index.run_hash, f"{changelog_root(index.run_hash)}/{name}")
        for name in index.reference_files
    )


def finish_run(context: ReplayContext, run_hash: str, load_ms: int) -> None:
    """Note that the run's targets are loaded, which took *load_ms*."""
    run = context.state.run(context.pipeline.name, run_hash)
    if run is not None:
        counts = {**run.counts, "load_ms": load_ms}
        finished = msgspec.structs.replace(run, status="done", finished_at_ms=int(time.time() * 1000), counts=counts)
        context.state.record_run(finished)


def _events(ddl: Iterable[Ddl]) -> list[DdlEvent]:
    return [
        DdlEvent(at, each.commit_ts, each.schema, each.table, each.query, each.type, rounded=each.rounded)
        for at, each in enumerate(ddl)
    ]


def _counts(index: ChangelogIndex, manifest: Manifest) -> dict[str, int]:
    counts = {f"messages_{name}": number for name, number in msgspec.structs.asdict(index.report.messages).items()}
    counts |= {f"events_{name}": number for name, number in msgspec.structs.asdict(index.report.events).items()}
    counts["decode_ms"] = index.took_ms
    if manifest.derived:
        counts[DERIVED] = len(manifest.derived)
    return counts


def _stretches(context: ReplayContext, index: ChangelogIndex, manifest: Manifest) -> Iterator[Stretch]:
    topics = manifest.identities
    filesystem, base = context.artifacts.arrow_filesystem()
    for name in index.sparse_index_files:
        path = f"{base}/{changelog_root(index.run_hash)}/{name}"
        for row in pq.read_table(path, filesystem=filesystem, partitioning=None).to_pylist():
            yield Stretch(
                topics[row["topic"]],
                row["partition"],
                row["start_offset"],
                row["end_offset"],
                row["min_commit_ts"],
                row["max_commit_ts"],
            )
