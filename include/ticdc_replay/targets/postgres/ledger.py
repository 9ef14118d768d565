"""The ledger of a mirror in PostgreSQL."""

from typing import ClassVar, LiteralString

from psycopg import sql

from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mirror.sql_ledger import SqlLedger
from ticdc_replay.targets.postgres.begun import BegunLoads
from ticdc_replay.targets.postgres.tables import sql_of


class PostgresLedger(BegunLoads, SqlLedger):
    """The tables of ``ledger_tables``."""

    report_text: ClassVar[LiteralString] = "report::text"
    outcome: ClassVar[LiteralString] = "report->>'outcome'"

    def _drop_tombstones(self, tombstones: Relation) -> None:
        self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql_of(tombstones)))
