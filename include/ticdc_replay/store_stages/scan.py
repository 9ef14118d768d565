"""Which offsets of a claim-check store's changefeeds are still to be scanned for references, and the job that does it."""

from collections.abc import Iterable

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.domain import canonical
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.jobspec import ScanFeed, ScanJob, WrittenJob
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile.look.coverage import (
    DecodedFiles,
    Retained,
    Searched,
    find_retained,
    searched_by_runs,
    searched_by_scans,
    standing_scans,
    unsearched,
    without,
)
from ticdc_replay.reconcile.look.owners import Owner
from ticdc_replay.reconcile.look.truncation import put_truncated, read_truncated, searched_once, truncated
from ticdc_replay.snapshot.topics import tables_in_full
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.schemas import all_schemas
from ticdc_replay.state.store import StateStore
from ticdc_replay.storage.base import ObjectStore


class KnownReferences(msgspec.Struct, frozen=True):
    """What is known of the references in one pipeline's changefeed, from files that exist."""

    searched: tuple[Searched, ...]
    topics: frozenset[TopicIdentity]
    """All topics that any decode or scan read, whether or not that counts as searched."""
    decoded: tuple[DecodedFiles, ...]
    """Of decodes, below the pipeline's artefacts."""
    scanned: tuple[str, ...]
    """Files of references that scans found (``reconcile.judge.records.REFERENCES``), below the store's artefacts, sorted."""


class SearchedFeed(msgspec.Struct, frozen=True):
    """What Kafka holds of one pipeline's changefeed, and which offsets nobody has searched for references."""

    pipeline: str
    retained: Retained
    unsearched: tuple[OffsetRange, ...]
    """As long as there are some, nothing may be deleted."""

    @property
    def to_scan(self) -> tuple[OffsetRange, ...]:
        """The parts of ``unsearched`` that can be read: an open transaction holds others back."""
        return tuple(without(self.unsearched, self.retained.held_back))


def known_references(context: ReplayContext, state: StateStore, artifacts: ObjectStore) -> KnownReferences:
    """What decodes and scans have found in the changefeed of *context* up to now. *state* and *artifacts* are the claim-check
    store's."""
    name = context.pipeline.name
    recorded = state.references.scans(name)
    scans = standing_scans(recorded, artifacts)
    runs = searched_by_runs(context.state, context.artifacts, name)
    return KnownReferences(
        searched=searched_once((*runs.searched, *searched_by_scans(scans)), read_truncated(artifacts)),
        topics=runs.topics | {scan.identity for scan in recorded},
        decoded=runs.files,
        scanned=tuple(sorted({scan.file for scan in scans if scan.file is not None})),
    )


def searched_feed(
    context: ReplayContext, state: StateStore, artifacts: ObjectStore, owners: Iterable[Owner]
) -> SearchedFeed:
    """How far the changefeed of *context* is searched now. *state* and *artifacts* are the claim-check store's, *owners* what its
    earlier surveys saw.

    Notes what Kafka has lost of what was searched (``reconcile.look.truncation``).

    Raises what ``reconcile.look.coverage.find_retained`` and the stores raise.
    """
    known = known_references(context, state, artifacts)
    retired = context.pipeline.changefeed.retired_topics
    with Offsets(context.kafka) as offsets:
        retained = find_retained(
            context.changefeed,
            retired,
            {topic.name for topic in known.topics},
            offsets,
            context.kafka,
            tables=_tables(context),
            earlier=[owner for owner in owners if owner.pipeline == context.pipeline.name],
        )
    put_truncated(artifacts, truncated(retained.partitions, known.searched))
    left = unsearched(retained.partitions, known.searched)
    return SearchedFeed(context.pipeline.name, retained, tuple(left))


def _tables(context: ReplayContext) -> set[tuple[str, str]]:
    """Names of the changefeed's tables, as far as any are known."""
    history = all_schemas(context)
    names = [epoch.name for epoch in history.epochs] + [definition.name for definition in history.versions]
    return {*tables_in_full(context.pipeline.tables), *((name.schema, name.table) for name in names)}


def scan_feed(context: ReplayContext, feed: SearchedFeed, artifacts: ObjectStore) -> ScanFeed:
    """The input of a scan of *feed*'s ``SearchedFeed.to_scan``. Puts the known table schemas into *artifacts*, the store's."""
    history = all_schemas(context)
    schemas = None
    if history:
        content = history.encode()
        schemas = f"schemas/{canonical.digest(content)}.json"
        artifacts.put_once(schemas, content)
    topics = {part.topic for part in feed.to_scan}
    limits = context.pipeline.limits
    return ScanFeed(
        pipeline=feed.pipeline,
        changefeed=context.changefeed,
        kafka_connection=context.pipeline.connections.kafka,
        schemas=schemas,
        topic_ids={name: feed.retained.topic_ids[name] for name in sorted(topics)},
        cluster_id=feed.retained.cluster_id,
        ranges=feed.to_scan,
        split_bytes=limits.split_bytes,
        decompressed_max_bytes=limits.decompressed_max_bytes,
    )


def write_scan_job(
    store: str, artifacts: ObjectStore, artifacts_connection: str | None, feeds: Iterable[ScanFeed]
) -> WrittenJob:
    """Put the spec that scans *feeds* into *artifacts*, those of the claim-check store called *store*."""
    job = ScanJob(
        library_version=__version__,
        store=store,
        artifacts=artifacts.root,
        artifacts_connection=artifacts_connection,
        feeds=tuple(feeds),
    )
    return WrittenJob(jobspec.put(artifacts, job), job.scan_hash)
