"""A connection to the mirrors' database in PostgreSQL, and its open transaction."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import CommitStateUnknownError, TargetMismatchError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, MirrorStep, Observed, Relation
from ticdc_replay.targets.mirror.session import Merged, Session
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.postgres import indexes, ledger_tables, staging
from ticdc_replay.targets.postgres.errors import translate, translated
from ticdc_replay.targets.postgres.ledger import PostgresLedger
from ticdc_replay.targets.postgres.merge import merge
from ticdc_replay.targets.postgres.tables import find_table, sql_of, statement_of


class PostgresSession(Session):
    """Statements on *connection*, which errors call *conn_id*."""

    def __init__(self, connection: psycopg.Connection[Any], conn_id: str) -> None:
        self.ledger = PostgresLedger(connection)
        self._connection = connection
        self._conn_id = conn_id

    def translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(doing, self._conn_id)

    def commit(self) -> None:
        self._connection.commit()

    def commit_rows(self, target: Relation) -> None:
        try:
            self._connection.commit()
        except psycopg.Error as error:
            if not self._connection.closed:
                raise translate(error, f"commit {target}", self._conn_id) from error
            raise CommitStateUnknownError(
                f"the connection {self._conn_id!r} broke while {target} was committed: the window may be loaded or not. "
                "Run the load again: the ledger knows, and a repeat is harmless"
            ) from error

    def lock_table(self, target: Relation) -> None:
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"ticdc-replay {target}"])

    def begin_merge(self, target: Relation) -> None:
        self._connection.execute("SET LOCAL work_mem = '256MB'")  # for the joins of one commit
        self._connection.execute(ledger_tables.LONG_WAIT)
        self.lock_table(target)

    def find_table(self, target: Relation) -> FoundTable | None:
        return find_table(self._connection, target)

    def is_empty(self, target: Relation) -> bool:
        return bool(self._one("SELECT NOT EXISTS (SELECT FROM {table})", target))

    def has_rows_between(self, target: Relation, column: str, after: int, before: int) -> bool:
        statement: LiteralString = (
            "SELECT EXISTS (SELECT FROM {table} WHERE {column} < {before} AND {column} > {after} LIMIT 1)"
        )
        return bool(self._one(statement, target, column, before=before, after=after))

    def has_rows_from(self, target: Relation, column: str, version: int) -> bool:
        return bool(
            self._one(
                "SELECT EXISTS (SELECT FROM {table} WHERE {column} >= {version})", target, column, version=version
            )
        )

    def newest(self, target: Relation, column: str) -> int:
        return self._one("SELECT max({column}) FROM {table}", target, column) or 0

    def version_of(self, target: Relation, column: str, key: Mapping[str, object]) -> int | None:
        same_row = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key)
        statement = sql.SQL("SELECT {} FROM {} WHERE {}").format(sql.Identifier(column), sql_of(target), same_row)
        row = self._connection.execute(statement, list(key.values())).fetchone()
        return row[0] if row is not None else None

    def delete_below(self, target: Relation, column: str, version: int) -> int:
        return self._run("DELETE FROM {table} WHERE {column} < {version}", target, column, version=version).rowcount

    def truncate(self, target: Relation, column: str, version: int) -> None:
        self._run("TRUNCATE {table}", target)

    def drop_table(self, target: Relation) -> None:
        self._run("DROP TABLE IF EXISTS {table}", target)

    def create_schema(self, schema: str) -> None:
        ledger_tables.create_schema(self._connection, schema)

    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        dropped: list[str] = []
        statement = statement_of(target, step.action)
        try:
            indexes.making_room(self._connection, dropped, partial(self._connection.execute, statement))
        except psycopg.errors.ProgramLimitExceeded as error:
            raise TargetMismatchError(
                f"{target} has no room for {step.text or 'what the window needs'}: {error}. Leave columns out by a column "
                "selector of the changefeed; or load the table into a parquet target, and take it out of `tables` for this one"
            ) from error
        return dropped

    def make_staging(self, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]) -> None:
        staging.make_staging(self._connection, load, plan, defaults, names)

    def drop_staging(self, names: Sequence[str]) -> None:
        staging.drop_staging(self._connection, names)

    def merge(
        self, load: Load, plan: TablePlan, staged: Staged, found: FoundTable, *, in_order: bool, observed: Observed
    ) -> tuple[Merged, list[str]]:
        return merge(self._connection, load, plan, staged, found, in_order=in_order, empty=observed.empty)

    def _run(self, statement: LiteralString, target: Relation, column: str = "", **values: int) -> psycopg.Cursor[Any]:
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return self._connection.execute(
            sql.SQL(statement).format(table=sql_of(target), column=sql.Identifier(column), **literals)
        )

    def _one(self, statement: LiteralString, target: Relation, column: str = "", **values: int) -> Any:
        row = self._run(statement, target, column, **values).fetchone()
        return row[0] if row is not None else None
