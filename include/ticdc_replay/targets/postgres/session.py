"""A connection to the mirrors' database in PostgreSQL, and its open transaction."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, LiteralString

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import CommitStateUnknownError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.beside import Swap, SwappingSession
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, MirrorStep, Observed, Relation
from ticdc_replay.targets.mirror.session import Merged
from ticdc_replay.targets.mirror.staging import Staged
from ticdc_replay.targets.postgres import indexes, ledger_tables, staging
from ticdc_replay.targets.postgres import swap as tables_swap
from ticdc_replay.targets.postgres.direct import PostgresDirect
from ticdc_replay.targets.postgres.errors import translate, translated
from ticdc_replay.targets.postgres.ledger import PostgresLedger
from ticdc_replay.targets.postgres.merge import merge
from ticdc_replay.targets.postgres.tables import (
    find_table,
    needing_room,
    rename_statements,
    set_key_statements,
    sql_of,
    statement_of,
    trusted,
)


class PostgresSession(SwappingSession):
    """Statements on *connection*, which errors call *conn_id*."""

    in_one_transaction: ClassVar[bool] = True
    ledger: PostgresLedger

    def __init__(self, connection: psycopg.Connection[Any], conn_id: str) -> None:
        self.ledger = PostgresLedger(connection)
        self.direct = PostgresDirect(connection)
        self.connection = connection
        self._conn_id = conn_id

    def translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(doing, self._conn_id)

    def commit(self) -> None:
        self.connection.commit()

    def commit_rows(self, target: Relation) -> None:
        try:
            self.connection.commit()
        except psycopg.Error as error:
            if not self.connection.closed:
                raise translate(error, f"commit {target}", self._conn_id) from error
            raise CommitStateUnknownError(
                f"the connection {self._conn_id!r} broke while {target} was committed: the window may be loaded or not. "
                "Run the load again: the ledger knows, and a repeat is harmless"
            ) from error

    def lock_table(self, target: Relation) -> None:
        self.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"ticdc-replay {target}"])

    def begin_merge(self, target: Relation) -> None:
        self.connection.execute("SET LOCAL work_mem = '256MB'")  # for the joins of one commit
        self.connection.execute(ledger_tables.LONG_WAIT)
        self.lock_table(target)

    def find_table(self, target: Relation) -> FoundTable | None:
        return find_table(self.connection, target)

    def is_empty(self, target: Relation) -> bool:
        return bool(self._one("SELECT NOT EXISTS (SELECT FROM {table})", target))

    def has_rows_between(
        self, target: Relation, column: str, after: int, before: int, null_column: str | None = None
    ) -> bool:
        found = sql.SQL(
            "SELECT EXISTS (SELECT FROM {table} WHERE {column} < {before} AND {column} > {after}{is_null} LIMIT 1)"
        ).format(
            table=sql_of(target),
            column=sql.Identifier(column),
            before=before,
            after=after,
            is_null=sql.SQL(" AND {} IS NULL").format(sql.Identifier(null_column)) if null_column else sql.SQL(""),
        )
        row = self.connection.execute(found).fetchone()
        return row is not None and row[0]

    def has_rows_from(self, target: Relation, column: str, version: int) -> bool:
        return bool(
            self._one(
                "SELECT EXISTS (SELECT FROM {table} WHERE {column} >= {version})", target, column, version=version
            )
        )

    def newest(self, target: Relation, column: str) -> int:
        return self._one("SELECT max({column}) FROM {table}", target, column) or 0

    def version_of(
        self, target: Relation, column: str, key: Mapping[str, object], deleted_column: str | None = None
    ) -> tuple[int, bool] | None:
        same_row = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key)
        marked = sql.SQL("false") if deleted_column is None else sql.Identifier(deleted_column)
        statement = sql.SQL("SELECT {}, {} FROM {} WHERE {}").format(
            sql.Identifier(column), marked, sql_of(target), same_row
        )
        row: tuple[int, bool] | None = self.connection.execute(statement, list(key.values())).fetchone()
        return row

    def delete_below(self, target: Relation, column: str, version: int) -> int:
        return self._run("DELETE FROM {table} WHERE {column} < {version}", target, column, version=version).rowcount

    def truncate(self, target: Relation, column: str, version: int) -> None:
        self._run("TRUNCATE {table}", target)

    def drop_table(self, target: Relation) -> None:
        self._run("DROP TABLE IF EXISTS {table}", target)

    def create_schema(self, schema: str) -> None:
        ledger_tables.create_schema(self.connection, schema)

    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        dropped: list[str] = []
        statement = statement_of(target, step.action)
        with needing_room(target, step.text):
            indexes.making_room(self.connection, dropped, partial(self.connection.execute, statement))
        return dropped

    @property
    def changes_keys(self) -> bool:
        return True

    def quoted(self, name: str) -> str:
        return sql.Identifier(name).as_string()

    def number(self, query: str) -> int:
        row = self.connection.execute(trusted(query)).fetchone()
        return int(row[0]) if row is not None else 0

    def run(self, statement: str) -> None:
        self.connection.execute(trusted(statement))

    def set_key(self, target: Relation, key: Sequence[str]) -> None:
        for statement in set_key_statements(self.connection, target, key):
            self.connection.execute(statement)

    def rename_tables(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        for statement in rename_statements(names):
            self.connection.execute(statement)

    def make_staging(self, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]) -> None:
        staging.make_staging(self.connection, load, plan, defaults, names)

    def drop_staging(self, names: Sequence[str]) -> None:
        staging.drop_staging(self.connection, names)

    def merge(
        self, load: Load, plan: TablePlan, staged: Staged, found: FoundTable, *, in_order: bool, observed: Observed
    ) -> tuple[Merged, list[str]]:
        return merge(self.connection, load, plan, staged, found, in_order=in_order, observed=observed)

    def dependants(self, target: Relation) -> list[str]:
        return tables_swap.dependants(self.connection, target)

    def copy_indexes(self, old: Relation, new: Relation) -> list[str]:
        return tables_swap.copy_indexes(self.connection, old, new)

    def swap(self, swap: Swap) -> None:
        """In the open transaction, which the caller commits."""
        tables_swap.swap_tables(self.connection, swap)
        self.ledger.replace(swap.old, swap.new, swap.old_tombstones)
        self.ledger.replace_marks(swap.place, swap.new.schema)

    def drop_schema(self, schema: str) -> None:
        self.connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(sql.Identifier(schema)))

    def _run(self, statement: LiteralString, target: Relation, column: str = "", **values: int) -> psycopg.Cursor[Any]:
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return self.connection.execute(
            sql.SQL(statement).format(table=sql_of(target), column=sql.Identifier(column), **literals)
        )

    def _one(self, statement: LiteralString, target: Relation, column: str = "", **values: int) -> Any:
        row = self._run(statement, target, column, **values).fetchone()
        return row[0] if row is not None else None
