"""The mirror in MySQL, TiDB or MariaDB as a kind of target: what a pipeline says of it, and the names that servers keep."""

from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay import mysql_protocol
from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.history.section import DatabaseSection
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA


class MysqlTarget(DatabaseSection):
    """A mirror of each table in MySQL, TiDB or MariaDB: the row's last version, guarded by its commitTs, or by its place in
    Kafka for rows without one. Or its history: every version. A schema is a database of the server."""

    database: ClassVar[str] = "MySQL"
    reserved_schemas: ClassVar[str] = f"{LEDGER_SCHEMA} and the server's own schemas"

    type: Literal["mysql"]
    connection: ConnectionId = Field(description="Airflow connection id (type mysql or tidb)")
    writers: int = Field(4, ge=1, le=64, description="Connections that load at the same time")
    rows_per_commit: int | None = Field(
        None,
        ge=1_000,
        description="Commit the rows of a table in parts of so many; one transaction if absent, in TiDB 100,000",
    )

    @property
    def loader(self) -> str:
        room = "ticdc_replay.targets.mysql"
        return f"{room}.mirror:MysqlMirror" if self.is_mirror else f"{room}.history:MysqlHistory"

    @staticmethod
    def is_reserved_schema(name: str) -> bool:
        """The ledger's, those of the server's own, and the one without a name."""
        return name in ("", LEDGER_SCHEMA) or mysql_protocol.is_system_schema(name)
