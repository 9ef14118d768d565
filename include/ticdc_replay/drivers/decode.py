"""The driver of a decode: from a manifest to a complete changelog."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import NamedTuple
from uuid import uuid4

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.key_buckets import KeyBucket, plan_buckets
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.codecs.registry import carried_by, codec_for
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.complete.deduplicate import Rewrite, Rewritten, Surplus, find_surplus, plan_rewrites, rewrite
from ticdc_replay.decode.plan.changelog_store import ChangelogStore
from ticdc_replay.decode.plan.derive import TakenChangelog, derive
from ticdc_replay.decode.plan.known_objects import KnownObjects
from ticdc_replay.decode.plan.look_ahead import seek_versions
from ticdc_replay.decode.plan.lost_files import describe_lost, require_range
from ticdc_replay.decode.plan.sampling import SizedRange, no_objects, objects_of, sized
from ticdc_replay.decode.plan.schema_pass import FoundSchemas, find_schemas
from ticdc_replay.decode.plan.shared_names import refuse_shared_names
from ticdc_replay.decode.plan.splits import plan_splits, schema_ranges, worthwhile
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext, SplitResult
from ticdc_replay.decode.plan.unread_ddl import bounded
from ticdc_replay.decode.read.redrive import find_schemas_again, plan_redrive, redrive_split
from ticdc_replay.decode.read.source_rows import check_source
from ticdc_replay.decode.read.split import decode_split
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.drivers.runner import Sizes, TaskRunner
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl, forgetting
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, RedrivenMessages
from ticdc_replay.snapshot.topics import verify_topics

log = logging.getLogger(__name__)

_OBJECT_BYTES = 1024 * 1024
"""What claim-check objects are taken to have where nothing is known of them: Kafka's own limit of a message."""


def run_decode(runner: TaskRunner, job: DecodeJob, connections: Connections) -> ChangelogIndex:
    """Write the changelog of *job*, or return the existing one. A changelog with missing files is written again.

    Raises what a split raises (see ``decode.read.split``). Raises PermanentError if the source can't show its past any more,
    ArtifactCorruptError if the manifest was edited, and TopicChangedError if a topic is not the pinned one or lost messages.
    Raises ExpiredRangeError if files are missing and Kafka no longer holds the range, and ArtifactNotFoundError if they are files
    of other changelogs; the index then stays.
    """
    store = ChangelogStore.open(job, connections)
    found = store.index()
    lost = [] if found is None else store.lost(found)
    if found is not None and not lost:
        log.info("changelog %s is there already: %d rows", job.run_hash, found.report.events.written)
        return found
    manifest = store.manifest()
    if found is not None:
        why = describe_lost(job.run_hash, found, lost)
        log.warning("%s; it is decoded again", why)
        if manifest.reads_kafka:
            settings = KafkaSettings.from_connection(
                connections[job.kafka_connection], job.changefeed.max_message_bytes
            )
            require_range(manifest, settings, why)
        for source in manifest.derived:
            store.source(source)  # raises where it can't be taken from there again either
    attempt = Attempt(uuid4().hex[:8], store.known_objects(manifest), store.known_rows())
    if not attempt.known_rows and manifest.reads_kafka:  # a replay has its record: the source may be gone by then
        check_source(job, manifest.window, connections)
    if found is not None:
        store.discard(found)
    index = store.complete(attempt, _Decode(runner, job, connections, store, manifest, attempt).run)
    counts = ", ".join(
        f"{name} {number}" for name, number in msgspec.structs.asdict(index.report.events).items() if number
    )
    log.info("changelog %s: %s", job.run_hash, counts or "no event")
    return index


class _Decode(NamedTuple):
    """One attempt at a changelog: ``run`` writes its files and gives their index."""

    runner: TaskRunner
    job: DecodeJob
    connections: Connections
    store: ChangelogStore
    manifest: Manifest
    attempt: Attempt

    def run(self) -> ChangelogIndex:
        """The index, with the time that it took."""
        began = time.monotonic()
        if self.manifest.reads_kafka:
            index = self._from_kafka()
        elif self.manifest.redrive is not None:
            index = self._from_quarantine(self.manifest.redrive)
        else:
            index = self._from_changelogs()
        return msgspec.structs.replace(index, took_ms=round(1000 * (time.monotonic() - began)))

    def _from_kafka(self) -> ChangelogIndex:
        job, store, manifest = self.job, self.store, self.manifest
        ranges = manifest.ranges()
        settings = KafkaSettings.from_connection(
            self.connections[job.kafka_connection], job.changefeed.max_message_bytes
        )
        with ThreadPoolExecutor(1) as pool:  # both mostly wait for brokers
            sizing = pool.submit(sized, ranges, settings, *self._objects())
            verify_topics(manifest, settings)
            sizes = sizing.result()
        find = partial(
            find_schemas,
            changefeed=job.changefeed,
            settings=settings,
            max_bytes=job.limits.decompressed_max_bytes,
            registry=self.connections.get(job.schema_registry_connection),
        )
        split_bytes = job.limits.split_bytes
        read_for_schemas = schema_ranges(manifest.live_ranges(), carried_by(job.changefeed))
        needed = frozenset(read_for_schemas)
        schema_sizes = [each.without_objects() for each in sizes if each.range in needed]
        schema_splits = plan_splits(schema_sizes, split_bytes, self._least(schema_sizes))
        schemas = self.runner.run(
            find, [split.ranges for split in schema_splits], "find schemas", _sizes(schema_splits)
        )
        since_ts = manifest.window.from_ts if manifest.all_earlier_ddl else 0
        history, definitions = self._typed_by(schemas, since_ts)
        unread = bounded((message for part in schemas for message in part.unread), read_for_schemas, job, settings)
        # What is known counts without that which could not be read before the window.
        unread = tuple(each for each in unread if each.until >= since_ts)
        for each in unread:
            log.warning(
                "%s may hold DDL and can't be read: rows that it may change the types of are set aside",
                each.coordinates,
            )
        history = forgetting(history, unread, job.changefeed.topic_of)

        partitions = {topic.topic: len(topic.partitions) for topic in manifest.topics}
        splits = plan_splits(sizes, split_bytes, self._least(sizes), partitions)
        offsets = sum(part.length for part in ranges)
        log.info("decoding %s: %d offsets in %d splits", manifest.window, offsets, len(splits))
        results = self.runner.run(
            partial(decode_split, context=self._context(history)), splits, "decode", _sizes(splits)
        )
        missing = {version for result in results for version in result.missing_versions}
        if missing:

            def seek() -> tuple[TableDefinition, ...]:
                found = seek_versions(missing, read_for_schemas, manifest.window, job, settings)
                verify_topics(manifest, settings)  # they are kept for every later run of the input
                return found

            sought = store.sought_versions(seek)
            definitions += sought
            history = history.with_versions(sought)
            found = {
                version
                for version in missing
                if history.versions.find(version.name.schema, version.name.table, version.version)
            }
            again = [split for split, result in zip(splits, results, strict=True) if found & {*result.missing_versions}]
            work = partial(decode_split, context=self._context(history))
            decoded = self.runner.run(work, again, "decode again", _sizes(again))
            fresh = {result.number: result for result in decoded}
            results = [fresh.get(result.number, result) for result in results]
        # Topic ids are never reused: a topic that still has its pinned id is the one that was read. Offsets can't show that.
        verify_topics(manifest, settings)
        return self._completed(history, results, definitions, unread)

    def _from_quarantine(self, redriven: RedrivenMessages) -> ChangelogIndex:
        """Nothing is asked of Kafka, which may have expired the messages."""
        path = self.store.messages(redriven)
        filesystem, _ = self.store.arrow_root()
        groups = pq.ParquetFile(path, filesystem=filesystem).num_row_groups
        splits = plan_redrive(path, groups, self.runner.parallelism)
        find = partial(find_schemas_again, job=self.job, connections=self.connections)
        history, definitions = self._typed_by(self.runner.run(find, splits, "find schemas"))
        log.info("decoding %d messages of the quarantine of %s", redriven.messages.count, redriven.run_hash)
        results = self.runner.run(partial(redrive_split, context=self._context(history)), splits, "decode again")
        return self._completed(history, results, definitions)

    def _from_changelogs(self) -> ChangelogIndex:
        """An input that several windows share is decoded first."""
        manifest, store = self.manifest, self.store
        if manifest.shared is not None:
            log.info("%s is taken from the decode of %s", manifest.window, manifest.shared.window)
            index = run_decode(self.runner, self.job.decoding(manifest.shared), self.connections)
            taken = [TakenChangelog(ManifestSource(index.run_hash, canonical.hash_of(index), manifest.window), index)]
        else:
            taken = [TakenChangelog(source, store.source(source)) for source in manifest.derived]
            for source in manifest.derived:
                log.info("%s is taken from changelog %s", source.window, source.run_hash)
        return derive(self.job, manifest, taken, self.attempt, *store.arrow_artifacts(), self.runner.run)

    def _typed_by(
        self, found: Sequence[FoundSchemas], since_ts: int = 0
    ) -> tuple[SchemaHistory, list[TableDefinition]]:
        """The schemas that were known and those *found*, by DDL from *since_ts* (TSO) on; and the definitions in *found*."""
        definitions = [definition for part in found for definition in part.definitions]
        ddl = [event for part in found for event in part.ddl if event.commit_ts >= since_ts]
        return self.store.known_schemas(self.manifest).with_ddls(ddl).with_versions(definitions), definitions

    def _context(self, history: SchemaHistory) -> SplitContext:
        return SplitContext(self.attempt, self.job, self.manifest.row_window, history, self.connections)

    def _least(self, sizes: Sequence[SizedRange]) -> int:
        """How many splits of *sizes* to make at least."""
        return worthwhile(sizes, self.runner.parallelism, self.runner.worth_bytes)

    def _objects(self) -> tuple[Callable[[RawMessage], int], float]:
        """A function that counts the claim-check objects of a message, and about how many bytes an object has."""
        job = self.job
        if job.changefeed.claim_check_uri is None:
            return no_objects, 0.0
        filesystem, _ = self.store.arrow_root()
        known = KnownObjects(filesystem, self.attempt.known_objects).mean_bytes()
        object_bytes = min(job.changefeed.max_message_bytes, _OBJECT_BYTES) if known is None else known
        codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes)
        window, tables = self.manifest.row_window, TablePatterns(job.tables)
        return partial(objects_of, codec=codec, window=window, tables=tables), object_bytes

    def _completed(
        self,
        history: SchemaHistory,
        results: Sequence[SplitResult],
        definitions: Iterable[TableDefinition],
        unread: Iterable[UnreadDdl] = (),
    ) -> ChangelogIndex:
        """The index of what splits left, after copies that repeat have left their files."""
        refuse_shared_names(self.job.changefeed, results, *self.store.arrow_root())
        tasks_of = (self.job, self.connections, self.attempt)
        keys_files = [result.keys_file for result in results if result.keys_file is not None]

        surplus = self.runner.run(
            partial(_find_surplus, tasks_of), plan_buckets(keys_files, self.runner.parallelism), "find duplicates"
        )
        sizes = {file.file.name: file.file.bytes for result in results for file in result.files}
        rewrites = plan_rewrites([each for each in surplus if each is not None], sizes)
        rewritten = chain.from_iterable(self.runner.run(partial(_rewrite, tasks_of), rewrites, "drop duplicates"))
        return assemble(self.job, self.manifest, history, results, list(rewritten), definitions, unread)


_OfTasks = tuple[DecodeJob, Connections, Attempt]
"""What every task of one decode is given."""


def _find_surplus(of: _OfTasks, bucket: KeyBucket) -> Surplus | None:
    job, connections, attempt = of
    return find_surplus(*ChangelogStore.open(job, connections).arrow_root(), attempt, bucket)


def _rewrite(of: _OfTasks, task: Rewrite) -> list[Rewritten]:
    job, connections, _ = of
    return rewrite(*ChangelogStore.open(job, connections).arrow_root(), task)


def _sizes(splits: Sequence[Split]) -> Sizes:
    return Sizes([sum(part.length for part in split.ranges) for split in splits], "messages")
