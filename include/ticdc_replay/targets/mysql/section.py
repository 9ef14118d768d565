"""The mirror in MySQL, TiDB or MariaDB as a kind of target: what a pipeline says of it, and the names that servers keep."""

from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay import mysql_protocol
from ticdc_replay.config.target_rules import MIRROR, Rules
from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA, MirrorSection


class MysqlTarget(MirrorSection):
    """A mirror of each table in MySQL, TiDB or MariaDB: the row's last version, guarded by its commitTs, or by its place in
    Kafka for rows without one. A schema is a database of the server."""

    is_mirror: ClassVar[bool] = True
    can_be_compared: ClassVar[bool] = True
    rules: ClassVar[Rules] = MIRROR
    loader: ClassVar[str] = "ticdc_replay.targets.mysql.mirror:MysqlMirror"
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
    def place(self) -> str:
        schema = "" if self.db_schema is None else f", schema {self.db_schema}"
        return f"{self.type} {self.connection}{schema}"

    @property
    def description(self) -> str:
        return f"{self.database} by connection {self.connection}"

    @staticmethod
    def is_reserved_schema(name: str) -> bool:
        """The ledger's, those of the server's own, and the one without a name."""
        return name in ("", LEDGER_SCHEMA) or mysql_protocol.is_system_schema(name)
