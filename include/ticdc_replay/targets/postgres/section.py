"""The mirror in PostgreSQL as a kind of target: what a pipeline says of it, and the names that PostgreSQL keeps."""

from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.history.section import DatabaseSection
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA


class PostgresTarget(DatabaseSection):
    """A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs, or by its place in Kafka
    for rows without one. Or its history: every version."""

    database: ClassVar[str] = "PostgreSQL"
    reserved_schemas: ClassVar[str] = f"{LEDGER_SCHEMA}, information_schema and pg_*"
    system_columns: ClassVar[frozenset[str]] = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})

    type: Literal["postgres"]
    connection: ConnectionId = Field(description="Airflow connection id (type postgres)")
    writers: int = Field(4, ge=1, le=64, description="Connections that load at the same time")

    @property
    def loader(self) -> str:
        room = "ticdc_replay.targets.postgres"
        return f"{room}.mirror:PostgresMirror" if self.is_mirror else f"{room}.history:PostgresHistory"

    @staticmethod
    def is_reserved_schema(name: str) -> bool:
        """The ledger's, those of the server's own, and the one without a name, which PostgreSQL can't have."""
        return name in ("", LEDGER_SCHEMA, "information_schema") or name.startswith("pg_")
