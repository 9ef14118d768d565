"""Lets a table that workers have filled be the mirror, in the transaction of its ledger; see ``mirror.direct``."""

from collections.abc import Sequence

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror import base
from ticdc_replay.targets.mirror.direct import Direct
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, MakeTable, Relation
from ticdc_replay.targets.postgres import indexes, staging, swap
from ticdc_replay.targets.postgres.tables import (
    PgConnection,
    find_table,
    needing_room,
    set_key_statements,
    sql_of,
    statement_of,
)


class PostgresDirect(Direct):
    """By *connection*."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection

    def make(self, load: Load, target: Relation, make: MakeTable, name: str) -> None:
        """But for its key: an index is made faster of all rows at once."""
        statement = statement_of(Relation(LEDGER_SCHEMA, name), msgspec.structs.replace(make, key=()))
        with needing_room(target, f"CREATE TABLE {target}"):
            staging.make_table(self._connection, load, target, name, statement)

    def columns(self, table: Relation) -> list[tuple[str, str]]:
        found = find_table(self._connection, table)
        return [(column.name, column.type) for column in found.columns] if found is not None else []

    def count(self, table: Relation) -> int:
        row = self._connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql_of(table))).fetchone()
        assert row is not None, "a count"
        return int(row[0])

    def replace(self, plan: TablePlan, filled: Relation, found: FoundTable) -> list[str]:
        try:
            if swap.dependants(
                self._connection, plan.target
            ):  # that an event trigger of the database gives each new table
                return self._insert(plan.target, filled)
            return self._take_place(plan.target, filled, found.primary_key)
        except psycopg.errors.UniqueViolation as error:
            raise base.repeated_key(plan.source) from error

    def _take_place(self, target: Relation, filled: Relation, key: Sequence[str]) -> list[str]:
        lost = swap.copy_indexes(self._connection, target, filled)
        swap.take_place(self._connection, target, filled)
        for statement in set_key_statements(self._connection, target, key):
            self._connection.execute(statement)
        return [f"DROP INDEX {index}" for index in lost]

    def _insert(self, target: Relation, filled: Relation) -> list[str]:
        dropped: list[str] = []
        names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in self.columns(filled))
        statement = sql.SQL("INSERT INTO {} ({names}) SELECT {names} FROM {}").format(
            sql_of(target), sql_of(filled), names=names
        )
        indexes.making_room(self._connection, dropped, lambda: self._connection.execute(statement))
        return dropped
