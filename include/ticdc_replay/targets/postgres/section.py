"""The mirror in PostgreSQL as a kind of target: what a pipeline says of it, and the names that PostgreSQL keeps."""

from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay.config.target_rules import MIRROR, Rules
from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA, MirrorSection


class PostgresTarget(MirrorSection):
    """A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs, or by its place in Kafka
    for rows without one."""

    is_mirror: ClassVar[bool] = True
    can_be_compared: ClassVar[bool] = True
    rules: ClassVar[Rules] = MIRROR
    loader: ClassVar[str] = "ticdc_replay.targets.postgres.mirror:PostgresMirror"
    database: ClassVar[str] = "PostgreSQL"
    reserved_schemas: ClassVar[str] = f"{LEDGER_SCHEMA}, information_schema and pg_*"
    system_columns: ClassVar[frozenset[str]] = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})

    type: Literal["postgres"]
    connection: ConnectionId = Field(description="Airflow connection id (type postgres)")
    writers: int = Field(4, ge=1, le=64, description="Connections that load at the same time")

    @property
    def place(self) -> str:
        schema = "" if self.db_schema is None else f", schema {self.db_schema}"
        return f"{self.type} {self.connection}{schema}"

    @property
    def description(self) -> str:
        return f"{self.database} by connection {self.connection}"

    @staticmethod
    def is_reserved_schema(name: str) -> bool:
        """The ledger's, those of the server's own, and the one without a name, which PostgreSQL can't have."""
        return name in ("", LEDGER_SCHEMA, "information_schema") or name.startswith("pg_")
