"""Lets a table that workers have filled be the mirror; see ``mirror.direct``.

By one RENAME TABLE, which ends the transaction: the ledger knows the base by then, so a load that breaks after it is repeated,
and finds its rows in the mirror.
"""

from collections.abc import Callable

from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.direct import Direct
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, MakeTable, Relation
from ticdc_replay.targets.mysql import staging, swap
from ticdc_replay.targets.mysql.server import MysqlConnection, Server
from ticdc_replay.targets.mysql.tables import find_table, needing_room, sql_of, statement_of


class MysqlDirect(Direct):
    """By *connection* to *server*. *before_commit* is called before a statement ends the transaction."""

    def __init__(self, connection: MysqlConnection, server: Server, before_commit: Callable[[], None]) -> None:
        self._connection = connection
        self._server = server
        self._before_commit = before_commit

    def make(self, load: Load, target: Relation, make: MakeTable, name: str) -> None:
        statement = statement_of(self._server, Relation(LEDGER_SCHEMA, name), make, None, lambda _: None)
        with needing_room(target, f"CREATE TABLE {target}"):
            staging.make_table(self._connection, load, target, name, statement)

    def columns(self, table: Relation) -> list[tuple[str, str]]:
        found = find_table(self._connection, self._server, table)
        return [(column.name, column.type) for column in found.columns] if found is not None else []

    def count(self, table: Relation) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {sql_of(table)}")
            ((rows,),) = cursor.fetchall()
        return int(rows)

    def replace(self, plan: TablePlan, filled: Relation, found: FoundTable) -> list[str]:
        """The empty mirror becomes the staging table."""
        lost = swap.copy_indexes(self._connection, plan.target, filled)
        self._before_commit()
        between = Relation(LEDGER_SCHEMA, f"{filled.table}_")
        names = [(plan.target, between), (filled, plan.target), (between, filled)]
        with self._connection.cursor() as cursor:
            cursor.execute("RENAME TABLE " + ", ".join(f"{sql_of(each)} TO {sql_of(to)}" for each, to in names))
        return [f"DROP INDEX {index}" for index in lost]
