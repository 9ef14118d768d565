"""A kind of target: its section of the pipeline file, and all that the library asks of it. Each kind is a subclass of
``TargetSection`` in a folder of its own; ``target_kinds`` finds it by the ``type`` of a section."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from ticdc_replay.config.shape import ShapeSection
from ticdc_replay.config.target_rules import Rules
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.dataset_names import DatasetName, of_table, of_uri
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName

TargetName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class TargetSection(BaseModel):
    """One target of a pipeline. A subclass has ``type`` as a literal, and each abstract property, as a
    property or a class variable. A DAG file imports it, so it must not import a database driver."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: TargetName = Field(description="Name of the target: its task is called load_<name>")
    type: str
    shape: tuple[ShapeSection, ...] = Field(
        (),
        description="How tables are shaped: the first entry that matches a table counts; others are as the upstream's",
    )

    left_out_if_none: ClassVar[frozenset[str]] = frozenset()
    """Keys that are not written where they are None."""

    @field_validator("shape", mode="after")
    @classmethod
    def _each_entry_counts(cls, shape: tuple[ShapeSection, ...]) -> tuple[ShapeSection, ...]:
        """Refuses an entry with a pattern that an earlier entry covers: what it masks would not be masked."""
        for at, entry in enumerate(shape):
            earlier = TablePatterns([pattern for each in shape[:at] for pattern in each.tables])
            for pattern in filter(earlier.covers, entry.tables):
                raise ValueError(
                    f"`shape`: {pattern} of entry {at + 1} never counts, as `tables` of an earlier entry match all that it does; "
                    "move the narrower entry up, or take the pattern out"
                )
        return shape

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A section without shapes is written as it was before there were any: records of jobs stay the same."""
        written: dict[str, Any] = write(self)
        if not self.shape:
            written.pop("shape", None)
        return {
            name: value for name, value in written.items() if name not in self.left_out_if_none or value is not None
        }

    @property
    @abstractmethod
    def is_mirror(self) -> bool:
        """Whether it holds the last version of each row alone, over all windows."""

    @property
    def takes_base(self) -> bool:
        """Whether a base can be loaded into it, beside windows that hold the TSO of the dump: not if a window replaces all that
        is held of its time. A mirror takes one."""
        return self.is_mirror

    @property
    @abstractmethod
    def rules(self) -> Rules:
        """What it does about each kind of DDL."""

    @property
    @abstractmethod
    def loader(self) -> str:
        """``package.module:Class`` of its ``base.Target``; of a mirror, its ``base.Mirror``. Imported when a load begins."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where its content lies, whatever its name: what was loaded into another place is not in this one. For records
        and people, without addresses that only a connection knows."""

    def place_of(self, table: TableName) -> str:
        """Where the content of *table* lies, whatever else the section says: equal for sections that load into one table."""
        return f"{self.place}: {table}"

    @property
    @abstractmethod
    def description(self) -> str:
        """What it is and where, for people, such as ``PostgreSQL by connection warehouse``."""

    @property
    def can_be_compared(self) -> bool:
        """Whether its tables can be compared with their source: whether ``loader`` is a ``comparison.ComparableMirror``."""
        return False

    @property
    def spark_properties(self) -> Mapping[str, str]:
        """What loads need when their Spark session begins, for targets whose rows Spark writes; ``spark.conf`` of the
        pipeline replaces it. None where workers of Python write all rows."""
        return {}

    def secret_settings(self, connection: Connection | None) -> Mapping[str, str]:
        """Spark settings that loads make in their session from *connection*, that of ``connection_id``. Spark's logs have
        their names, and hide their values."""
        return {}

    @property
    def connection_id(self) -> str | None:
        """The Airflow connection that it is reached by: its field ``connection``, where it has one."""
        return getattr(self, "connection", None)

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """All Airflow connections that its loads need."""
        own = () if self.connection_id is None else (self.connection_id,)
        return (*own, *self.salt_connections)

    @property
    def salt_connections(self) -> tuple[str, ...]:
        """The Airflow connections that have the salts of its shapes."""
        return tuple(dict.fromkeys(each.salt_connection for each in self.shape if each.salt_connection is not None))

    def dataset_names(self, connection: Connection | None, destination: str) -> tuple[DatasetName, ...]:
        """What OpenLineage calls the dataset of *destination*, as a table's report has it: its name first, then those under
        which others may know it. Free of secrets. *connection* is that of ``connection_id``.

        Here: the URI that *destination* is, else that table of the connection's database.
        """
        if "://" in destination or connection is None:
            return (of_uri(destination),)
        return (of_table(connection, destination),)

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence["TargetSection"]) -> None:
        """Check that *pipeline*, with the patterns *tables*, can have this target beside *others*; raises ValueError
        otherwise, and calls the section *key*, such as ``targets[0]``. Here: two targets can't have one place."""
        for other in others:
            if other.place == self.place:
                raise ValueError(
                    f"{key}: its place is that of target {other.name} ({self.place}); give each target a place of its own"
                )
