"""The sparse index: the range of commitTs that decodes found in a range of offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Integer, Select, column, func, or_, select, values

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, record_of, topic_columns, topic_of

_PARTITIONS_AT_A_TIME = 1_000
"""SQLite takes at most 32,766 parameters in a query."""


class Stretch(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition and the commitTs range (TSO) of all events in them.

    Both are None where the stretch holds no event with a commitTs. Offsets of a recreated topic say nothing about the one before.
    """

    topic: TopicIdentity
    partition: int
    start: int
    end: int
    min_commit_ts: int | None
    max_commit_ts: int | None


class SparseIndex(Subject):
    """The sparse index of what was decoded."""

    def record(self, pipeline: str, stretches: Iterable[Stretch]) -> None:
        """Keep the sparse index of a decoded range."""
        self._replace(tables.sparse_index, stretches, pipeline=pipeline)

    def before(
        self, pipeline: str, topic: TopicIdentity, starts: Mapping[int, int], commit_ts: int
    ) -> dict[int, list[Stretch]]:
        """Known stretches of each partition from its offset in *starts* on, in order, up to the first with an event of
        *commit_ts* (TSO) or later.

        Partitions without any are missing; a topic that is not fully known has none.
        """
        found: dict[int, list[Stretch]] = {}
        if not topic.complete:
            return found
        with self._database.reading() as connection:
            wanted = sorted(starts.items())
            for at in range(0, len(wanted), _PARTITIONS_AT_A_TIME):
                some = wanted[at : at + _PARTITIONS_AT_A_TIME]
                for row in connection.execute(_before(pipeline, topic, some, commit_ts)):
                    found.setdefault(row.partition, []).append(record_of(Stretch, row))
        return found

    def topics(self, pipeline: str) -> list[TopicIdentity]:
        """The fully known topics that decodes of *pipeline* have read; sorted."""
        columns = tables.sparse_index.c
        wanted = select(columns.cluster_id, columns.topic, columns.topic_id).where(columns.pipeline == pipeline)
        found = [topic_of(row) for row in self._all(wanted.distinct())]
        return sorted(identity for identity in found if identity.complete)


def _before(pipeline: str, topic: TopicIdentity, starts: Sequence[tuple[int, int]], commit_ts: int) -> Select[Any]:
    columns = tables.sparse_index.c
    wanted = values(column("partition", Integer), column("start", BigInteger)).data(starts).cte("wanted")
    known = (
        columns.pipeline == pipeline,
        *(columns[name] == value for name, value in topic_columns(topic).items()),
        columns.partition == wanted.c.partition,
        columns.end_offset > wanted.c.start,
    )
    first_needed = (
        select(columns.partition, func.min(columns.start_offset).label("start"))
        .where(*known, columns.max_commit_ts >= commit_ts)
        .group_by(columns.partition)
        .cte("first_needed")
    )
    return (
        select(tables.sparse_index)
        .select_from(
            tables.sparse_index.join(wanted, wanted.c.partition == columns.partition).outerjoin(
                first_needed, first_needed.c.partition == columns.partition
            )
        )
        .where(*known, or_(first_needed.c.start.is_(None), columns.start_offset < first_needed.c.start))
        .order_by(columns.partition, columns.start_offset, columns.end_offset)
    )
