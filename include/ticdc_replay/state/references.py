"""Where claim-check references are: files that runs wrote, and offsets that reconciliations scanned."""

from collections.abc import Iterable

import msgspec
from sqlalchemy import select

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject


class ReferenceFile(msgspec.Struct, frozen=True, order=True):
    """A file of claim-check references that a run wrote. ``name`` is relative to the artefact store."""

    pipeline: str
    run_hash: str
    name: str


class ScannedRange(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Offsets ``[start, end)`` of one partition that were scanned for claim-check references.

    ``file`` is the name of the Parquet file with the references in the artefacts of the claim-check store that was reconciled;
    None where there was none. ``topic_id`` and ``cluster_id`` are Kafka's; the latter is empty in scans by earlier versions.
    ``search`` is which search it was (``domain.events.SEARCH``).
    """

    pipeline: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    file: str | None
    cluster_id: str = ""
    search: int = 0

    @property
    def identity(self) -> TopicIdentity:
        """The topic."""
        return TopicIdentity(self.cluster_id, self.topic, self.topic_id)


class References(Subject):
    """Where the claim-check references of a pipeline are."""

    def record_files(self, files: Iterable[ReferenceFile]) -> None:
        """Keep the names of files of references that runs wrote."""
        self._replace(tables.reference_file, [msgspec.structs.asdict(file) for file in files])

    def files(self, pipeline: str) -> list[ReferenceFile]:
        """Every file of claim-check references of *pipeline*."""
        wanted = select(tables.reference_file).where(tables.reference_file.c.pipeline == pipeline)
        return sorted(ReferenceFile(**row._mapping) for row in self._all(wanted))

    def record_scans(self, scanned: Iterable[ScannedRange]) -> None:
        """Note offsets that were scanned for references; put their files first."""
        rows = [msgspec.structs.asdict(part) for part in scanned]
        for row in rows:
            row["start_offset"], row["end_offset"] = row.pop("start"), row.pop("end")
        self._replace(tables.scanned_range, rows)

    def scans(self, pipeline: str) -> list[ScannedRange]:
        """What was scanned for references of *pipeline*, in order of topic, partition and offset."""
        wanted = select(tables.scanned_range).where(tables.scanned_range.c.pipeline == pipeline)
        rows = [dict(row._mapping) for row in self._all(wanted)]
        return sorted(ScannedRange(start=row.pop("start_offset"), end=row.pop("end_offset"), **row) for row in rows)
