"""Histories in MySQL, TiDB or MariaDB: what the room ``history`` does, over SQL, types and bulk loads of these.

A table, an index and a view are made before the first row of the slice is written, since DDL ends a transaction. Rows and
the ledger are then one transaction, unless that is limited (``rows_per_commit``; always in TiDB): the slice is written in
parts, after the ledger has noted that this load is at it. A load that breaks between them is not done, so it comes again,
and replaces the slice; a newer run without rows of the table finds the note, and empties it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.history.database import DatabaseHistory
from ticdc_replay.targets.history.rows import ABSENT, COMMIT_TIME, DDL, OP, PLACE
from ticdc_replay.targets.history.sql_table import MILLISECONDS, Place, SqlHistoryTable, StagedVersions
from ticdc_replay.targets.history.staging import VersionSet, VersionTask
from ticdc_replay.targets.mirror.planning.tables import ColumnDefinition, MirrorStep, Relation
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import StageResult
from ticdc_replay.targets.mysql import staging
from ticdc_replay.targets.mysql.database import MysqlDatabase
from ticdc_replay.targets.mysql.dialect import literal_of
from ticdc_replay.targets.mysql.ledger_tables import of_texts
from ticdc_replay.targets.mysql.section import MysqlTarget
from ticdc_replay.targets.mysql.session import MysqlSession
from ticdc_replay.targets.mysql.stage import stage_history
from ticdc_replay.targets.mysql.tables import definition, fitting, index_part, is_long, row_bytes, sql_of

_INDEX = (
    "SELECT 1 FROM information_schema.statistics WHERE (table_schema, table_name, index_name) = (%s, %s, %s) LIMIT 1"
)
_SORTED_BYTES = 1023
"""The size of a column that servers sort by as a whole, as ``row_bytes`` counts: ``max_sort_length`` of the reader's session is
1,024 by default. ``varchar(255)`` and ``varbinary(1020)`` have this size."""


class MysqlHistory(MysqlDatabase, DatabaseHistory[MysqlTarget]):
    """Loads changelogs into histories in MySQL, TiDB or MariaDB."""

    @property
    def stage(self) -> Callable[[VersionTask], StageResult]:
        return stage_history

    def table(self, session: Session, place: Place) -> SqlHistoryTable:
        assert isinstance(session, MysqlSession)
        return MysqlHistoryTable(session, place)

    def make_staging(self, session: Session, load: Load, rows: VersionSet, names: Sequence[str]) -> None:
        assert isinstance(session, MysqlSession)
        columns = rows.staging_columns(self.dialect)
        staging.make_tables(session.connection, session.server, load, rows.target, columns, names)

    def literal(self, value: object, type_name: str) -> str:
        assert isinstance(value, str | bytes), "as staged_cells gives it"
        return literal_of(value, type_name)


class MysqlHistoryTable(SqlHistoryTable):
    """One table."""

    own_types: ClassVar = {
        OP: "varchar(10)",
        COMMIT_TIME: "datetime(3)",
        **dict(zip(PLACE, ("varchar(255)", "int", "bigint", "int"), strict=True)),
        ABSENT: "longtext",
        DDL: "longtext",
    }

    def __init__(self, session: MysqlSession, place: Place) -> None:
        self._mysql = session
        self._connection = session.connection
        super().__init__(session, place)

    def _quoted(self, name: str) -> str:
        return identifier(name)

    def _table(self, relation: Relation) -> str:
        return sql_of(relation)

    def _stage(self, name: str) -> str:
        return staging.stage_name(name)

    def _text(self, text: str) -> str:
        return literal_of(text, "longtext")

    def _time_of(self, tso: str) -> str:
        micros = f"({tso} {MILLISECONDS}) * 1000"
        return f"CAST(TIMESTAMPADD(MICROSECOND, {micros}, '1970-01-01 00:00:00') AS datetime(3))"

    def _absent_of(self, staged: str) -> str:
        return staged

    def _cast(self, cell: str, staged: str, wanted: str) -> str:
        return cell

    def _same(self, one: str, other: str) -> str:
        return f"{one} <=> {other}"

    def _partition_by(self, name: str) -> Sequence[str]:
        """A server sorts by the first bytes of a value alone, so long keys need a hash. Short ones have none: a query for one key
        uses the index only if the view partitions by the column itself."""
        type_name = self.types[name]
        if is_long(type_name) or row_bytes(type_name) > _SORTED_BYTES:
            return [f"sha2({identifier(name)}, 256)"]
        return [identifier(name)]

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _query(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _insert(self, statement: str) -> None:
        self._run(statement)

    def _make_table(self, columns: Sequence[ColumnDefinition]) -> None:
        server, required = self._mysql.server, (self._commit_ts, OP)
        words = [definition(server, each, not_null=each.name in required) for each in fitting(columns, required)]
        self._run(f"CREATE TABLE {self._name} ({', '.join(words)}) ENGINE = InnoDB {of_texts(server)}")

    def _make_index(self, name: str, columns: Sequence[str]) -> None:
        with self._connection.cursor() as cursor:
            if cursor.execute(_INDEX, (self._target.schema, self._target.table, name)):
                return
        parts = ", ".join(index_part(each, self._found.columns) for each in columns)
        self._run(f"ALTER TABLE {self._name} ADD INDEX {identifier(name)} ({parts})")

    def _make_emptied_index(self) -> None:
        self._make_index("history_emptied", [OP, self._commit_ts])

    def _change(self, step: MirrorStep) -> None:
        """A column that is added stays, also if the load breaks: no row says anything of it."""
        super()._change(step)
        self._session.ledger.raise_marks(self._target, schema_ts=0, whole_ts=0, newest_ts=0)

    def _begin_writing(self, rows: int) -> None:
        """Note that the slice is about to be written, where that takes several commits."""
        if self._mysql.rows_per_commit is not None:
            begun = TableReport(
                table=self._place.source,
                outcome="stopped",
                destination=str(self._target),
                redrives=self._load.index.redrives,
            )
            self._session.ledger.note_done(self._load, self._target, begun)
            self._mysql.commit_part()

    def _require_staged(self, part: StagedVersions) -> None:
        self._mysql.require_staged(part.stages, part.rows)

    def _delete_slice(self, condition: str) -> None:
        most = self._mysql.rows_per_commit
        if most is None:
            self._run(f"DELETE FROM {self._name} WHERE {condition}")
            return
        with self._connection.cursor() as cursor:
            while cursor.execute(f"DELETE FROM {self._name} WHERE {condition} LIMIT {most}"):
                self._mysql.commit_part()

    def _delete_same(self, stage: str, same: str) -> None:
        self._run(f"DELETE t FROM {stage} AS f STRAIGHT_JOIN {self._name} AS t ON {same}")

    def _parts(self, stage: str) -> Iterator[str]:
        most = self._mysql.rows_per_commit
        if most is None:
            yield "true"
            return
        ((last,),) = self._query(f"SELECT coalesce(max({staging.NUMBER}), 0) FROM {self._stage(stage)}")
        for first in range(1, int(last) + 1, most):
            yield f"f.{staging.NUMBER} BETWEEN {first} AND {first + most - 1}"
            self._mysql.commit_part()

    def _drop_view(self, view: Relation) -> None:
        self._run(f"DROP VIEW {self._table(view)}")

    def _make_view(self, view: Relation, query: str) -> None:
        self._session.create_schema(view.schema)
        self._run(f"CREATE OR REPLACE VIEW {self._table(view)} AS {query}")
