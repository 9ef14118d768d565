"""What is known of tables: DDL as it was sent, where it was searched, and definitions that came with a version."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Row, select

from ticdc_replay.domain import canonical
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.limits import refused_types
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.schemas.epochs import Epoch, believable
from ticdc_replay.state import tables
from ticdc_replay.state.records import DdlScan, KnownDdl, SchemaScan
from ticdc_replay.state.rows import Rows, columns_of

_DEFINITIONS = msgspec.json.Decoder(TableDefinition | list[TableDefinition])


class Definitions(Rows):
    """The part of the state store that tells which definition a table has at a commitTs.

    DDL is kept and not what follows from it: DDL that is found late then changes what follows from it everywhere.
    """

    def record_ddl(self, pipeline: str, found: Iterable[KnownDdl]) -> None:
        """Keep DDL; what is known already stays."""
        rows = {}
        for topic, event in ((known.topic, known.event) for known in found):
            digest = canonical.hash_of((event.schema, event.table, event.query))
            rows[topic, event.commit_ts, digest] = {
                "pipeline": pipeline,
                **columns_of(topic),
                "commit_ts": event.commit_ts,
                "digest": digest,
                "schema": event.schema,
                "table": event.table,
                "query": event.query,
                "type": event.type,
                "rounded": event.rounded,
            }
        with self._database.writing() as connection:
            self._insert_new(connection, tables.ddl, list(rows.values()))

    def ddl(self, pipeline: str) -> list[KnownDdl]:
        """All DDL that is known of *pipeline*, by commitTs."""
        columns = tables.ddl.c
        wanted = select(tables.ddl).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.commit_ts, columns.topic, columns.digest)).all()
        return [
            KnownDdl(
                _topic(row),
                DdlEvent(0, row.commit_ts, row.schema, row.table, row.query, row.type, rounded=row.rounded),
            )
            for row in rows
        ]

    def record_ddl_scans(self, pipeline: str, scans: Iterable[DdlScan]) -> None:
        """Note that the DDL of these offsets is known; record that first."""
        rows = [
            {
                "pipeline": pipeline,
                **columns_of(scan.topic),
                "partition": scan.partition,
                "start_offset": scan.start,
                "end_offset": scan.end,
                "known_from": scan.known_from,
                "resolved_ts": scan.resolved_ts,
            }
            for scan in scans
        ]
        self._replace(tables.ddl_scan, rows)

    def ddl_scans(self, pipeline: str) -> list[DdlScan]:
        """The offsets whose DDL is known, by topic, partition and offset."""
        wanted = select(tables.ddl_scan).where(tables.ddl_scan.c.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted).all()
        return sorted(
            DdlScan(
                topic=_topic(row),
                partition=row.partition,
                start=row.start_offset,
                end=row.end_offset,
                known_from=row.known_from,
                resolved_ts=row.resolved_ts,
            )
            for row in rows
        )

    def earlier_epochs(self, pipeline: str) -> list[Epoch]:
        """The definitions that an earlier version of the library worked out of DDL, oldest first (``epochs.believable``)."""
        columns = tables.schema_history.c
        wanted = select(columns.epoch).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.after, columns.schema, columns.table)).all()
        return [believable(msgspec.json.decode(row.epoch, type=Epoch)) for row in rows]

    def earlier_scans(self, pipeline: str) -> list[SchemaScan]:
        """The offsets whose DDL an earlier version of the library searched, by topic, partition and offset."""
        wanted = select(tables.schema_scan).where(tables.schema_scan.c.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted).all()
        return sorted(SchemaScan(_topic(row), row.partition, row.start_offset, row.end_offset) for row in rows)

    def record_table_versions(self, pipeline: str, definitions: Iterable[TableDefinition]) -> None:
        """Keep definitions that came over the wire with a version; those of it that are known already are replaced."""
        by_version: dict[tuple[str, str, int], list[TableDefinition]] = {}
        for definition in definitions:
            name = definition.name
            by_version.setdefault((name.schema, name.table, definition.valid_from), []).append(definition)
        self._replace(
            tables.table_version,
            [
                {
                    "pipeline": pipeline,
                    "schema": schema,
                    "table": table,
                    "version": version,
                    # A list only where there are several: hardly ever.
                    "definition": msgspec.json.encode(found if len(found) > 1 else found[0]).decode(),
                }
                for (schema, table, version), found in by_version.items()
            ],
        )

    def table_versions(self, pipeline: str) -> list[TableDefinition]:
        """The definitions that came over the wire with a version, by table and version; those of one version as recorded.

        None with types of no table, which earlier versions of the library took.
        """
        columns = tables.table_version.c
        wanted = select(columns.definition).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(columns.schema, columns.table, columns.version)).all()
        found: list[TableDefinition] = []
        for row in rows:
            kept = _DEFINITIONS.decode(row.definition)
            found += kept if isinstance(kept, list) else [kept]
        return [definition for definition in found if refused_types(definition.columns) is None]


def _topic(row: Row[Any]) -> TopicIdentity:
    return TopicIdentity(row.cluster_id, row.topic, row.topic_id)
