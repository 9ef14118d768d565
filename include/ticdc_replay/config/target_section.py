"""A kind of target: its section of the pipeline file, and all that the library asks of it. Each kind is a subclass of
``TargetSection`` in a folder of its own; ``target_kinds`` finds it by the ``type`` of a section."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ticdc_replay.config.target_rules import Rules

TargetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class TargetSection(BaseModel):
    """One target of a pipeline. A subclass has ``type`` as a literal, the class variables, ``place`` and
    ``description``. A DAG file imports it, so it must not import a database driver."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    is_mirror: ClassVar[bool]
    """Whether it holds the last version of each row alone, over all windows."""
    rules: ClassVar[Rules]
    """What it does about each kind of DDL."""
    loader: ClassVar[str]
    """``package.module:Class`` of its ``base.Target``; of a mirror, its ``base.Mirror``. Imported when a load begins."""

    name: TargetName = Field(description="Name of the target: its task is called load_<name>")
    type: str

    @property
    @abstractmethod
    def place(self) -> str:
        """Where its content lies, whatever its name: what was loaded into another place is not in this one. For records
        and people, without addresses that only a connection knows."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What it is and where, for people, such as ``PostgreSQL by connection warehouse``."""

    @property
    def connection_id(self) -> str | None:
        """The Airflow connection that it is reached by: its field ``connection``, where it has one."""
        return getattr(self, "connection", None)

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence["TargetSection"]) -> None:
        """Check that *pipeline*, with the patterns *tables*, can have this target beside *others*; raises ValueError
        otherwise, and calls the section *key*, such as ``targets[0]``. Here: two targets can't have one place."""
        for other in others:
            if other.place == self.place:
                raise ValueError(
                    f"{key}: its place is that of target {other.name} ({self.place}); give each target a place of its own"
                )
