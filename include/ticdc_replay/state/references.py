"""Offsets that reconciliations scanned for claim-check references, and the files of what they found."""

from collections.abc import Iterable

import msgspec
from sqlalchemy import select

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject


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
    """What was scanned for claim-check references."""

    def record_scans(self, scanned: Iterable[ScannedRange]) -> None:
        """Note offsets that were scanned for references; put their files first."""
        self._replace(tables.scanned_range, scanned)

    def scans(self, pipeline: str) -> list[ScannedRange]:
        """What was scanned for references of *pipeline*, in order of topic, partition and offset."""
        wanted = select(tables.scanned_range).where(tables.scanned_range.c.pipeline == pipeline)
        return sorted(self._records(ScannedRange, wanted))
