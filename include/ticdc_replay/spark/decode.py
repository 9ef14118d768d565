"""The driver of a decode: from a manifest to a complete changelog."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ticdc_replay.changelog.copies.key_buckets import Bucket, plan_buckets
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.codecs.registry import carried_by, codec_for
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.complete.deduplicate import Rewrite, Rewritten, Surplus, find_surplus, plan_rewrites, rewrite
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.derive import Taken, derive
from ticdc_replay.decode.plan.known_objects import KnownObjects
from ticdc_replay.decode.plan.look_ahead import seek_versions
from ticdc_replay.decode.plan.lost_files import require_range, tell_lost
from ticdc_replay.decode.plan.sampling import no_objects, objects_of, sized
from ticdc_replay.decode.plan.schema_pass import find_schemas
from ticdc_replay.decode.plan.shared_names import refuse_shared_names
from ticdc_replay.decode.plan.splits import plan_splits, schema_ranges
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitResult
from ticdc_replay.decode.plan.unread_ddl import bounded
from ticdc_replay.decode.read.redrive import find_schemas_again, plan_redrive, redrive_split
from ticdc_replay.decode.read.source_rows import check_source
from ticdc_replay.decode.read.split import decode_split
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.unread import forgetting
from ticdc_replay.snapshot.manifest import Manifest, Source
from ticdc_replay.snapshot.verify import verify_topics
from ticdc_replay.spark.tasks import Sizes, run_tasks

log = logging.getLogger(__name__)

_OBJECT_BYTES = 1024 * 1024
"""What claim-check objects are taken to have where nothing is known of them: Kafka's own limit of a message."""


def run_decode(spark: SparkSession, job: DecodeJob, connections: Connections) -> ChangelogIndex:
    """Write the changelog of *job*, or return the one that is there; one of which files are gone is written anew.

    Raises what a split raises (see ``decode.split``), PermanentError where the source can't show its past any
    more, ArtifactCorruptError where the manifest was edited, TopicChangedError where a topic is not the one that was pinned (it
    may have been recreated while it was read) or lost messages of the range, and ExpiredRangeError where files of the changelog
    are gone and Kafka no longer holds the range. The index then stays; as it does where files are gone that it takes from other
    changelogs, which is an ArtifactNotFoundError.
    """
    store = ChangelogStore.open(job, connections)
    found = store.index()
    lost = [] if found is None else store.lost(found)
    if found is not None and not lost:
        log.info("changelog %s is there already: %d rows", job.run_hash, found.report.events.written)
        return found
    manifest = store.manifest()
    if found is not None:
        told = tell_lost(job.run_hash, found, lost)
        log.warning("%s; it is decoded anew", told)
        if manifest.reads_kafka:
            settings = KafkaSettings.from_connection(
                connections[job.kafka_connection], job.changefeed.max_message_bytes
            )
            require_range(manifest, settings, told)
        for source in manifest.derived:
            store.source(source)  # raises where it can't be taken from there again either
    attempt = Attempt(uuid4().hex[:8], store.known_objects(manifest), store.known_rows())
    if not attempt.known_rows and manifest.reads_kafka:  # a replay has its record: the source may be gone by then
        check_source(job, manifest.window, connections)
    if found is not None:
        store.discard(found)
    work = _decode if manifest.reads_kafka else _redrive if manifest.redrive is not None else _derive
    decode = partial(work, spark, job, connections, store, manifest, attempt)
    index = store.complete(attempt, partial(_timed, decode))
    counts = ", ".join(
        f"{name} {number}" for name, number in msgspec.structs.asdict(index.report.events).items() if number
    )
    log.info("changelog %s: %s", job.run_hash, counts or "no event")
    return index


def _timed(decode: Callable[[], ChangelogIndex]) -> ChangelogIndex:
    """What *decode* gives, with the time that it took."""
    began = time.monotonic()
    index = decode()
    return msgspec.structs.replace(index, took_ms=round(1000 * (time.monotonic() - began)))


def _decode(
    spark: SparkSession,
    job: DecodeJob,
    connections: Connections,
    store: ChangelogStore,
    manifest: Manifest,
    attempt: Attempt,
) -> ChangelogIndex:
    """Write the files of a changelog of *attempt*; their index."""
    ranges = manifest.ranges()
    parallelism = spark.sparkContext.defaultParallelism

    settings = KafkaSettings.from_connection(connections[job.kafka_connection], job.changefeed.max_message_bytes)
    with ThreadPoolExecutor(1) as pool:  # both mostly wait for brokers
        sizing = pool.submit(sized, ranges, settings, *_objects(job, manifest, store, attempt))
        verify_topics(manifest, settings)
        sizes = sizing.result()
    find = partial(
        find_schemas,
        changefeed=job.changefeed,
        settings=settings,
        max_bytes=job.limits.decompressed_max_bytes,
        registry=connections.get(job.schema_registry_connection),
    )
    split_bytes = job.limits.split_bytes
    read_for_schemas = schema_ranges(manifest.live_ranges(), carried_by(job.changefeed))
    needed = frozenset(read_for_schemas)
    schema_sizes = [each.without_objects() for each in sizes if each.range in needed]
    schema_splits = plan_splits(schema_sizes, split_bytes, parallelism)
    schemas = run_tasks(spark, find, [split.ranges for split in schema_splits], "find schemas", _sizes(schema_splits))
    definitions = [definition for part in schemas for definition in part.definitions]
    known = store.known_schemas(manifest)
    since_ts = manifest.window.from_ts if manifest.all_earlier_ddl else 0
    ddl = [event for part in schemas for event in part.ddl if event.commit_ts >= since_ts]
    history = known.with_ddls(ddl).with_versions(definitions)
    unread = bounded((message for part in schemas for message in part.unread), read_for_schemas, job, settings)
    # What is known counts without that which could not be read before the window.
    unread = tuple(each for each in unread if each.until >= since_ts)
    for each in unread:
        log.warning(
            "%s may hold DDL and can't be read: rows that it may change the types of are set aside", each.coordinates
        )
    history = forgetting(history, unread, job.changefeed.topic_of)

    partitions = {topic.topic: len(topic.partitions) for topic in manifest.topics}
    splits = plan_splits(sizes, split_bytes, parallelism, partitions)
    log.info("decoding %s: %d offsets in %d splits", manifest.window, sum(part.length for part in ranges), len(splits))

    def decode(some: Sequence[Split], name: str) -> list[SplitResult]:
        work = partial(
            decode_split,
            attempt=attempt,
            job=job,
            window=None if manifest.grade == "offset" else manifest.window,
            history=history,
            connections=connections,
        )
        return run_tasks(spark, work, some, name, _sizes(some))

    results = decode(splits, "decode")
    missing = {version for result in results for version in result.missing_versions}
    if missing:

        def seek() -> tuple[TableDefinition, ...]:
            definitions = seek_versions(missing, read_for_schemas, manifest.window, job, settings)
            verify_topics(manifest, settings)  # they are kept for every later run of the input
            return definitions

        sought = store.sought_versions(seek)
        definitions += sought
        history = history.with_versions(sought)
        found = {
            version
            for version in missing
            if history.versions.find(version.name.schema, version.name.table, version.version)
        }
        again = [split for split, result in zip(splits, results, strict=True) if found & {*result.missing_versions}]
        fresh = {result.number: result for result in decode(again, "decode again")}
        results = [fresh.get(result.number, result) for result in results]
    # Ids never come again: a topic that has its pinned one still is the one that was read all the time. Offsets alone can't tell.
    verify_topics(manifest, settings)
    refuse_shared_names(job.changefeed, results, *store.arrow_root())
    rewritten = _drop_duplicates(spark, job, connections, attempt, results)
    return assemble(job, manifest, history, results, rewritten, definitions, unread)


def _redrive(
    spark: SparkSession,
    job: DecodeJob,
    connections: Connections,
    store: ChangelogStore,
    manifest: Manifest,
    attempt: Attempt,
) -> ChangelogIndex:
    """As ``_decode``, of messages out of quarantine: nothing is asked of Kafka, which may have expired them."""
    assert manifest.redrive is not None
    path = store.messages(manifest.redrive)
    filesystem, _ = store.arrow_root()
    groups = pq.ParquetFile(path, filesystem=filesystem).num_row_groups
    splits = plan_redrive(path, groups, spark.sparkContext.defaultParallelism)
    find = partial(find_schemas_again, job=job, connections=connections)
    schemas = run_tasks(spark, find, splits, "find schemas")
    definitions = [definition for part in schemas for definition in part.definitions]
    ddl = [event for part in schemas for event in part.ddl]
    history = store.known_schemas(manifest).with_ddls(ddl).with_versions(definitions)
    log.info("decoding %d messages of the quarantine of %s", manifest.redrive.messages.count, manifest.redrive.run_hash)
    work = partial(
        redrive_split,
        attempt=attempt,
        job=job,
        window=None if manifest.grade == "offset" else manifest.window,
        history=history,
        connections=connections,
    )
    results = run_tasks(spark, work, splits, "decode again")
    refuse_shared_names(job.changefeed, results, *store.arrow_root())
    rewritten = _drop_duplicates(spark, job, connections, attempt, results)
    return assemble(job, manifest, history, results, rewritten, definitions)


def _derive(
    spark: SparkSession,
    job: DecodeJob,
    connections: Connections,
    store: ChangelogStore,
    manifest: Manifest,
    attempt: Attempt,
) -> ChangelogIndex:
    """As ``_decode``, of rows that other changelogs hold. What the window shares with others is decoded first, if need be."""
    if manifest.shared is not None:
        log.info("%s is taken from the decode of %s", manifest.window, manifest.shared.window)
        index = run_decode(spark, job.decoding(manifest.shared), connections)
        taken = [Taken(Source(index.run_hash, canonical.hash_of(index), manifest.window), index)]
    else:
        taken = [Taken(source, store.source(source)) for source in manifest.derived]
        for source in manifest.derived:
            log.info("%s is taken from changelog %s", source.window, source.run_hash)
    return derive(job, manifest, taken, attempt, *store.arrow_artifacts(), partial(run_tasks, spark))


def _objects(
    job: DecodeJob, manifest: Manifest, store: ChangelogStore, attempt: Attempt
) -> tuple[Callable[[RawMessage], int], float]:
    """What tells how many claim-check objects a message needs, and the bytes that each has, about."""
    if job.changefeed.claim_check_uri is None:
        return no_objects, 0.0
    filesystem, _ = store.arrow_root()
    known = KnownObjects(filesystem, attempt.known_objects).mean_bytes()
    object_bytes = min(job.changefeed.max_message_bytes, _OBJECT_BYTES) if known is None else known
    codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes)
    window = None if manifest.grade == "offset" else manifest.window
    return partial(objects_of, codec=codec, window=window, tables=TablePatterns(job.tables)), object_bytes


def _sizes(splits: Sequence[Split]) -> Sizes:
    return Sizes([sum(part.length for part in split.ranges) for split in splits], "messages")


def _drop_duplicates(
    spark: SparkSession,
    job: DecodeJob,
    connections: Connections,
    attempt: Attempt,
    results: list[SplitResult],
) -> list[Rewritten]:
    keys_files = [result.keys_file for result in results if result.keys_file is not None]
    buckets = plan_buckets(keys_files, spark.sparkContext.defaultParallelism)

    def find(bucket: Bucket) -> Surplus | None:
        filesystem, root = ChangelogStore.open(job, connections).arrow_root()
        return find_surplus(filesystem, root, attempt, bucket)

    found = [surplus for surplus in run_tasks(spark, find, buckets, "find duplicates") if surplus is not None]

    def rewrite_files(task: Rewrite) -> list[Rewritten]:
        filesystem, root = ChangelogStore.open(job, connections).arrow_root()
        return rewrite(filesystem, root, task)

    sizes = {file.file.name: file.file.bytes for result in results for file in result.files}
    done = run_tasks(spark, rewrite_files, plan_rewrites(found, sizes), "drop duplicates")
    return [entry for part in done for entry in part]
