"""Iceberg tables as a kind of target: what a pipeline says of them."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay.targets.lake.section import HIDDEN, CatalogName, LakeSection


class IcebergTarget(LakeSection):
    """Iceberg tables in a catalog: the last version of each row, or every version."""

    database: ClassVar[str] = "Iceberg"
    table_format: ClassVar[str] = "ticdc_replay.targets.iceberg.table_format:Iceberg"
    table_upkeep: ClassVar[str] = "ticdc_replay.targets.iceberg.upkeep:IcebergUpkeep"
    system_columns: ClassVar[frozenset[str]] = frozenset(
        {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
    )

    type: Literal["iceberg"]
    catalog: CatalogName = Field(
        description="Spark's name of the catalog; a name without settings is one of the cluster's"
    )
    format_version: Literal[2, 3] = Field(
        3, description="Of tables that are made. 3 has deletion vectors; 2 where readers need it"
    )

    @property
    def tables_place(self) -> str:
        known = [self.settings[name] for name in ("uri", "warehouse") if name in self.settings]
        return f"catalog {self.catalog}" + (f" ({', '.join(known)})" if known else "")

    @property
    def spark_properties(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.redaction.regex": HIDDEN,
        }

    @staticmethod
    def folder_of(settings: Mapping[str, str]) -> str | None:
        """The warehouse of a catalog without a server; any other gives each table a folder with a unique name."""
        return settings.get("warehouse") if settings.get("type") == "hadoop" else None
