"""Puts the results of the splits together: the index of the changelog and its report."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from ticdc_replay.changelog.files.index import ChangelogIndex, Ddl, DecodeReport, Elsewhere, EventCounts, MessageCounts
from ticdc_replay.changelog.files.version_files import table_versions
from ticdc_replay.decode.complete.deduplicate import Rewritten
from ticdc_replay.decode.plan.tasks import SplitResult, added
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.window import ALL_TIME
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.changes import changes_of
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.schemas.versions import TableVersions
from ticdc_replay.snapshot.manifest import Manifest


def assemble(
    job: DecodeJob,
    manifest: Manifest,
    history: SchemaHistory,
    results: Sequence[SplitResult],
    rewritten: Sequence[Rewritten],
    definitions: Iterable[TableDefinition] = (),
    unread_ddl: Iterable[UnreadDdl] = (),
) -> ChangelogIndex:
    """The index of the files in *results*, some of which were replaced by *rewritten*.

    *history* typed the rows, *definitions* are the table versions that this run found, *unread_ddl* is its DDL that could not be
    read.
    """
    by_old = {entry.old: entry for entry in rewritten}
    events = added(EventCounts(), (result.events for result in results))
    reasons: Counter[str] = Counter()
    for result in results:
        reasons.update(result.quarantine_reasons)
    quarantine_files = []
    for result in results:
        name = result.quarantine_file
        entry = by_old.pop(name, None) if name is not None else None
        if entry is not None:
            # A whole copy was found elsewhere: the quarantined one is a duplicate.
            events.quarantined -= entry.dropped
            events.duplicates += entry.dropped
            reasons.subtract(entry.dropped_reasons)
            name = entry.file.name if entry.file is not None else None
        if name is not None:
            quarantine_files.append(name)
    written = [found for result in results for found in result.files]
    left = [by_old[found.file.name].file if found.file.name in by_old else found.file for found in written]
    tables = table_versions(zip(written, left, strict=True), order=attrgetter("name"))
    data_dropped = sum(entry.dropped for entry in by_old.values())
    events.duplicates += data_dropped
    events.written -= data_dropped
    events.conflicts += sum(entry.conflicts for entry in by_old.values())
    found_ddl = _distinct_ddl(results)
    by_place = manifest.grade == "offset"
    window = ALL_TIME if by_place else manifest.window
    ddl = tuple(entry for entry in found_ddl if entry.commit_ts in window)
    return ChangelogIndex(
        pipeline=job.pipeline,
        run_hash=job.run_hash,
        input_hash=job.input_hash,
        library_version=job.library_version,
        window=manifest.window,
        ranges=tuple(manifest.ranges()),
        topic_ids={topic.topic: topic.topic_id for topic in manifest.topics},
        cluster_id=manifest.cluster_id,
        order="place" if by_place else "commit_ts",
        tables=tables,
        ddl=ddl,
        other_ddl=tuple(entry for entry in found_ddl if entry.commit_ts not in window),
        unread_ddl=tuple(sorted(unread_ddl)),
        other_unread=tuple(sorted({gap for result in results for gap in result.other_unread})),
        changes=tuple(changes_of((each.event for each in ddl), history)),
        quarantine_files=tuple(quarantine_files),
        reference_files=tuple(result.references_file for result in results if result.references_file is not None),
        sparse_index_files=tuple(
            result.sparse_index_file for result in results if result.sparse_index_file is not None
        ),
        unsearched=tuple(part for result in results for part in result.unsearched),
        search=SEARCH,
        definitions=tuple(TableVersions(definitions)),
        writer_schemas=_writer_schemas(results),
        selection=job.tables,
        variant=job.variant,
        set_aside=job.set_aside,
        redrives=manifest.redrive.run_hash if manifest.redrive is not None else None,
        report=DecodeReport(
            messages=added(MessageCounts(), (result.messages for result in results)),
            events=events,
            quarantine_reasons={reason: number for reason, number in sorted(reasons.items()) if number},
            watermark=_watermark(manifest),
            elsewhere=_elsewhere(results),
            idle_places=() if manifest.redrive is not None else _idle_places(job, results),
            undeclared_tables=tuple(sorted({str(table.schema.name) for table in tables if not table.declared})),
        ),
    )


def _elsewhere(results: Sequence[SplitResult]) -> tuple[Elsewhere, ...]:
    found: dict[str, Elsewhere] = {}
    for part in (part for result in results for part in result.elsewhere):
        before = found.get(part.table)
        found[part.table] = part if before is None else Elsewhere(part.table, before.rows + part.rows, before.example)
    return tuple(found[table] for table in sorted(found))


def _idle_places(job: DecodeJob, results: Sequence[SplitResult]) -> tuple[EventPlace, ...]:
    acting = {place for result in results for place in result.acting}
    return tuple(place for place in job.set_aside if place not in acting)


def _distinct_ddl(results: Sequence[SplitResult]) -> tuple[Ddl, ...]:
    """Each DDL once: one statement can give several messages of one commitTs, so the query is part of what it is."""
    first: dict[tuple[int, str, str, str], Ddl] = {}
    for result in results:
        for ddl in result.ddl:
            first.setdefault((ddl.commit_ts, ddl.schema, ddl.table, ddl.query), ddl)
    return tuple(sorted(first.values(), key=lambda ddl: (ddl.commit_ts, ddl.topic, ddl.partition, ddl.offset)))


def _writer_schemas(results: Sequence[SplitResult]) -> dict[str, str]:
    """What the splits used. Raises ArtifactCorruptError where two of them were given different schemas for an id."""
    used: dict[str, str] = {}
    for result in results:
        for schema_id, sha256 in result.writer_schemas.items():
            if used.setdefault(schema_id, sha256) != sha256:
                raise ArtifactCorruptError(
                    f"schema {schema_id} of the registry changed while it was read: SHA-256 {used[schema_id]} and {sha256}; "
                    "an id must keep its meaning: restore the registry's content and run again"
                )
    return dict(sorted(used.items()))


def _watermark(manifest: Manifest) -> int | None:
    reached = [
        pin.resolved_ts
        for topic in manifest.topics
        for pin in topic.partitions
        if pin.live and pin.resolved_ts is not None
    ]
    return min(reached, default=None)
