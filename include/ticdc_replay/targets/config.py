"""The configuration of every kind of target, told apart by ``type``."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ticdc_replay.config.types import ConnectionId, FolderUri
from ticdc_replay.storage.names import tidy_folder

TargetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
Identifier = Annotated[str, Field(min_length=1, max_length=63)]

LEDGER_SCHEMA = "_ticdc_replay"
"""Schema of everything a mirror in PostgreSQL needs beside its tables: ledger, tombstones, staging."""

SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
"""Columns that every table in PostgreSQL has; none of its own can be called so."""


def is_reserved_schema(name: str) -> bool:
    """Whether no mirror may lie in the schema *name* of PostgreSQL: the ledger's, those of the server's own, and the one without
    a name, which PostgreSQL can't have."""
    return name in ("", LEDGER_SCHEMA, "information_schema") or name.startswith("pg_")


class TargetSection(BaseModel):
    """What all targets share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    is_mirror: ClassVar[bool]
    """Whether it holds the last version of each row alone, over all windows."""

    name: TargetName = Field(description="Name of the target: its task is called load_<name>")

    @property
    @abstractmethod
    def place(self) -> str:
        """Where its content lies, whatever the target is called: what was loaded into another place is not in this one.

        For records, and for people. An address that only a connection knows is not part of it.
        """


class PostgresTarget(TargetSection):
    """A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs, or by its place in Kafka where
    the changefeed sends rows without one."""

    is_mirror: ClassVar[bool] = True

    type: Literal["postgres"]
    connection: ConnectionId = Field(description="Airflow connection id (type postgres)")
    db_schema: Identifier | None = Field(
        None, alias="schema", description="Target schema; the upstream's name if absent"
    )
    commit_ts_column: Identifier = Field("_commit_ts", description="Column that holds the commitTs of the row")
    place_column: Identifier = Field(
        "_place", description="Column that holds the place in Kafka, in its stead, where not all rows carry a commitTs"
    )
    same_upstream_as: tuple[str, ...] = Field(
        (), description="Other pipelines of the same upstream cluster, whose mirror tables this one may load, too"
    )
    writers: int = Field(4, ge=1, le=64, description="Connections that load at the same time")

    @property
    def place(self) -> str:
        schema = "" if self.db_schema is None else f", schema {self.db_schema}"
        return f"{self.type} {self.connection}{schema}"

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        if self.db_schema is not None and is_reserved_schema(self.db_schema):
            raise ValueError(
                f"`schema`: {self.db_schema} is reserved, as {LEDGER_SCHEMA}, information_schema and pg_* are; choose another"
            )
        for option in ("commit_ts_column", "place_column"):
            if getattr(self, option) in SYSTEM_COLUMNS:
                raise ValueError(
                    f"`{option}`: PostgreSQL has a column {getattr(self, option)} in every table; choose another"
                )
        return self

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        if self.commit_ts_column == self.place_column:
            raise ValueError("`commit_ts_column` and `place_column` must differ: a commitTs is no place")
        return self


class ParquetTarget(TargetSection):
    """The window's changelog and its fold (last version per key) as Parquet below a URI."""

    is_mirror: ClassVar[bool] = False

    type: Literal["parquet"]
    uri: FolderUri = Field(description="s3://… or file:///… folder")
    connection: ConnectionId | None = Field(None, description="Airflow connection id (type aws); none for file:")
    fold: bool = Field(True, description="Write the last version per key of the window")
    changelog: bool = Field(True, description="Write every change of the window")

    @property
    def place(self) -> str:
        return f"{self.type} {tidy_folder(self.uri)}"


TargetConfig = Annotated[PostgresTarget | ParquetTarget, Field(discriminator="type")]
