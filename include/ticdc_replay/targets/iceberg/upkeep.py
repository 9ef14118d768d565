"""Maintenance of Iceberg tables, by the procedures of its catalog."""

import re
from datetime import UTC, datetime
from typing import Any

from ticdc_replay.targets.iceberg.table_format import BRANCH, Iceberg
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.table_format import LOAD
from ticdc_replay.targets.lake.tables import properties_of
from ticdc_replay.targets.lake.upkeep import REWRITTEN_RATIO, IsOpen, Removed, TableSize, TableUpkeep
from ticdc_replay.targets.mirror.planning.tables import Relation

_TAG = "ticdc_replay_"
"""Tags keep the snapshots of loads that the ledger has no report of."""
_MADE = re.compile(BRANCH + r"(\d+)_")
"""When a load made a branch, in s."""
_DELETE_FILES = 8
"""So many files of deletes, and a data file is written again. In format 3 a file has one, whatever loads do."""
_GROUP_FILES = 16
"""Of the target size: how much one step of a compaction reads."""


class IcebergUpkeep(TableUpkeep):
    """Tables of one catalog."""

    _format: Iceberg

    def size(self, target: Relation) -> TableSize:
        rows = self._sql.run(
            "SELECT content, count(*) AS files, sum(file_size_in_bytes) AS bytes "
            f"FROM {self._format.name_of(target)}.files GROUP BY content"
        )
        data = [row for row in rows if row["content"] == 0]
        return TableSize(
            sum(row["files"] for row in data),
            sum(row["bytes"] for row in data),
            sum(row["files"] for row in rows if row["content"] != 0),
        )

    def compact(self, target: Relation) -> None:
        size = self._config.maintenance.target_file_bytes
        options = {
            "target-file-size-bytes": str(size),
            "max-file-group-size-bytes": str(_GROUP_FILES * size),
            "max-concurrent-file-group-rewrites": "1",
            "delete-file-threshold": str(_DELETE_FILES),
            "delete-ratio-threshold": REWRITTEN_RATIO,
            "remove-dangling-deletes": "true",
        }
        pairs = ", ".join(f"{string(name)}, {string(value)}" for name, value in options.items())
        how = f", options => map({pairs})"
        if "sort-order" in properties_of(self._sql, self._format.name_of(target)):
            how += ", strategy => 'sort'"  # by the table's own order, which its owner may have changed
        self._call("rewrite_data_files", target, how)
        self._call("rewrite_position_delete_files", target)
        self._call("rewrite_manifests", target, ", use_caching => false")

    def remove(
        self, target: Relation, expired: datetime, orphaned: datetime, is_open: IsOpen, *, dry_run: bool
    ) -> Removed:
        name = self._format.name_of(target)
        heads = {row["name"]: row for row in self._sql.run(f"SELECT name, type, snapshot_id FROM {name}.refs")}
        old = self._sql.run(
            f"SELECT snapshot_id, summary FROM {name}.snapshots WHERE committed_at < {_moment(expired)}"
        )
        loads = {
            row["snapshot_id"]: row["summary"][LOAD]
            for row in old
            if LOAD in row["summary"] and is_open(row["summary"])
        }
        if loads:  # what a killed load has left on its branch alone is not in the table, and a tag would say that it is
            published = self._format.published(self._sql, target)
            loads = {snapshot: load for snapshot, load in loads.items() if snapshot in published}
        tagged = {
            ref: row["snapshot_id"] for ref, row in heads.items() if ref.startswith(_TAG) and row["type"] == "TAG"
        }
        for snapshot in [] if dry_run else loads.keys() - tagged.values():
            self._sql.run(f"ALTER TABLE {name} CREATE TAG {quoted(_TAG + str(snapshot))} AS OF VERSION {snapshot}")
        settled = [ref for ref, snapshot in tagged.items() if snapshot not in loads]
        abandoned = [
            ref
            for ref, row in heads.items()
            if row["type"] == "BRANCH"
            and (made := _MADE.match(ref)) is not None
            and int(made[1]) < min(expired, orphaned).timestamp()
        ]
        for kind, refs in [] if dry_run else (("TAG", settled), ("BRANCH", abandoned)):
            for ref in refs:
                self._sql.run(f"ALTER TABLE {name} DROP {kind} {quoted(ref)}")
        held = {row["snapshot_id"] for ref, row in heads.items() if ref not in (*settled, *abandoned)} | loads.keys()
        snapshots = len([row for row in old if row["snapshot_id"] not in held])
        if snapshots and not dry_run:
            arguments = f", older_than => {_moment(expired)}, retain_last => 1, stream_results => true"
            (done,) = self._call("expire_snapshots", target, arguments)
            snapshots = int(done["deleted_manifest_lists_count"])
        # By prefix, as not every file system that Iceberg writes to is one of Hadoop, too.
        orphans = self._call(
            "remove_orphan_files",
            target,
            f", older_than => {_moment(orphaned)}, prefix_listing => true, dry_run => {str(dry_run).lower()}",
        )
        return Removed(snapshots, tuple(sorted(set(loads.values()))), len(orphans))

    def _call(self, procedure: str, target: Relation, arguments: str = "") -> list[dict[str, Any]]:
        catalog, name = quoted(self._format.config.catalog), string(self._format.name_of(target))
        return self._sql.run(f"CALL {catalog}.system.{procedure}(table => {name}{arguments})")


def _moment(moment: datetime) -> str:
    return f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
