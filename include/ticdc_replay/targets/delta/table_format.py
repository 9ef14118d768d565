"""Delta's statements, and what its log says of a load."""

import json
import re
from collections.abc import Mapping

from ticdc_replay.targets.delta.section import DeltaTarget
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.section import TableLayout
from ticdc_replay.targets.lake.table_format import (
    ATTEMPT,
    LOAD,
    Commit,
    Counts,
    TableFormat,
    Transaction,
    properties_sql,
)
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql

_DROPPED = "ticdc-replay.dropped"
_ROWS = "numTargetRows"
_UNMAPPED = (
    "the table has no column mapping. Run ALTER TABLE … SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'), and the "
    "load again"
)
_IN_LAYOUT = "the table is partitioned or clustered by it. Write it again with another layout, and run the load again"
_CHECK = "delta.constraints."
_LOOKED_AT = 200
"""Commits of the log that are searched: a load looks for its own, or for that of an attempt that broke."""


class Delta(TableFormat):
    """Tables below one path, or of one catalog. A table below a path can't be dropped by a statement: it is replaced by
    one without rows that says so."""

    config: DeltaTarget
    changes_types = frozenset(
        {("int", "bigint"), ("float", "double"), ("int", "double")}
        | {(narrow, f"decimal({digits},0)") for narrow in ("int", "bigint") for digits in range(10, 39)}
    )
    changes_scales = True
    has_transactions = True

    def catalog_settings(self, secret: Mapping[str, str]) -> dict[str, str]:
        prefix = f"spark.sql.catalog.{self.config.catalog}"
        return {f"{prefix}.{name}": value for name, value in self.config.settings.items()} | dict(secret)

    def name_of(self, target: Relation) -> str:
        if self.config.path is None:
            return quoted(self.config.catalog, target.schema, target.table)
        return quoted("delta", f"{self.config.path}/{target.schema}/{target.table}")

    def pinned(self, sql: Sql, target: Relation) -> tuple[str, str]:
        name = self.name_of(target)
        (newest,) = sql.run(f"DESCRIBE HISTORY {name} LIMIT 1")
        return str(newest["version"]), f"{name} VERSION AS OF {newest['version']}"

    def create_schema(self, schema: str) -> list[str]:
        if self.config.path is not None:
            return []
        return [f"CREATE NAMESPACE IF NOT EXISTS {quoted(self.config.catalog, schema)}"]

    def drop_schema(self, schema: str) -> list[str]:
        if self.config.path is not None:
            return []
        return [f"DROP NAMESPACE IF EXISTS {quoted(self.config.catalog, schema)}"]

    def create_table(
        self, target: Relation, columns: str, layout: TableLayout, properties: Mapping[str, str], *, replaces: bool
    ) -> list[str]:
        ours = {
            "delta.enableDeletionVectors": "true",
            "delta.columnMapping.mode": "name",
            "delta.feature.timestampNtz": "supported",
        }
        verb = "REPLACE TABLE" if replaces else "CREATE TABLE"
        clustered = f" CLUSTER BY ({', '.join(layout.sort_by)})" if layout.sort_by else ""
        partitioned = f" PARTITIONED BY ({', '.join(layout.partition_by)})" if layout.partition_by else ""
        together = properties_sql({**ours, **layout.properties, **properties}, string)
        return [
            f"{verb} {self.name_of(target)} ({columns}) USING delta{partitioned}{clustered} TBLPROPERTIES ({together})"
        ]

    def replace_rows(self, sql: Sql, name: str, condition: str, rows: str) -> list[str]:
        return [f"INSERT INTO {name} REPLACE WHERE {condition} {rows}"]

    def fence(self, target: Relation) -> str:
        """An INSERT would have to name all columns, and must not name those that Delta numbers."""
        no_rows = "(SELECT 1 AS none WHERE false)"
        return f"MERGE INTO {self.name_of(target)} t USING {no_rows} s ON false WHEN MATCHED THEN DELETE"

    def drop_table(self, target: Relation) -> list[str]:
        if self.config.path is None:
            return [f"DROP TABLE IF EXISTS {self.name_of(target)}"]
        gone = properties_sql({_DROPPED: "true"}, string)
        return [f"REPLACE TABLE {self.name_of(target)} (dropped INT) USING delta TBLPROPERTIES ({gone})"]

    def change_type(self, target: Relation, column: str, type_name: str) -> list[str]:
        """Type widening is switched on with the first change: readers other than Spark refuse tables that have it."""
        name = self.name_of(target)
        return [
            f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            f"ALTER TABLE {name} ALTER COLUMN {quoted(column)} TYPE {type_name}",
        ]

    def why_name_stays(self, old: Relation, new: Relation) -> str | None:
        if self.config.path is not None:
            return "a table below a path can't be renamed: its folder is its name"
        return None if old.schema == new.schema else f"{self.config.catalog} renames tables within one schema only"

    def is_dropped(self, properties: Mapping[str, str]) -> bool:
        return _DROPPED in properties

    def commit_settings(
        self, load: str, entry: Mapping[str, str], transaction: Transaction | None = None
    ) -> dict[str, str]:
        settings = {"spark.databricks.delta.commitInfo.userMetadata": json.dumps({LOAD: load, **entry})}
        if transaction is not None:
            settings |= {
                "spark.databricks.delta.write.txnAppId": f"ticdc-replay/{transaction.name}",
                "spark.databricks.delta.write.txnVersion": str(transaction.number),
            }
        return settings

    def find_commit(self, sql: Sql, target: Relation, load: str, *, published_by: str = "") -> Commit | None:
        name = self.name_of(target)
        for entry in sql.run(f"DESCRIBE HISTORY {name} LIMIT {_LOOKED_AT}"):
            version, metadata, metrics = (entry[part] for part in ("version", "userMetadata", "operationMetrics"))
            mark = _mark_of(metadata)
            if mark.get(LOAD) == load and (not published_by or mark.get(ATTEMPT) == published_by):
                if f"{_ROWS}Inserted" not in metrics:
                    return Commit(str(version), Counts())
                return Commit(
                    str(version),
                    Counts(
                        int(metrics[f"{_ROWS}Inserted"]),
                        int(metrics[f"{_ROWS}Updated"]),
                        int(metrics[f"{_ROWS}Deleted"]),
                    ),
                )
        return None

    def is_conflict(self, text: str) -> bool:
        return "io.delta.exceptions.Concurrent" in text or "[DELTA_CONCURRENT_" in text

    def why_undroppable(self, sql: Sql, target: Relation, column: str) -> str | None:
        (detail,) = sql.run(f"DESCRIBE DETAIL {self.name_of(target)}")
        if column in (*detail["partitionColumns"], *(detail.get("clusteringColumns") or ())):
            return _IN_LAYOUT
        for name, value in detail["properties"].items():
            if name.startswith(_CHECK) and re.search(rf"(?i)(?<!\w){re.escape(column)}(?!\w)", value):
                constraint = name.removeprefix(_CHECK)
                return f"the constraint {constraint} may need it: {value}. Run ALTER TABLE … DROP CONSTRAINT, and the load again"
        return _UNMAPPED if detail["properties"].get("delta.columnMapping.mode", "none") == "none" else None

    def may_compute_columns(self, sql: Sql, target: Relation) -> bool:
        """As the table's features say: its generated columns are in the log alone, and the feature stays when they go."""
        (detail,) = sql.run(f"DESCRIBE DETAIL {self.name_of(target)}")
        return "generatedColumns" in detail["tableFeatures"]

    def why_column_stays(self, text: str) -> str | None:
        if "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE" in text:
            return "a generated column is computed from it. Drop that one, and run the load again"
        if (
            "COLUMN_MAPPING" in text
            or "DELTA_UNSUPPORTED_DROP_COLUMN" in text
            or "DELTA_UNSUPPORTED_RENAME_COLUMN" in text
        ):
            return _UNMAPPED
        return _IN_LAYOUT if "PARTITION_COLUMN" in text or "CLUSTERING_COLUMN" in text else None

    def is_unknown(self, text: str) -> bool:
        return False


def _mark_of(metadata: str | None) -> Mapping[str, object]:
    """The mark of a commit, empty if it has none. A commit of others may have any text."""
    try:
        found = json.loads(metadata or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
