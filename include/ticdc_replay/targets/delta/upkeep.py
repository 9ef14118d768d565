"""Maintenance of Delta tables.

Delta's log forgets commits by itself, after 30 days or what the table says. A load that broke before its report, and is
repeated later than that, merges its rows again, as a late one.
"""

import math
from datetime import UTC, datetime

from ticdc_replay.targets.lake.dialect import string
from ticdc_replay.targets.lake.table_format import properties_sql
from ticdc_replay.targets.lake.tables import properties_of
from ticdc_replay.targets.lake.upkeep import REWRITTEN_RATIO, IsOpen, Removed, TableSize, TableUpkeep
from ticdc_replay.targets.mirror.planning.tables import Relation

_LOG_DAYS = 30
"""Delta's own default."""
_SMALL = 0.75
"""Files smaller than this part of the target size are put together."""
_LISTING_TASKS = "16"
"""How a folder is divided to be listed, and compared with the log. Spark's own 10,000 make a minute of each table."""


class DeltaUpkeep(TableUpkeep):
    """Tables below a path, or of one catalog.

    On S3, two commits by Delta's own log store exclude each other in one driver alone (``S3SingleDriverLogStore``).
    """

    excludes_loads = True

    def size(self, target: Relation) -> TableSize:
        (detail,) = self._sql.run(f"DESCRIBE DETAIL {self._format.name_of(target)}")
        return TableSize(detail["numFiles"], detail["sizeInBytes"])

    def compact(self, target: Relation) -> None:
        """OPTIMIZE also writes files with deletion vectors again, once enough of a file is deleted: no REORG is needed."""
        size = self._config.maintenance.target_file_bytes
        prefix = "spark.databricks.delta.optimize"
        self._sql.run(
            f"OPTIMIZE {self._format.name_of(target)}",
            {
                f"{prefix}.maxFileSize": str(size),
                f"{prefix}.minFileSize": str(int(_SMALL * size)),
                f"{prefix}.maxDeletedRowsRatio": REWRITTEN_RATIO,
            },
        )

    def remove(
        self, target: Relation, expired: datetime, orphaned: datetime, is_open: IsOpen, *, dry_run: bool
    ) -> Removed:
        """Files of old versions and orphans are one to VACUUM, so the older of both moments counts for both."""
        name, hours = self._format.name_of(target), _hours_since(min(expired, orphaned))
        settings = {
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": _LISTING_TASKS,
            "spark.sql.shuffle.partitions": _LISTING_TASKS,
            # Refuses less than the table's own time; ours is never less than a day.
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.databricks.delta.vacuum.logging.enabled": "true",
        }
        if dry_run:
            return Removed(files=len(self._sql.run(f"VACUUM {name} RETAIN {hours} HOURS DRY RUN", settings)))
        self._keep_log(target)
        self._sql.run(f"VACUUM {name} RETAIN {hours} HOURS", settings)
        for entry in self._sql.run(f"DESCRIBE HISTORY {name} LIMIT 20"):
            if entry["operation"] == "VACUUM END":
                return Removed(files=int(entry["operationMetrics"]["numDeletedFiles"]))
        return Removed()

    def _keep_log(self, target: Relation) -> None:
        """Have the log, and others who call VACUUM, keep what time travel within ``keep_days`` needs."""
        days = self._config.maintenance.keep_days
        wanted = {"delta.deletedFileRetentionDuration": f"interval {days} days"}
        if days > _LOG_DAYS:
            wanted["delta.logRetentionDuration"] = f"interval {days} days"
        name = self._format.name_of(target)
        if not wanted.items() <= properties_of(self._sql, name).items():
            self._sql.run(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties_sql(wanted, string)})")


def _hours_since(moment: datetime) -> int:
    return max(0, math.ceil((datetime.now(UTC) - moment).total_seconds() / 3600))
