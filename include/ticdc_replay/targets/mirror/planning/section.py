"""What a pipeline says of a mirror in any database."""

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.tables import TableName

LEDGER_SCHEMA = "_ticdc_replay"
"""Schema of everything a mirror needs beside its tables: ledger, tombstones, staging."""

Identifier = Annotated[str, Field(min_length=1, max_length=63)]


def filled(pattern: str, table: TableName) -> str:
    """*pattern* with the upstream's names of *table* in place of ``{schema}`` and ``{table}``."""
    names = {"{schema}": table.schema, "{table}": table.table}
    return re.sub(r"\{schema\}|\{table\}", lambda found: names[found[0]], pattern)


class MirrorSection(TargetSection):
    """A mirror of each table in a database; a subclass says which."""

    database: ClassVar[str]
    """What people call the kind of database."""
    reserved_schemas: ClassVar[str]
    """The schemas that no mirror may lie in, for people."""
    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"table", "db_table"})
    system_columns: ClassVar[frozenset[str]] = frozenset()
    """Columns that every table of the database has; none of its own can be called so."""

    db_schema: Identifier | None = Field(
        None,
        alias="schema",
        description="Schema; the upstream's name if absent. {schema} and {table} stand for the upstream's names",
    )
    db_table: Identifier | None = Field(
        None,
        alias="table",
        description="Name of each table, such as {schema}__{table}; the upstream's if absent. It must have {table}",
    )
    commit_ts_column: Identifier = Field("_commit_ts", description="Column that holds the commitTs of the row")
    place_column: Identifier = Field(
        "_place", description="Column that holds the place in Kafka instead, where not all rows carry a commitTs"
    )
    same_upstream_as: tuple[str, ...] = Field(
        (), description="Other pipelines of the same upstream cluster, whose mirror tables this one may load, too"
    )

    def names_of(self, table: TableName) -> tuple[str, str]:
        """The schema and the name that the target gives *table*, before the database's limits."""
        return filled(self.db_schema or "{schema}", table), filled(self.db_table or "{table}", table)

    def place_of(self, table: TableName) -> str:
        schema, name = self.names_of(table)
        return f"{self.place.removesuffix(self.names_place)}: {schema}.{name}"

    @property
    def marker(self) -> str | None:
        """The column that plans mark deleted rows in, before the database's limits; None where deleted rows go, or where the
        session alone knows the column, as in a lake."""
        return None

    @property
    def names_place(self) -> str:
        """What ``place`` says of these names."""
        schema = "" if self.db_schema is None else f", schema {self.db_schema}"
        return schema if self.db_table is None else f"{schema}, table {self.db_table}"

    @staticmethod
    @abstractmethod
    def is_reserved_schema(name: str) -> bool:
        """Whether no mirror may lie in the schema *name*."""

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence[TargetSection]) -> None:
        for pattern in tables if self.db_schema is None else ():
            schema = pattern.partition(".")[0]
            if not set(schema) & set("*?[") and self.is_reserved_schema(schema):
                raise ValueError(
                    f"tables: {pattern}: {schema} is reserved in {self.database}; name another schema in {key}.schema, or "
                    "take the pattern out"
                )
        for other in others:
            if other.place == self.place:
                raise ValueError(
                    f"{key}: its mirrors would be those of target {other.name} ({self.place}); give it another place, such as "
                    "another `schema`"
                )

    @model_validator(mode="after")
    def _tables_have_names(self) -> Self:
        if self.db_table is not None and "{table}" not in self.db_table:
            raise ValueError("`table`: must have {table}, as all tables would have one name otherwise")
        return self

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        if self.db_schema is not None and self.is_reserved_schema(self.db_schema):
            raise ValueError(f"`schema`: {self.db_schema} is reserved, as {self.reserved_schemas} are; choose another")
        for option in ("commit_ts_column", "place_column"):
            if getattr(self, option) in self.system_columns:
                raise ValueError(
                    f"`{option}`: {self.database} has a column {getattr(self, option)} in every table; choose another"
                )
        if self.commit_ts_column == self.place_column:
            raise ValueError("`commit_ts_column` and `place_column` must differ: a commitTs is not a place")
        return self
