"""DDL as it was sent, and the offsets in which it was searched.

DDL is kept and not what follows from it: DDL that is found late then changes what follows from it everywhere.
"""

from collections.abc import Iterable

import msgspec
from sqlalchemy import select

from ticdc_replay.domain import canonical
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.schemas.epochs import Epoch, believable
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, insert_new, topic_columns, topic_of


class KnownDdl(msgspec.Struct, frozen=True):
    """A DDL that was found in a topic."""

    topic: TopicIdentity
    event: DdlEvent


class DdlScan(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """Offsets ``[start, end)`` of one partition all of whose DDL is in the state store.

    Every DDL with a commitTs of ``known_from`` (TSO) or later that was sent before ``end`` was sent at ``start`` or later.
    ``resolved_ts`` is one that the partition carried before ``end`` (TSO), 0 where none is known: every DDL with a smaller
    commitTs was sent before ``end``.
    """

    topic: TopicIdentity
    partition: int
    start: int
    end: int
    known_from: int
    resolved_ts: int = 0


class SchemaScan(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition whose DDL an earlier version of the library put into its schema history."""

    topic: TopicIdentity
    partition: int
    start: int
    end: int


class TopicDdl(Subject):
    """The DDL of the topics of a pipeline."""

    def record(self, pipeline: str, found: Iterable[KnownDdl]) -> None:
        """Keep DDL; what is known already stays."""
        rows = {}
        for topic, event in ((known.topic, known.event) for known in found):
            digest = canonical.hash_of((event.schema, event.table, event.query))
            rows[topic, event.commit_ts, digest] = {
                "pipeline": pipeline,
                **topic_columns(topic),
                "commit_ts": event.commit_ts,
                "digest": digest,
                "schema": event.schema,
                "table": event.table,
                "query": event.query,
                "type": event.type,
                "rounded": event.rounded,
            }
        with self._database.writing() as connection:
            insert_new(connection, tables.ddl, list(rows.values()))

    def all(self, pipeline: str) -> list[KnownDdl]:
        """All DDL that is known of *pipeline*, by commitTs."""
        columns = tables.ddl.c
        wanted = select(tables.ddl).where(columns.pipeline == pipeline)
        rows = self._all(wanted.order_by(columns.commit_ts, columns.topic, columns.digest))
        return [
            KnownDdl(
                topic_of(row),
                DdlEvent(0, row.commit_ts, row.schema, row.table, row.query, row.type, rounded=row.rounded),
            )
            for row in rows
        ]

    def record_scans(self, pipeline: str, scans: Iterable[DdlScan]) -> None:
        """Note that the DDL of these offsets is known; record that first."""
        self._replace(tables.ddl_scan, scans, pipeline=pipeline)

    def scans(self, pipeline: str) -> list[DdlScan]:
        """The offsets whose DDL is known, by topic, partition and offset."""
        wanted = select(tables.ddl_scan).where(tables.ddl_scan.c.pipeline == pipeline)
        return sorted(self._records(DdlScan, wanted))

    def earlier_epochs(self, pipeline: str) -> list[Epoch]:
        """The definitions that an earlier version of the library worked out of DDL, oldest first (``epochs.believable``)."""
        columns = tables.schema_history.c
        wanted = select(columns.epoch).where(columns.pipeline == pipeline)
        rows = self._all(wanted.order_by(columns.after, columns.schema, columns.table))
        return [believable(msgspec.json.decode(row.epoch, type=Epoch)) for row in rows]

    def earlier_scans(self, pipeline: str) -> list[SchemaScan]:
        """The offsets whose DDL an earlier version of the library searched, by topic, partition and offset."""
        wanted = select(tables.schema_scan).where(tables.schema_scan.c.pipeline == pipeline)
        return sorted(self._records(SchemaScan, wanted))
