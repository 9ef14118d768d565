"""The driver of a scan: from offsets that no decode has covered to the references in them."""

import logging
from collections.abc import Sequence
from functools import partial

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.decode.plan.sampling import sized
from ticdc_replay.decode.plan.splits import divide, schema_ranges
from ticdc_replay.decode.plan.tasks import added
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactExistsError, ArtifactNotFoundError, TopicChangedError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.drivers.runner import Sizes, TaskRunner
from ticdc_replay.jobspec import ScanFeed, ScanJob
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.reconcile.look import scan_report
from ticdc_replay.reconcile.look.scan import ScanCounts, ScannedSplit, scan_split, schemas_of_split
from ticdc_replay.reconcile.look.scan_report import ScannedFeed, ScanReport
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.topics import require_topics
from ticdc_replay.state.references import ScannedRange
from ticdc_replay.storage import open_store
from ticdc_replay.storage.base import ObjectStore

log = logging.getLogger(__name__)


def run_scan(runner: TaskRunner, job: ScanJob, connections: Connections) -> ScanReport:
    """Put the references in the offsets of *job* into files and, last, the report; or return the one that is there.

    Raises what ``reconcile.look.scan.scan_split`` raises, and TopicChangedError where a topic was recreated.
    """
    store = open_store(job.artifacts, connections.get(job.artifacts_connection))
    found = _report(store, job)
    if found is not None:
        log.info("scan %s is there already", job.scan_hash)
        return found
    feeds = tuple(_scan(runner, job, feed, store, connections) for feed in job.feeds)
    report = ScanReport(store=job.store, scan_hash=job.scan_hash, feeds=feeds)
    try:
        store.put_once(job.report, canonical.encode(report))
    except ArtifactExistsError:  # another attempt was faster, and its files are as good
        report = scan_report.decode(store.get(job.report))
    for feed in report.feeds:
        log.info(
            "%s: %d messages scanned, %d decoded, %d references, %d messages that may hold one can't be read",
            feed.pipeline,
            feed.counts.messages,
            feed.counts.decoded,
            feed.counts.references,
            len(feed.unsearched),
        )
    return report


def _report(store: ObjectStore, job: ScanJob) -> ScanReport | None:
    try:
        return scan_report.decode(store.get(job.report))
    except ArtifactNotFoundError:
        return None


def _scan(
    runner: TaskRunner, job: ScanJob, feed: ScanFeed, store: ObjectStore, connections: Connections
) -> ScannedFeed:
    settings = KafkaSettings.from_connection(connections[feed.kafka_connection], feed.changefeed.max_message_bytes)
    _verify(feed, settings)
    parallelism = runner.parallelism
    ranges = sized(feed.ranges, settings)
    splits = divide(ranges, feed.split_bytes, parallelism)
    history = SchemaHistory() if feed.schemas is None else SchemaHistory.decode(store.get(feed.schemas))

    def scan(some: Sequence[OffsetRange], known: SchemaHistory, name: str) -> list[ScannedSplit]:
        work = partial(scan_split, job=job, feed=feed, history=known, connections=connections)
        return runner.run(work, some, f"{name} {feed.pipeline}", _sizes(some))

    results = scan(splits, history, "scan")
    if any(result.missing_versions for result in results):
        needed = schema_ranges(feed.ranges, carried_by(feed.changefeed))
        schema_splits = divide([each for each in ranges if each.range in needed], feed.split_bytes, parallelism)
        read = partial(schemas_of_split, feed=feed, connections=connections)
        schemas = runner.run(read, schema_splits, f"find schemas {feed.pipeline}", _sizes(schema_splits))
        known = history.with_versions(definition for part in schemas for definition in part.definitions)
        again = [at for at, result in enumerate(results) if _finds_more(result, known)]
        for at, result in zip(again, scan([splits[at] for at in again], known, "scan again"), strict=True):
            results[at] = result
    # Offsets alone can't show it: a topic that was recreated while it was read may hold the same ones.
    _verify(feed, settings)
    return ScannedFeed(
        pipeline=feed.pipeline,
        scanned=tuple(
            ScannedRange(
                pipeline=feed.pipeline,
                topic=part.topic,
                topic_id=feed.topic_ids[part.topic],
                cluster_id=feed.cluster_id,
                partition=part.partition,
                start=part.start,
                end=part.end,
                file=result.file,
                search=SEARCH,
            )
            for result in results
            for part in result.scanned
        ),
        unsearched=tuple(part for result in results for part in result.unsearched),
        counts=added(ScanCounts(), (result.counts for result in results)),
    )


def _sizes(parts: Sequence[OffsetRange]) -> Sizes:
    return Sizes([part.length for part in parts], "messages")


def _finds_more(result: ScannedSplit, known: SchemaHistory) -> bool:
    return any(
        known.versions.find(missing.name.schema, missing.name.table, missing.version) is not None
        for missing in result.missing_versions
    )


def _verify(feed: ScanFeed, settings: KafkaSettings) -> None:
    """Raise TopicChangedError where a topic of *feed* is gone, or is not the one that the job names."""
    with Offsets(settings) as offsets:
        for topic in require_topics(offsets, feed.topic_ids, settings):
            if feed.cluster_id not in ("", topic.identity.cluster_id):
                raise TopicChangedError(
                    f"topic {topic.name} is of Kafka cluster {topic.identity.cluster_id}, and the scan was planned for cluster "
                    f"{feed.cluster_id}. Correct the Kafka connection, and reconcile again"
                )
            planned = feed.topic_ids[topic.name]
            if topic.topic_id != planned:
                raise TopicChangedError(
                    f"topic {topic.name} was recreated: its id is {topic.topic_id}, and was {planned} when the scan was planned, "
                    "so what was read up to now says nothing of it. Reconcile again"
                )
