"""Iceberg's statements, and what its snapshots say of a load."""

import re
from collections.abc import Mapping

from ticdc_replay.targets.iceberg.section import IcebergTarget
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.section import TableLayout
from ticdc_replay.targets.lake.table_format import (
    LOAD,
    Commit,
    Counts,
    TableFormat,
    Transaction,
    number,
    properties_sql,
)
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql

_PROPERTY = "spark.sql.iceberg.snapshot-property."
_ROWS = "spark.merge-into.num-target-rows-"
_BRANCH = "ticdc_replay_"
"""Begin of the name of a branch on which the rows of a slice are changed."""
_FIELD = re.compile(r"[<,]([^<>,:]+):")
"""The names in a struct's type."""
_TRANSFORMS = ("bucket", "trunc", "year", "month", "day", "hour")
_MODES = {f"write.{kind}.mode": "merge-on-read" for kind in ("merge", "update", "delete")}
_NO_SHUFFLE = {"write.distribution-mode": "none"} | {
    f"write.{kind}.distribution-mode": "none" for kind in ("merge", "update", "delete")
}
"""Rows arrive as they were joined; sorting them among workers once more costs more than the MERGE."""


class Iceberg(TableFormat):
    """Tables of one catalog."""

    config: IcebergTarget
    changes_types = frozenset({("int", "bigint"), ("float", "double")})
    changes_scales = False

    def catalog_settings(self, secret: Mapping[str, str]) -> dict[str, str]:
        own = {**self.config.settings, **secret}
        if not own:
            return {}
        prefix = f"spark.sql.catalog.{self.config.catalog}"
        # A catalog that caches tables does not see the commits of others for half a minute.
        return {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"} | {
            f"{prefix}.{name}": value for name, value in own.items()
        }

    def name_of(self, target: Relation) -> str:
        return quoted(self.config.catalog, target.schema, target.table)

    def create_schema(self, schema: str) -> list[str]:
        return [f"CREATE NAMESPACE IF NOT EXISTS {quoted(self.config.catalog, schema)}"]

    def create_table(
        self, target: Relation, columns: str, layout: TableLayout, properties: Mapping[str, str], *, replaces: bool
    ) -> list[str]:
        ours = {
            "format-version": str(self.config.format_version),
            **_MODES,
            **_NO_SHUFFLE,
            "write.parquet.compression-codec": "zstd",
            "write.delete.granularity": "file",
        }
        name = self.name_of(target)
        partitioned = f" PARTITIONED BY ({', '.join(layout.partition_by)})" if layout.partition_by else ""
        together = properties_sql({**ours, **layout.properties, **properties}, string)
        statements = [f"CREATE TABLE {name} ({columns}) USING iceberg{partitioned} TBLPROPERTIES ({together})"]
        if layout.sort_by:
            statements.append(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY {', '.join(layout.sort_by)}")
        return statements

    def open_branch(self, sql: Sql, target: Relation, branch: str) -> str:
        """Branches that other loads have left are dropped: one of a load that goes on can't be published any more."""
        name = self.name_of(target)
        for row in sql.run(f"SELECT name FROM {name}.refs WHERE type = 'BRANCH'"):
            if row["name"].startswith(_BRANCH):
                sql.run(f"ALTER TABLE {name} DROP BRANCH IF EXISTS {quoted(row['name'])}")
        sql.run(f"ALTER TABLE {name} CREATE BRANCH {quoted(_BRANCH + branch)}")
        return f"{name}.{quoted('branch_' + _BRANCH + branch)}"

    def publish(self, sql: Sql, target: Relation, branch: str) -> None:
        table, own = string(quoted(target.schema, target.table)), _BRANCH + branch
        sql.run(f"CALL {quoted(self.config.catalog)}.system.fast_forward({table}, 'main', {string(own)})")
        sql.run(f"ALTER TABLE {self.name_of(target)} DROP BRANCH IF EXISTS {quoted(own)}")

    def replace_rows(self, sql: Sql, name: str, condition: str, rows: str) -> list[str]:
        """Iceberg can't overwrite a part of a file. Without rows to delete it is an append to readers, too."""
        insert = f"INSERT INTO {name} {rows}"
        there = sql.run(f"SELECT 1 AS found FROM {name} WHERE {condition} LIMIT 1")
        return [f"DELETE FROM {name} WHERE {condition}", insert] if there else [insert]

    def drop_table(self, target: Relation) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.name_of(target)} PURGE"]

    def commit_settings(
        self, load: str, entry: Mapping[str, str], transaction: Transaction | None = None
    ) -> dict[str, str]:
        return {_PROPERTY + name: value for name, value in {LOAD: load, **entry}.items()}

    def find_commit(self, sql: Sql, target: Relation, load: str) -> Commit | None:
        snapshots = f"{self.name_of(target)}.snapshots"
        found = sql.run(
            f"SELECT snapshot_id, summary FROM {snapshots} WHERE summary[{string(LOAD)}] = {string(load)} "
            "ORDER BY committed_at DESC LIMIT 1"
        )
        if not found:
            return None
        snapshot, summary = found[0]["snapshot_id"], found[0]["summary"]
        if not any(name.startswith(_ROWS) for name in summary):
            return Commit(str(snapshot), Counts())
        return Commit(
            str(snapshot),
            Counts(
                number(summary, [f"{_ROWS}inserted"]),
                number(summary, [f"{_ROWS}updated"]),
                number(summary, [f"{_ROWS}deleted"]),
            ),
        )

    def is_conflict(self, text: str) -> bool:
        return "is not an ancestor of" in text or any(
            f"org.apache.iceberg.exceptions.{name}" in text for name in ("ValidationException", "CommitFailedException")
        )

    def why_undroppable(self, sql: Sql, target: Relation, column: str) -> str | None:
        """Also if it is only in an old partition spec: Iceberg can't write to a table whose specs lack a column. The
        metadata table has the fields of all specs, by the names that Iceberg gives them."""
        types = {name: type_name for name, type_name, _ in sql.columns(f"{self.name_of(target)}.files")}
        fields = set(_FIELD.findall(types.get("partition", "")))
        if fields.isdisjoint((column, *(f"{column}_{transform}" for transform in _TRANSFORMS))):
            return None
        return (
            "the table is or was partitioned by it. Run ALTER TABLE … DROP PARTITION FIELD, rewrite_data_files with "
            "'rewrite-all', and expire_snapshots with clean_expired_metadata => true; then run the load again"
        )

    def why_column_stays(self, text: str) -> str | None:
        if "Cannot find source column" in text:
            return (
                "the table is partitioned or sorted by it. Take it out of the layout (ALTER TABLE … DROP PARTITION FIELD, or "
                "WRITE UNORDERED), and run the load again"
            )
        if "identifier field" in text:
            return "it is an identifier field. Run ALTER TABLE … DROP IDENTIFIER FIELDS, and the load again"
        return None

    def is_unknown(self, text: str) -> bool:
        return "CommitStateUnknownException" in text
