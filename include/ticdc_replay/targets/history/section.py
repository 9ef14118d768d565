"""What a pipeline says of a target that has the last version of each row, or every version."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from ticdc_replay.config.target_rules import HISTORY, MIRROR, Rules
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.config.types import ConnectionId
from ticdc_replay.targets.mirror.planning.section import Identifier, MirrorSection


class HistorySection(MirrorSection):
    """A mirror of each table, or its history; a subclass says in which database."""

    mode: Literal["mirror", "history", "scd2"] = Field(
        "mirror",
        description="mirror: the last version of each row; history: every version; scd2: history, and a view of it with "
        "valid_from, valid_to and is_current",
    )
    deletes: Literal["hard", "soft"] = Field(
        "hard", description="Of a mirror. soft: a deleted row stays, marked in `deleted_column`"
    )
    deleted_column: Identifier = Field("_is_deleted", description="Column that marks deleted rows")

    @property
    def is_mirror(self) -> bool:
        return self.mode == "mirror"

    @property
    def rules(self) -> Rules:
        return MIRROR if self.is_mirror else HISTORY

    @model_validator(mode="after")
    def _deletes_are_marked(self) -> Self:
        if self.deletes == "soft" and not self.is_mirror:
            raise ValueError("`deletes`: soft is of mode mirror; a history has every delete as a version of its own")
        if self.deletes == "soft" and self.deleted_column in self.system_columns:
            raise ValueError(
                f"`deleted_column`: {self.database} has a column {self.deleted_column} in every table; choose another"
            )
        if self.deleted_column in (self.commit_ts_column, self.place_column):
            raise ValueError("`deleted_column` must differ from `commit_ts_column` and `place_column`")
        return self


class DatabaseSection(HistorySection):
    """A mirror of each table, or its history, in a database that an Airflow connection leads to."""

    connection: ConnectionId

    @property
    def can_be_compared(self) -> bool:
        return self.is_mirror

    @property
    def marker(self) -> str | None:
        return self.deleted_column if self.deletes == "soft" else None

    @property
    def place(self) -> str:
        mode = "" if self.is_mirror else f"{self.mode} "
        return f"{self.type} {mode}{self._tables_place}"

    @property
    def description(self) -> str:
        mode = "" if self.is_mirror else f" ({self.mode})"
        return f"{self.database}{mode} by connection {self.connection}"

    @property
    def _tables_place(self) -> str:
        return f"{self.connection}{self.names_place}"

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence[TargetSection]) -> None:
        super().check(key, pipeline, tables, others)
        for other in others:
            if isinstance(other, DatabaseSection) and other._tables_place == self._tables_place:
                raise ValueError(
                    f"{key}: its tables would have the names of those of target {other.name} ({other.place}); give it another "
                    "`schema`"
                )
