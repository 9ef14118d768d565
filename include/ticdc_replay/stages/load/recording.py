"""Brings what a decode found into the state store, where later windows use it."""

import logging
import time
from collections.abc import Iterator

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import messages_of
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import FoundSchemas, Unread, schemas_in
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.registry import UsedSchemas
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.searched_ddl import without
from ticdc_replay.stages.window.versions import record_versions
from ticdc_replay.state.ddl import DdlScan, KnownDdl
from ticdc_replay.state.runs import Run
from ticdc_replay.state.sparse_index import Stretch

log = logging.getLogger(__name__)

DERIVED = "derived_from"
"""The count of a run whose window was pinned to other changelogs, not to Kafka: to how many parts of them."""


def record_decode(context: ReplayContext, index: ChangelogIndex) -> None:
    """Keep the run, its DDL as schema history, its sparse index and the names of its reference files. Safe to repeat.

    Runs that it is taken from are kept first, each time: nobody else records shared input, and it may have been
    decoded again since. A known run whose files are gone stays as it is; for an unknown one this raises
    ArtifactNotFoundError or FileNotFoundError.
    """
    _record(context, index)


def _record(context: ReplayContext, index: ChangelogIndex, *, taken: bool = False) -> None:
    """As ``record_decode``. A run that another one is *taken* from keeps how far it has come with its own targets."""
    state, pipeline = context.state, context.pipeline.name
    for run_hash in dict.fromkeys(source.run_hash for source in index.derived):
        is_known = state.runs.get(pipeline, run_hash) is not None
        try:
            _record(context, read_index(context.artifacts, run_hash), taken=True)
        except (ArtifactNotFoundError, FileNotFoundError) as error:
            if not is_known:
                raise
            log.warning("what is known of run %s, which %s is taken from, stays: %s", run_hash, index.window, error)
    manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
    now = int(time.time() * 1000)
    before = state.runs.get(pipeline, index.run_hash)
    ended = before if taken else None
    state.runs.record(
        Run(
            pipeline=pipeline,
            run_hash=index.run_hash,
            window=index.window,
            input_hash=index.input_hash,
            status=ended.status if ended is not None else "running",
            started_at_ms=before.started_at_ms if before is not None else now,
            finished_at_ms=ended.finished_at_ms if ended is not None else None,
            index=f"{changelog_root(index.run_hash)}/{INDEX}",
            counts={**(ended.counts if ended is not None else {}), **_counts(index, manifest)},
        )
    )
    if not index.derived:  # else it was recorded with the runs that it is taken from
        _record_ddl(context, index, manifest)
    record_versions(context, index.definitions)
    state.sparse_index.record(pipeline, list(_stretches(context, index, manifest)))


def read_ddl_again(context: ReplayContext, index: ChangelogIndex) -> tuple[UnreadDdl, ...] | None:
    """DDL of the run with *index* that still can't be read; None if its decode did not record any.

    What can now be read of its quarantine is kept, and is no longer a gap for later windows. Raises
    ArtifactNotFoundError if a file of the quarantine, or of a run that it is taken from, is gone.
    """
    if index.derived:
        sources = [read_index(context.artifacts, source.run_hash) for source in index.derived]
        parts = [read_ddl_again(context, source) for source in sources]
        left = {gap for part in parts for gap in part or ()}
    else:
        manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
        _record_ddl(context, index, manifest)
        left = set()
        for topic, partition in sorted({(gap.topic, gap.partition) for gap in index.unread_ddl or ()}):
            found = _set_aside(context, index, topic, partition)
            known = (KnownDdl(manifest.identities[topic], event) for event in found.ddl)
            context.state.ddl.record(context.pipeline.name, known)
            bad = {message[:3] for message in found.unread}
            left |= {gap for gap in index.unread_ddl or () if (gap.topic, gap.partition, gap.offset) in bad}
    return None if index.unread_ddl is None else tuple(gap for gap in index.unread_ddl if gap in left)


def finish_run(context: ReplayContext, run_hash: str, load_ms: int) -> None:
    """Note that the run's targets are loaded, which took *load_ms*."""
    run = context.state.runs.get(context.pipeline.name, run_hash)
    if run is not None:
        counts = {**run.counts, "load_ms": load_ms}
        finished = msgspec.structs.replace(run, status="done", finished_at_ms=int(time.time() * 1000), counts=counts)
        context.state.runs.record(finished)


def _record_ddl(context: ReplayContext, index: ChangelogIndex, manifest: Manifest) -> None:
    """Keep the DDL of all that was read, and note where it was searched: a re-drive reads messages, not ranges."""
    name = context.pipeline.name
    topics = manifest.identities
    found = (KnownDdl(topics[each.topic], each.event) for each in (*index.ddl, *index.other_ddl))
    context.state.ddl.record(name, found)
    if manifest.reads_kafka:
        for scan in _scans(context, manifest):
            aside = _set_aside(context, index, scan.topic.name, scan.partition)
            # A repeat with a later version of the library may read what the decode could not.
            context.state.ddl.record(name, (KnownDdl(scan.topic, event) for event in aside.ddl))
            skew_ms = context.pipeline.window.clock_skew_seconds * 1000
            context.state.ddl.record_scans(name, without(aside.unread, scan, skew_ms))


def _set_aside(context: ReplayContext, index: ChangelogIndex, topic: str, partition: int) -> FoundSchemas:
    """What the messages of a partition that the run could not read say of tables."""
    others = tuple(
        Unread(topic, partition, gap.offset, tso.physical_ms(gap.until))
        for gap in index.other_unread
        if (gap.topic, gap.partition) == (topic, partition)
    )
    if not index.quarantine_files:
        return FoundSchemas((), (), others)
    lookup = SchemaLookup(writer_schemas=UsedSchemas(context.writer_schemas))
    codec = codec_for(context.changefeed, context.pipeline.limits.decompressed_max_bytes, lookup)
    messages = messages_of(context.artifacts, index, {(topic, partition)})
    found = schemas_in(([message] for message in messages), codec)
    return msgspec.structs.replace(found, unread=found.unread + others)


def _scans(context: ReplayContext, manifest: Manifest) -> Iterator[DdlScan]:
    known_from = manifest.window.from_ts
    if manifest.grade == "offset":  # begins at a record time, whatever clocks differ by
        known_from += tso.from_ms(context.pipeline.window.clock_skew_seconds * 1000)
    for topic in manifest.topics:
        pin = min(topic.partitions, key=lambda pin: pin.range.partition, default=None)
        identity = manifest.identities[topic.topic]
        if pin is not None and pin.range.length and identity.complete:
            yield DdlScan(
                topic=identity,
                partition=pin.range.partition,
                start=pin.range.start,
                end=pin.range.end,
                known_from=known_from,
                resolved_ts=pin.resolved_ts or 0,
            )


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
        with pq.ParquetFile(path, filesystem=filesystem) as file:  # read_table loads pandas, which takes a second
            rows = file.read().to_pylist()
        for row in rows:
            yield Stretch(
                topics[row["topic"]],
                row["partition"],
                row["start_offset"],
                row["end_offset"],
                row["min_commit_ts"],
                row["max_commit_ts"],
            )
