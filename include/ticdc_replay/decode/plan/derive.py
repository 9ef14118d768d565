"""A changelog that is taken from other changelogs instead of Kafka: no row is copied, the index says which ones count."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from ticdc_replay.changelog.files import side_files
from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DataFile,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.changelog.files.layout import changelog_root, quarantine_file
from ticdc_replay.changelog.files.parts import lies_in, part_of
from ticdc_replay.changelog.files.version_files import VersionFile, table_versions
from ticdc_replay.decode.plan.tasks import Attempt
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.schemas.versions import TableVersions
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource


class TakenChangelog(msgspec.Struct, frozen=True):
    """A source with its index."""

    source: ManifestSource
    index: ChangelogIndex


class FilePart(NamedTuple):
    """A data file of a source, and the window whose rows are wanted."""

    found: VersionFile
    window: Window

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the file are wanted."""
        return lies_in(self.found.file, self.window)


class SetAsidePart(msgspec.Struct, frozen=True):
    """The quarantine of the window, from all sources. ``file`` is None if it is empty."""

    file: str | None = None
    reasons: dict[str, int] = {}
    rows: int = 0
    """Entries of rows; the others could not be read at all."""


CountParts = Callable[[Callable[[FilePart], DataFile | None], Sequence[FilePart], str], list[DataFile | None]]
"""Runs independent tasks, with a name for them, anywhere; results come in their order."""


def derive(
    job: DecodeJob,
    manifest: Manifest,
    taken: Sequence[TakenChangelog],
    attempt: Attempt,
    filesystem: Any,
    base: str,
    execute: CountParts,
) -> ChangelogIndex:
    """The index of the window of *manifest*, whose rows lie in *taken*. *base* is the root of the artefacts in *filesystem*.

    Writes what *taken* set aside of the window, and nothing else. Raises ArtifactNotFoundError where a file is gone,
    PermanentError where a topic was recreated between two of *taken*.
    """
    parts = _wanted_parts(job, taken)
    cut = [part for part in parts if not part.is_whole]
    counted = iter(execute(partial(_count_part, filesystem=filesystem, base=base), cut, "count rows"))
    left = [(part.found, part.found.file if part.is_whole else next(counted)) for part in parts]
    tables = table_versions((each for each in left if each[1] is not None), order=_by_time)
    aside = _cut_quarantine(job, taken, attempt, filesystem, base)
    return _assemble(job, manifest, taken, tables, aside)


def _wanted_parts(job: DecodeJob, taken: Sequence[TakenChangelog]) -> list[FilePart]:
    """The files of *taken* that may hold rows of the window and of the tables of *job*."""
    wanted = TablePatterns(job.tables)
    return [
        FilePart(
            VersionFile(version.schema, version.version, version.declared, _of_run(each.index, file)),
            each.source.window,
        )
        for each in taken
        for version in each.index.tables
        if wanted.wants(version.schema.name.schema, version.schema.name.table)
        for file in version.files
        if file.min_commit_ts < each.source.window.to_ts and file.max_commit_ts >= each.source.window.from_ts
    ]


def _count_part(part: FilePart, filesystem: Any, base: str) -> DataFile | None:
    """The part of a file that is in its window, None if no row is."""
    file = part.found.file
    path = f"{base}/{changelog_root(file.run)}/{file.name}"
    try:
        return part_of(filesystem, path, file, part.window)
    except FileNotFoundError:
        raise ArtifactNotFoundError(
            f"{path} is missing, which {part.window} is taken from; pin the window again"
        ) from None


def _cut_quarantine(
    job: DecodeJob, taken: Sequence[TakenChangelog], attempt: Attempt, filesystem: Any, base: str
) -> SetAsidePart:
    """Write the quarantine entries of *taken* for the window and the tables of *job*.

    An entry without commitTs or table may be of any window or table, and is kept. If several sources have the same entry
    without commitTs, the first one counts.
    """
    wanted = TablePatterns(job.tables)
    name = quarantine_file(f"{attempt.id}-derived")
    path = f"{base}/{changelog_root(job.run_hash)}/{name}"
    reasons: Counter[str] = Counter()
    rows, writer = 0, None
    before: set[bytes] = set()
    try:
        for each in taken:
            met: set[bytes] = set()
            for batch in _entries(each, filesystem, base):
                kept = batch.filter(pa.array(_keep(batch, each.source.window, wanted, before, met)))
                if not kept.num_rows:
                    continue
                if writer is None:
                    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
                    writer = pq.ParquetWriter(
                        path, side_files.QUARANTINE, filesystem=filesystem, **side_files.QUARANTINE_ENCODING
                    )
                writer.write_table(side_files.shared_bytes(pa.Table.from_batches([kept])))
                reasons.update(kept["reason"].to_pylist())
                rows += pc.sum(pc.is_valid(kept["commit_ts"]), min_count=0).as_py()
            before |= met
    finally:
        if writer is not None:
            writer.close()
    return SetAsidePart(name if writer is not None else None, dict(sorted(reasons.items())), rows)


def _assemble(
    job: DecodeJob,
    manifest: Manifest,
    taken: Sequence[TakenChangelog],
    tables: tuple[TableVersion, ...],
    aside: SetAsidePart,
) -> ChangelogIndex:
    """The index of *tables*, *aside* and the DDL of *taken*."""
    written = sum(table.rows for table in tables)
    ddl = tuple(sorted({ddl for each in taken for ddl in each.index.ddl if ddl.commit_ts in each.source.window}))
    unread = sum(aside.reasons.values()) - aside.rows
    return ChangelogIndex(
        pipeline=job.pipeline,
        run_hash=job.run_hash,
        input_hash=job.input_hash,
        library_version=job.library_version,
        window=manifest.window,
        ranges=(),
        topic_ids=_topic_ids(taken),
        cluster_id=_cluster_id(taken),
        tables=tables,
        ddl=ddl,
        unread_ddl=_unread_ddl(taken),
        changes=tuple(
            change for each in taken for change in each.index.changes if change.commit_ts in each.source.window
        ),
        quarantine_files=(aside.file,) if aside.file is not None else (),
        reference_files=(),
        sparse_index_files=(),
        unsearched=_unsearched(taken),
        search=min((each.index.search for each in taken), default=SEARCH),
        definitions=tuple(TableVersions(each for source in taken for each in source.index.definitions)),
        selection=job.tables,
        variant=job.variant,
        set_aside=_set_aside(taken),
        derived=tuple(each.source for each in taken),
        report=DecodeReport(
            messages=MessageCounts(),
            events=EventCounts(
                rows=written + aside.rows,
                ddl=len(ddl),
                undecodable=unread,
                quarantined=aside.rows,
                written=written,
                unkeyed=sum(table.rows for table in tables if not table.schema.handle_key),
            ),
            quarantine_reasons=aside.reasons,
            idle_places=_idle_places(taken),
            watermark=min(
                (each.index.report.watermark for each in taken if each.index.report.watermark is not None), default=None
            ),
            undeclared_tables=tuple(sorted({str(table.schema.name) for table in tables if not table.declared})),
        ),
    )


def _of_run(index: ChangelogIndex, file: DataFile) -> DataFile:
    return msgspec.structs.replace(file, run=file.run or index.run_hash)


def _entries(taken: TakenChangelog, filesystem: Any, base: str) -> Any:
    root = f"{base}/{changelog_root(taken.index.run_hash)}"
    for name in taken.index.quarantine_files:
        try:
            with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
                yield from side_files.read_groups(file)
        except FileNotFoundError:
            raise ArtifactNotFoundError(f"{root}/{name} is gone, which a window is taken from") from None


def _keep(
    batch: pa.RecordBatch, window: Window, wanted: TablePatterns, before: set[bytes], met: set[bytes]
) -> list[bool]:
    """Per entry of a source whether it is taken from there.

    *before* are hashes of the entries without commitTs of the sources before it; those of *batch* are added to *met*.
    """
    columns = ("topic", "partition", "offset", "ordinal", "reason", "commit_ts", "schema", "table")
    kept = []
    for entry in zip(*(batch[name].to_pylist() for name in columns), strict=True):
        *_, commit_ts, schema, table = entry
        mine = not (schema and table) or wanted.wants(schema, table)
        if commit_ts is not None:
            mine = mine and commit_ts in window
        elif mine:
            hashed = xxhash.xxh3_128_digest(msgspec.msgpack.encode(entry))
            met.add(hashed)
            mine = hashed not in before
        kept.append(mine)
    return kept


def _by_time(file: DataFile) -> tuple[int, str, str]:
    return file.min_commit_ts, file.run, file.name


def _topic_ids(taken: Sequence[TakenChangelog]) -> dict[str, str]:
    """Raises PermanentError if a topic was recreated between two sources: its offsets would have two meanings."""
    found: dict[str, str] = {}
    for each in taken:
        for topic, topic_id in each.index.topic_ids.items():
            if found.setdefault(topic, topic_id) != topic_id:
                raise PermanentError(
                    f"topic {topic} was recreated between the changelogs that the window is taken from: replay a window on "
                    "each side of that moment"
                )
    return found


def _cluster_id(taken: Sequence[TakenChangelog]) -> str | None:
    """The cluster of all sources; None if one does not know it. Raises PermanentError if there are several clusters."""
    found = {each.index.cluster_id for each in taken}
    if len(found - {None}) > 1:
        raise PermanentError(
            "the changelogs that the window is taken from read several Kafka clusters: replay a window on each side of the move"
        )
    return found.pop() if len(found) == 1 else None


def _unsearched(taken: Sequence[TakenChangelog]) -> Any:
    parts = [each.index.unsearched for each in taken]
    return (
        None if any(part is None for part in parts) else tuple(sorted({part for each in parts for part in each or ()}))
    )


def _set_aside(taken: Sequence[TakenChangelog]) -> tuple[EventPlace, ...]:
    """The places that one of *taken* had to set aside, and so did every other that read them."""
    return tuple(
        place
        for place in sorted({place for each in taken for place in each.index.set_aside})
        if all(
            place in each.index.set_aside
            or place.message in each.index.set_aside
            or not any(place.lies_in(part) for part in each.index.ranges)
            for each in taken
        )
    )


def _idle_places(taken: Sequence[TakenChangelog]) -> tuple[EventPlace, ...]:
    """The places at which none of *taken* set anything aside."""
    idle = {place for each in taken for place in each.index.report.idle_places}
    acting = {place for each in taken for place in each.index.set_aside if place not in each.index.report.idle_places}
    return tuple(sorted(idle - acting))


def _unread_ddl(taken: Sequence[TakenChangelog]) -> tuple[UnreadDdl, ...] | None:
    """The unread DDL of *taken* that may have committed before the end of what is taken."""
    found: set[UnreadDdl] = set()
    for each in taken:
        if each.index.unread_ddl is None:
            return None
        found |= {gap for gap in each.index.unread_ddl if gap.after < each.source.window.to_ts}
    return tuple(sorted(found))
