"""Iceberg's statements, and what its snapshots say of a load."""

import logging
import re
from collections.abc import Mapping

from ticdc_replay.targets.iceberg.section import IcebergTarget
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
from ticdc_replay.targets.sql import Sql, SqlError

log = logging.getLogger(__name__)

_PROPERTY = "spark.sql.iceberg.snapshot-property."
_CONFLICTS = re.compile(
    "(?i)conflicting|concurrently|found new|missing required files|missing data files|no deleted data files|"
    "deleted manifest|new delete files|determine history"
)
"""In messages of Iceberg's ValidationExceptions: another commit came first. Without it, they would be raised again."""
_ROWS = "spark.merge-into.num-target-rows-"
BRANCH = "ticdc_replay_"
"""Begin of the name of a branch on which the rows of a slice are changed."""
_FIELD = re.compile(r"[<,]([^<>,:]+):")
"""The names in a struct's type."""
_TRANSFORMS = ("bucket", "trunc", "year", "month", "day", "hour")
_SORTED = (
    "the table is partitioned or sorted by it. Take it out of the layout (ALTER TABLE … DROP PARTITION FIELD, or "
    "WRITE UNORDERED), and run the load again"
)
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
        prefix = f"spark.sql.catalog.{self.config.catalog}"
        own = {f"{prefix}.{name}": value for name, value in self.config.settings.items()} | dict(secret)
        # A catalog that caches tables does not see the commits of others for half a minute.
        usual = {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.cache-enabled": "false",
            # Else a table has the folder of one that was renamed, whose files are orphans to it: maintenance removes them.
            f"{prefix}.unique-table-location": "true",
        }
        return usual | own if own else {}

    def name_of(self, target: Relation) -> str:
        return quoted(self.config.catalog, target.schema, target.table)

    def create_schema(self, schema: str) -> list[str]:
        return [f"CREATE NAMESPACE IF NOT EXISTS {quoted(self.config.catalog, schema)}"]

    def drop_schema(self, schema: str) -> list[str]:
        return [f"DROP NAMESPACE IF EXISTS {quoted(self.config.catalog, schema)}"]

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

    def pinned(self, sql: Sql, target: Relation) -> tuple[str, str]:
        """A snapshot is read with the columns that the table had then: not if they have changed since. A table without rows may
        have no snapshot."""
        name = self.name_of(target)
        for row in sql.run(f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'"):
            pinned = f"{name} VERSION AS OF {row['snapshot_id']}"
            columns = [
                (each["col_name"], each["data_type"]) for each in sql.run(f"DESCRIBE QUERY SELECT * FROM {pinned}")
            ]
            if columns == [(column, type_name) for column, type_name, _ in sql.columns(name)]:
                return str(row["snapshot_id"]), pinned
        return "", name

    def open_branch(self, sql: Sql, target: Relation, branch: str) -> str:
        name = self.name_of(target)
        sql.run(f"ALTER TABLE {name} CREATE BRANCH {quoted(BRANCH + branch)}")
        return f"{name}.{quoted('branch_' + BRANCH + branch)}"

    def publish(self, sql: Sql, target: Relation, branch: str) -> None:
        table, own = string(quoted(target.schema, target.table)), BRANCH + branch
        sql.run(f"CALL {quoted(self.config.catalog)}.system.fast_forward({table}, 'main', {string(own)})")
        try:
            sql.run(f"ALTER TABLE {self.name_of(target)} DROP BRANCH IF EXISTS {quoted(own)}")
        except SqlError as error:
            log.warning("%s: the branch %s is left for maintenance to remove: %s", target, own, error)

    def replace_rows(self, sql: Sql, name: str, condition: str, rows: str) -> list[str]:
        """Iceberg can't overwrite a part of a file. Without rows to delete it is an append to readers, too."""
        insert = f"INSERT INTO {name} {rows}"
        there = sql.run(f"SELECT 1 AS found FROM {name} WHERE {condition} LIMIT 1")
        return [f"DELETE FROM {name} WHERE {condition}", insert] if there else [insert]

    def fence(self, target: Relation) -> str:
        name = self.name_of(target)
        return f"INSERT INTO {name} SELECT * FROM {name} WHERE false"

    def drop_table(self, target: Relation) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.name_of(target)} PURGE"]

    def why_name_stays(self, old: Relation, new: Relation) -> str | None:
        if self.config.folder_of(self.config.settings) is None:
            return None
        return f"the catalog {self.config.catalog}, of type hadoop, can't rename a table"

    def commit_settings(
        self, load: str, entry: Mapping[str, str], transaction: Transaction | None = None
    ) -> dict[str, str]:
        return {_PROPERTY + name: value for name, value in {LOAD: load, **entry}.items()}

    def find_commit(self, sql: Sql, target: Relation, load: str, *, published_by: str = "") -> Commit | None:
        """Of a branch that was not published, no snapshot counts."""
        found = sql.run(
            f"SELECT snapshot_id, summary FROM {self.name_of(target)}.snapshots "
            f"WHERE summary[{string(LOAD)}] = {string(load)} ORDER BY committed_at DESC"
        )
        published = self.published(sql, target) if found and not published_by else set()
        for row in found:
            snapshot, summary = row["snapshot_id"], row["summary"]
            if summary.get(ATTEMPT) == published_by if published_by else snapshot in published:
                return Commit(str(snapshot), _counts_of(summary))
        return None

    def published(self, sql: Sql, target: Relation) -> set[int]:
        """The snapshots that the table has or had, and those of branches and tags that are not of loads."""
        name = self.name_of(target)
        parents = {
            row["snapshot_id"]: row["parent_id"]
            for row in sql.run(f"SELECT snapshot_id, parent_id FROM {name}.snapshots")
        }
        heads = sql.run(f"SELECT name, type, snapshot_id FROM {name}.refs")
        found: set[int] = set()
        for head in heads:
            snapshot = head["snapshot_id"]
            if head["type"] == "BRANCH" and head["name"].startswith(BRANCH):
                continue
            while snapshot in parents and snapshot not in found:
                found.add(snapshot)
                snapshot = parents[snapshot]
        return found

    def is_conflict(self, text: str) -> bool:
        if "CommitFailedException" in text or "is not an ancestor of" in text:
            return True
        return "ValidationException" in text and _CONFLICTS.search(text) is not None

    def why_undroppable(self, sql: Sql, target: Relation, column: str) -> str | None:
        """Also if it is only in an old partition spec: Iceberg can't write to a table whose specs lack a column. The
        metadata table has the fields of all specs, by the names that Iceberg gives them."""
        name = self.name_of(target)
        shown = {row["key"]: row["value"] for row in sql.run(f"SHOW TBLPROPERTIES {name}")}
        if re.search(rf"(^|[ (]){re.escape(column)}(\)| ASC| DESC)", shown.get("sort-order", "")):
            return _SORTED
        types = {name: type_name for name, type_name, _ in sql.columns(f"{name}.files")}
        fields = set(_FIELD.findall(types.get("partition", "")))
        if fields.isdisjoint((column, *(f"{column}_{transform}" for transform in _TRANSFORMS))):
            return None
        return (
            "the table is or was partitioned by it. Run ALTER TABLE … DROP PARTITION FIELD, rewrite_data_files with "
            "'rewrite-all', and expire_snapshots with clean_expired_metadata => true; then run the load again"
        )

    def why_column_stays(self, text: str) -> str | None:
        if "Cannot find source column" in text:
            return _SORTED
        if "identifier field" in text:
            return "it is an identifier field. Run ALTER TABLE … DROP IDENTIFIER FIELDS, and the load again"
        return None

    def is_unknown(self, text: str) -> bool:
        return "CommitStateUnknownException" in text


def _counts_of(summary: Mapping[str, str]) -> Counts:
    if not any(name.startswith(_ROWS) for name in summary):
        return Counts()
    return Counts(*(int(summary[f"{_ROWS}{what}"]) for what in ("inserted", "updated", "deleted")))
