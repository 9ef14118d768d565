"""What a pipeline says of lake tables in any format."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.config.types import ConnectionId, Cron, FolderUri, TablePattern, check_place
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.dataset_names import DatasetName, identifiers, of_uri
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage.names import may_be_same_folder, may_be_within
from ticdc_replay.targets.history.section import HistorySection

CatalogName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]


_SECRET_VALUE = re.compile(r"://[^/@?#]*:[^/@?#]*@|(?i:[?&;](password|pwd|sslpassword)=)")
HIDDEN = "(?i)secret|passw|token|credential|authorization|access[._-]?key|account[._-]?key|sas"
"""A pattern: settings with such names are hidden by Spark in logs and events."""


def hidden_in(settings: Mapping[str, str]) -> list[str]:
    """The values of *settings* that are, or hold, a secret."""
    return [value for name, value in settings.items() if re.search(HIDDEN, name) or _SECRET_VALUE.search(value)]


class TableLayout(BaseModel):
    """How the tables that match are made. Later changes of a table by its owner are left alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: tuple[TablePattern, ...] = Field(("*.*",), min_length=1, description="schema.table patterns with * and ?")
    partition_by: tuple[str, ...] = Field(
        (), description="Columns or transforms, as in PARTITIONED BY of the format: bucket(16, id), days(created_at)"
    )
    sort_by: tuple[str, ...] = Field((), description="Columns by which the rows of a file are sorted")
    properties: dict[str, str] = Field({}, description="Table properties of the format, which replace ours")

    def is_for(self, table: TableName) -> bool:
        """Whether *table* matches."""
        return TablePatterns(self.tables).wants(table.schema, table.table)


class MaintenanceSection(BaseModel):
    """How ``ticdc-replay maintain`` keeps the tables small, and what it may remove."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_days: int = Field(
        7, ge=1, le=36_500, description="Snapshots this old, or younger, stay: for time travel and readers"
    )
    orphan_days: int = Field(
        3,
        ge=1,
        le=36_500,
        description="Files that nothing lists are removed once they are this old: no load may run longer",
    )
    target_file_bytes: int = Field(
        128 * 2**20, ge=2**20, le=2**30, description="Size of the files that small ones are rewritten to"
    )
    schedule: Cron | None = Field(
        None,
        description="When the DAG `ticdc_replay_<pipeline>_maintain` runs, as in `schedule.cron`; by hand only if absent",
    )


class LakeSection(HistorySection):
    """Tables of a lake, written by Spark."""

    settings: dict[str, str] = Field(
        {}, description="Settings of the catalog, as Spark has them below spark.sql.catalog.<catalog>; never a secret"
    )
    connection: ConnectionId | None = Field(
        None, description="Airflow connection id whose extra holds further settings of the catalog: the secret ones"
    )
    ledger: FolderUri = Field(
        description="Folder (s3://…, gs://…, az://…, abfss://… or file:///…) for what tables can't hold: windows, floors, "
        "deletes. Nothing in it expires"
    )
    ledger_connection: ConnectionId | None = Field(
        None, description="Airflow connection id (type aws) of `ledger`; none for file:"
    )
    layouts: tuple[TableLayout, ...] = Field((), description="How tables are made: the first that matches counts")
    maintenance: MaintenanceSection = Field(
        MaintenanceSection(), description="Compaction, and removal of what nothing needs"
    )

    catalog: CatalogName

    reserved_schemas: ClassVar[str] = "names without a character"
    table_format: ClassVar[str]
    """``package.module:Class`` of its ``TableFormat``. Imported when a load begins."""
    table_upkeep: ClassVar[str]
    """``package.module:Class`` of its ``TableUpkeep``. Imported when maintenance begins."""

    @property
    def can_be_compared(self) -> bool:
        return self.is_mirror

    @property
    def loader(self) -> str:
        room = "ticdc_replay.targets.lake"
        return f"{room}.mirror:LakeMirror" if self.is_mirror else f"{room}.history:LakeHistory"

    @property
    @abstractmethod
    def tables_place(self) -> str:
        """Where the tables lie: catalog or folder, without what only a connection knows."""

    @property
    def place(self) -> str:
        return f"{self.type} {self.mode} {self.tables_place}{self.names_place}"

    @property
    def description(self) -> str:
        return f"{self.database} ({self.mode}) in {self.tables_place}"

    def secret_settings(self, connection: Connection | None) -> Mapping[str, str]:
        """Those of the catalog in the extra of *connection*."""
        extra = {} if connection is None else connection.extra
        return {f"spark.sql.catalog.{self.catalog}.{name}": str(value) for name, value in extra.items()}

    @property
    def connection_ids(self) -> tuple[str, ...]:
        own = (conn_id for conn_id in (self.connection, self.ledger_connection) if conn_id is not None)
        return (*own, *self.salt_connections)

    @staticmethod
    def is_reserved_schema(name: str) -> bool:
        return name == ""

    def layout_of(self, table: TableName) -> TableLayout:
        """How *table* is made."""
        return next((layout for layout in self.layouts if layout.is_for(table)), TableLayout())

    @staticmethod
    @abstractmethod
    def folder_of(settings: Mapping[str, str]) -> str | None:
        """The folder in which a catalog with *settings* has tables as ``<schema>/<table>``; None where only it knows."""

    def dataset_names(self, connection: Connection | None, destination: str) -> tuple[DatasetName, ...]:
        """The table's folder, as OpenLineage's listener in Spark has it, and the table of the catalog. The latter alone
        where only the catalog knows the folder."""
        names = identifiers(destination)
        extra = {} if connection is None else connection.extra
        settings = self.settings | {name: str(value) for name, value in extra.items()}
        table = DatasetName(self._catalog_namespace(settings), ".".join(names))
        folder = self.folder_of(settings)
        return (table,) if folder is None else (of_uri(folder).below(*names), table)

    def _catalog_namespace(self, settings: Mapping[str, str]) -> str:
        """A catalog with a server by its address, any other by its warehouse, one of the cluster's settings by its name."""
        parts = urlsplit(settings.get("uri", ""))
        if parts.hostname and parts.scheme != "jdbc":
            port = f":{parts.port}" if parts.port else ""
            scheme = "hive" if parts.scheme == "thrift" else parts.scheme
            return f"{scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"
        return settings.get("warehouse", "").rstrip("/") or f"{self.type}://{self.catalog}"

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence[TargetSection]) -> None:
        super().check(key, pipeline, tables, others)
        check_place(f"{key}.ledger", self.ledger, f"{key}.ledger_connection", self.ledger_connection)
        for other in others:
            if isinstance(other, LakeSection) and other.maintenance.schedule != self.maintenance.schedule:
                raise ValueError(
                    f"{key}.maintenance.schedule: must be that of target {other.name} "
                    f"({other.maintenance.schedule or 'none'}): one DAG maintains all lake targets of a pipeline"
                )
            folder = getattr(other, "ledger", None) or getattr(other, "uri", None)
            if folder and (
                may_be_same_folder(self.ledger, folder)
                or may_be_within(self.ledger, folder)
                or may_be_within(folder, self.ledger)
            ):
                raise ValueError(
                    f"{key}.ledger: {self.ledger} may share files with {folder} of target {other.name}; give each target "
                    "a folder of its own"
                )

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        for name, value in self.settings.items():
            if re.search(HIDDEN, name) or _SECRET_VALUE.search(value):
                raise ValueError(
                    f"`settings`: {name} is or holds a secret; put it into the extra of the Airflow connection that "
                    "`connection` names"
                )
        return self
