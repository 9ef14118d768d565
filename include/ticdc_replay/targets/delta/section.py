"""Delta tables as a kind of target: what a pipeline says of them."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.dataset_names import DatasetName, identifiers, of_uri
from ticdc_replay.targets.lake.section import HIDDEN, CatalogName, LakeSection

_PATH = re.compile(r"[a-z][a-z0-9+.-]*://?[^?#`]+")


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError("must be a folder as Spark has it, such as s3a://bucket/lake or file:///lake")
    return text.rstrip("/")


class DeltaTarget(LakeSection):
    """Delta tables below a path, or in a catalog: the last version of each row, or every version."""

    database: ClassVar[str] = "Delta"
    table_format: ClassVar[str] = "ticdc_replay.targets.delta.table_format:Delta"
    table_upkeep: ClassVar[str] = "ticdc_replay.targets.delta.upkeep:DeltaUpkeep"

    type: Literal["delta"]
    path: Annotated[str, AfterValidator(_path)] | None = Field(
        None, description="Folder of the tables, as Spark has it: s3a://bucket/lake, file:///lake; without a catalog"
    )
    catalog: CatalogName = Field(
        "spark_catalog", description="Spark's name of the catalog, where tables have no `path`"
    )

    @property
    def tables_place(self) -> str:
        return f"catalog {self.catalog}" if self.path is None else self.path

    @property
    def spark_properties(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.redaction.regex": HIDDEN,
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    @staticmethod
    def folder_of(settings: Mapping[str, str]) -> str | None:
        """None: where a catalog keeps a table is its own decision."""
        return None

    def dataset_names(self, connection: Connection | None, destination: str) -> tuple[DatasetName, ...]:
        if self.path is None:
            return super().dataset_names(connection, destination)
        return (of_uri(self.path).below(*identifiers(destination)),)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and (self.catalog != "spark_catalog" or self.settings or self.connection):
            raise ValueError("`path` excludes `catalog`, `settings` and `connection`: its tables are in no catalog")
        return self
