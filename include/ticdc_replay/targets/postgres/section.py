"""The mirror in PostgreSQL as a kind of target: what a pipeline says of it, and the names that PostgreSQL keeps."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.rules import MIRROR, Rules
from ticdc_replay.targets.section import TargetSection

Identifier = Annotated[str, Field(min_length=1, max_length=63)]

LEDGER_SCHEMA = "_ticdc_replay"
"""Schema of everything a mirror in PostgreSQL needs beside its tables: ledger, tombstones, staging."""

SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
"""Columns that every table in PostgreSQL has; none of its own can be called so."""


def is_reserved_schema(name: str) -> bool:
    """Whether no mirror may lie in the schema *name* of PostgreSQL: the ledger's, those of the server's own, and the one without
    a name, which PostgreSQL can't have."""
    return name in ("", LEDGER_SCHEMA, "information_schema") or name.startswith("pg_")


class PostgresTarget(TargetSection):
    """A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs, or by its place in Kafka where
    the changefeed sends rows without one."""

    is_mirror: ClassVar[bool] = True
    rules: ClassVar[Rules] = MIRROR
    loader: ClassVar[str] = "ticdc_replay.targets.postgres.mirror:PostgresMirror"

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

    @property
    def description(self) -> str:
        return f"PostgreSQL by connection {self.connection}"

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence[TargetSection]) -> None:
        for pattern in tables if self.db_schema is None else ():
            schema = pattern.partition(".")[0]
            if not set(schema) & set("*?[") and is_reserved_schema(schema):
                raise ValueError(
                    f"tables: {pattern}: {schema} is reserved in PostgreSQL; name another schema in {key}.schema, or "
                    "take the pattern out"
                )
        for other in others:
            if other.place == self.place:
                raise ValueError(
                    f"{key}: its mirrors would be those of target {other.name} ({self.place}); name another connection or "
                    "another `schema`"
                )

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
