"""What maintenance asks of a table format, and what it reports."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.table_format import TableFormat
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import Sql

REWRITTEN_RATIO = "0.1"
"""A file is written again once so much of it is deleted: until then a reader skips deleted rows at little cost."""

IsOpen = Callable[[Mapping[str, str]], bool]
"""Whether the ledger has no report of the load that the mark of a commit names: its repeat looks for that commit."""


class TableSize(msgspec.Struct, frozen=True):
    """What a reader of a table opens."""

    files: int
    bytes: int
    delete_files: int = 0
    """Files of deletes, or deletion vectors; 0 where the format can't tell."""


class Removed(msgspec.Struct, frozen=True):
    """What was removed of a table; in a dry run, what would be."""

    snapshots: int = 0
    """0 where the format removes them by itself."""
    kept: tuple[str, ...] = ()
    """Loads whose snapshots are old, and stay: the ledger has no report of them."""
    files: int = 0
    """Without those of the snapshots, where the format counts them apart."""


class TableUpkeep(ABC):
    """The maintenance of the tables of one format. Every method raises SqlError; each may run beside loads."""

    excludes_loads = False
    """Whether loads must wait meanwhile: where a commit of another driver may be lost."""

    def __init__(self, sql: Sql, table_format: TableFormat) -> None:
        self._sql = sql
        self._format = table_format

    @property
    def _config(self) -> LakeSection:
        return self._format.config

    @abstractmethod
    def size(self, target: Relation) -> TableSize:
        """The size of the current snapshot."""

    @abstractmethod
    def compact(self, target: Relation) -> None:
        """Write small files, and files with many deleted rows, again. A conflict with a load leaves the table as it was."""

    @abstractmethod
    def remove(
        self, target: Relation, expired: datetime, orphaned: datetime, is_open: IsOpen, *, dry_run: bool
    ) -> Removed:
        """Remove snapshots from before *expired*, but the newest one and those of *is_open*, with the files that they
        alone have; and files that no snapshot has, if they are older than *orphaned*, which is a day ago or more."""


class MaintainedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one table."""

    table: TableName
    destination: str
    outcome: Literal["maintained", "dry_run", "missing", "not_ours", "swapping", "failed"]
    """``missing``: it was dropped; ``not_ours``: it is not the table that the ledger knows; ``swapping``: a rebuilt mirror is
    about to take its place; ``failed``: see ``error``."""
    before: TableSize | None = None
    after: TableSize | None = None
    removed: Removed = Removed()
    tombstone_files: int = 0
    """That the ledger lists, before."""
    tombstone_files_after: int = 0
    tombstones: int = 0
    """Deletes that the ledger remembers, before."""
    tombstones_after: int = 0
    conflicts: int = 0
    """Commits of loads that a compaction gave way to."""
    is_compacted: bool = True
    """Whether the compaction was done at last."""
    error: str = ""
    is_permanent: bool = False
    """Of ``error``: whether another attempt would fail again."""


class MaintenanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one job did to one target."""

    pipeline: str
    target: str
    place: str
    dry_run: bool
    began_at_ms: int
    took_ms: int
    tables: tuple[MaintainedTable, ...]
    ledger_files: int
    """Of dead attempts, and replaced tombstones: removed from the ledger's folder, or in a dry run to be removed."""

    @property
    def counts(self) -> dict[str, int]:
        """For people, in a line."""
        sizes = [(table.before, table.after) for table in self.tables if table.before and table.after]
        return {
            "tables": len(self.tables),
            "files_before": sum(before.files + before.delete_files for before, _ in sizes),
            "files_after": sum(after.files + after.delete_files for _, after in sizes),
            "snapshots_removed": sum(table.removed.snapshots for table in self.tables),
            "snapshots_kept": sum(len(table.removed.kept) for table in self.tables),
            "orphans_removed": sum(table.removed.files for table in self.tables),
            "tombstone_files_before": sum(table.tombstone_files for table in self.tables),
            "tombstone_files_after": sum(table.tombstone_files_after for table in self.tables),
            "ledger_files_removed": self.ledger_files,
            "conflicts": sum(table.conflicts for table in self.tables),
            "failed": len([table for table in self.tables if table.outcome == "failed"]),
        }
