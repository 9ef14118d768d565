"""Histories in PostgreSQL: what the room ``history`` does, over PostgreSQL's SQL, types and COPY."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.history.database import DatabaseHistory
from ticdc_replay.targets.history.rows import ABSENT, COMMIT_TIME, DDL, OP, PLACE
from ticdc_replay.targets.history.sql_table import MILLISECONDS, Place, SqlHistoryTable
from ticdc_replay.targets.history.staging import VersionSet, VersionTask
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.table_plan import target_of
from ticdc_replay.targets.mirror.planning.tables import ChangeType, ColumnDefinition, MirrorStep, Relation
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import StageResult
from ticdc_replay.targets.postgres import indexes, staging
from ticdc_replay.targets.postgres.database import PostgresDatabase
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.session import PostgresSession
from ticdc_replay.targets.postgres.stage import stage_history
from ticdc_replay.targets.postgres.tables import PgConnection, definition, sql_of
from ticdc_replay.targets.postgres.types import stage_type


class PostgresHistory(PostgresDatabase, DatabaseHistory[PostgresTarget]):
    """Loads changelogs into histories in PostgreSQL."""

    @property
    def stage(self) -> Callable[[VersionTask], StageResult]:
        return stage_history

    def table(self, session: Session, place: Place) -> SqlHistoryTable:
        assert isinstance(session, PostgresSession)
        return PostgresHistoryTable(session, place)

    def make_staging(self, session: Session, load: Load, rows: VersionSet, names: Sequence[str]) -> None:
        assert isinstance(session, PostgresSession)
        staging.make_tables(session.connection, load, rows.target, rows.staging_columns(self.dialect), names)

    def literal(self, value: object, type_name: str) -> str:
        return f"{sql.Literal(value).as_string()}::{type_name}"


class PostgresHistoryTable(SqlHistoryTable):
    """One table."""

    own_types: ClassVar = {
        OP: "text",
        COMMIT_TIME: "timestamp(3) with time zone",
        **dict(zip(PLACE, ("text", "integer", "bigint", "integer"), strict=True)),
        ABSENT: "text[]",
        DDL: "text",
    }

    def __init__(self, session: PostgresSession, place: Place) -> None:
        self._connection: PgConnection = session.connection
        super().__init__(session, place)

    def _quoted(self, name: str) -> str:
        return sql.Identifier(name).as_string()

    def _table(self, relation: Relation) -> str:
        return sql_of(relation).as_string()

    def _stage(self, name: str) -> str:
        return sql.Identifier(LEDGER_SCHEMA, name).as_string()

    def _text(self, text: str) -> str:
        return sql.Literal(text).as_string()

    def _time_of(self, tso: str) -> str:
        return f"(timestamptz 'epoch' + ({tso} {MILLISECONDS}) * interval '1 millisecond')::timestamptz(3)"

    def _absent_of(self, staged: str) -> str:
        listed = f"ARRAY(SELECT json_array_elements_text({staged}::json))"
        return f"CASE WHEN {staged} IS NOT NULL THEN {listed} END"

    def _cast(self, cell: str, staged: str, wanted: str) -> str:
        return cell if stage_type(staged) == wanted else f"{cell}::{wanted}"

    def _same(self, one: str, other: str) -> str:
        return f"{one} IS NOT DISTINCT FROM {other}"

    def _run(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def _query(self, statement: str) -> list[Any]:
        return self._connection.execute(statement.encode()).fetchall()

    def _insert(self, statement: str) -> None:
        indexes.making_room(self._connection, [], partial(self._run, statement))

    def _make_table(self, columns: Sequence[ColumnDefinition]) -> None:
        required = (self._commit_ts, OP)
        words = [definition(each).as_string() + (" NOT NULL" if each.name in required else "") for each in columns]
        self._run(f"CREATE TABLE {self._name} ({', '.join(words)})")

    def _make_index(self, name: str, columns: Sequence[str]) -> None:
        self._make(f"CREATE INDEX ON {self._name} ({', '.join(map(self._quoted, columns))})", columns, "")

    def _make_emptied_index(self) -> None:
        where = f"{self._quoted(OP)} = 'empty'"
        self._make(f"CREATE INDEX ON {self._name} ({self._ts}) WHERE {where}", [self._commit_ts], "empty")

    def _make(self, statement: str, columns: Sequence[str], condition: str) -> None:
        """Run *statement*, unless there is an index of *columns* whose condition has the text *condition*."""
        found = self._connection.execute(
            "SELECT pg_catalog.pg_get_expr(i.indpred, i.indrelid), "
            "array(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(attnum, at) "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum ORDER BY k.at) "
            "FROM pg_catalog.pg_index i WHERE i.indrelid = %s::regclass",
            [self._name],
        ).fetchall()
        if not any(
            names == list(columns) and condition in (where or "") and bool(condition) == bool(where)
            for where, names in found
        ):
            indexes.making_room(self._connection, [], partial(self._run, statement))

    def _change(self, step: MirrorStep) -> None:
        """A column that a view shows gets no other type: the view goes first, and is made again."""
        place = self._place
        if place.config.mode == "scd2" and isinstance(step.action, ChangeType):
            self._drop_view(target_of(place.config, place.dialect, place.source))
        super()._change(step)

    def _delete_slice(self, condition: str) -> None:
        self._run(f"DELETE FROM {self._name} WHERE {condition}")

    def _delete_same(self, stage: str, same: str) -> None:
        self._run(f"DELETE FROM {self._name} t USING {stage} f WHERE {same}")

    def _parts(self, stage: str) -> Iterator[str]:
        yield "true"

    def _drop_view(self, view: Relation) -> None:
        try:
            with self._connection.transaction():
                self._run(f"DROP VIEW IF EXISTS {self._table(view)}")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise TargetMismatchError(
                f"{view} must be made again, as columns of its history have changed, and other objects depend on it: "
                f"{error.diag.message_detail}. Drop these, load the window again, and make them again"
            ) from error

    def _make_view(self, view: Relation, query: str) -> None:
        """CREATE OR REPLACE adds columns at the end alone, after valid_from and the others."""
        self._drop_view(view)
        self._session.create_schema(view.schema)
        self._run(f"CREATE VIEW {self._table(view)} AS {query}")
