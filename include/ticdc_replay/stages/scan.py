"""What of a claim-check store's changefeeds is still to be scanned for references, and the job that does it."""

from collections.abc import Iterable

import msgspec

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.jobspec import ScanFeed, ScanJob
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile.coverage import (
    Retained,
    find_retained,
    searched_by_runs,
    searched_by_scans,
    unsearched,
)
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.schemas import all_schemas
from ticdc_replay.state.store import StateStore
from ticdc_replay.storage.base import ObjectStore


class SearchedFeed(msgspec.Struct, frozen=True):
    """What Kafka holds of one pipeline's changefeed, and what is known of the references in it."""

    pipeline: str
    retained: Retained
    unsearched: tuple[OffsetRange, ...]
    """Offsets that Kafka holds and nobody has searched. As long as there are some, nothing may be deleted."""
    run_files: tuple[str, ...]
    """Reference files of decodes (``changelog.side_files.REFERENCES``), below the pipeline's artefacts."""
    scan_files: tuple[str, ...]
    """Files of references that scans found (``reconcile.records.REFERENCES``), below the store's artefacts, sorted."""


def searched_feed(context: ReplayContext, state: StateStore, artifacts: ObjectStore) -> SearchedFeed:
    """How far the changefeed of *context* is searched now. *state* and *artifacts* are the claim-check store's.

    Raises what ``reconcile.coverage.find_retained`` and the stores raise.
    """
    name = context.pipeline.name
    scans = state.scanned_ranges(name)
    runs = searched_by_runs(context.state, context.artifacts, name)
    with Offsets(context.kafka) as offsets:
        retained = find_retained(
            context.changefeed,
            context.pipeline.changefeed.retired_topics,
            {*runs.topics, *(scan.topic for scan in scans)},
            offsets,
            context.kafka,
        )
    searched = [*runs.searched, *searched_by_scans(scans, artifacts)]
    return SearchedFeed(
        pipeline=name,
        retained=retained,
        unsearched=tuple(unsearched(retained, searched)),
        run_files=runs.files,
        scan_files=tuple(sorted({scan.file for scan in scans if scan.file is not None})),
    )


def scan_feed(context: ReplayContext, feed: SearchedFeed, artifacts: ObjectStore) -> ScanFeed:
    """What a scan of the unsearched offsets of *feed* is told. Puts the known table schemas into *artifacts*, the store's."""
    history = all_schemas(context)
    schemas = None
    if history:
        content = history.encode()
        schemas = f"schemas/{canonical.digest(content)}.json"
        artifacts.put_once(schemas, content)
    topics = {part.topic for part in feed.unsearched}
    limits = context.pipeline.limits
    return ScanFeed(
        pipeline=feed.pipeline,
        changefeed=context.changefeed,
        kafka_connection=context.pipeline.connections.kafka,
        schemas=schemas,
        topic_ids={name: feed.retained.topic_ids[name] for name in sorted(topics)},
        ranges=feed.unsearched,
        split_bytes=limits.split_bytes,
        decompressed_max_bytes=limits.decompressed_max_bytes,
    )


def write_scan_job(
    store: str, artifacts: ObjectStore, artifacts_connection: str | None, feeds: Iterable[ScanFeed]
) -> str:
    """Put the spec that scans *feeds* into *artifacts*, those of the claim-check store called *store*; its URI."""
    job = ScanJob(
        library_version=__version__,
        store=store,
        artifacts=artifacts.root,
        artifacts_connection=artifacts_connection,
        feeds=tuple(feeds),
    )
    content = canonical.encode(job)
    name = f"jobs/{canonical.digest(content)}.json"
    artifacts.put_once(name, content)
    return artifacts.uri(name)
