"""The configuration of every kind of target, told apart by ``type``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TargetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class TargetSection(BaseModel):
    """What all targets share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: TargetName


class PostgresTarget(TargetSection):
    """A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs."""

    type: Literal["postgres"]
    connection: str = Field(description="Airflow connection id (type postgres)")
    db_schema: str | None = Field(None, alias="schema", description="Target schema; the upstream's name if absent")
    commit_ts_column: str = "_commit_ts"
    writers: int = Field(4, ge=1, description="Connections that load at the same time")


class ParquetTarget(TargetSection):
    """The window's changelog and its fold (last version per key) as Parquet below a URI."""

    type: Literal["parquet"]
    uri: str = Field(description="s3://… or file:///… folder")
    connection: str | None = Field(None, description="Airflow connection id (type aws); none for file:")
    fold: bool = True
    changelog: bool = True


TargetConfig = Annotated[PostgresTarget | ParquetTarget, Field(discriminator="type")]
