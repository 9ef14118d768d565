"""What a mirror asks of a connection to its database and its open transaction."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.direct import Direct
from ticdc_replay.targets.mirror.ledger import Ledger
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeType,
    ColumnDefinition,
    ColumnMove,
    FoundTable,
    MakeTable,
    MirrorStep,
    Observed,
    Relation,
)
from ticdc_replay.targets.mirror.staging import Staged


class Merged(msgspec.Struct, frozen=True):
    """What a merge did: rows put, rows of the target that a delete removed, deletes applied."""

    staged: Staged
    """What was merged: without rows that the merge has set aside."""
    upserted: int = 0
    deleted: int = 0
    tombstones: int = 0
    commit: str = ""
    """As ``TableReport.commit``."""


class Session(ABC):
    """Its methods raise the errors of the database's driver; ``translated`` makes them those of the library."""

    ledger: Ledger
    direct: Direct | None = None
    """How rows of a base get into the table that becomes the mirror; None where they are always merged."""

    @abstractmethod
    def translated(self, doing: str) -> AbstractContextManager[None]:
        """Turns the driver's errors into those of the library; *doing* says what failed, for example ``load "a"."b"``."""

    @abstractmethod
    def commit(self) -> None:
        """Commit, and begin a new transaction."""

    @abstractmethod
    def commit_rows(self, target: Relation) -> None:
        """Commit what was applied to *target*. Raises CommitStateUnknownError when the connection broke in it."""

    @abstractmethod
    def lock_table(self, target: Relation) -> None:
        """Wait until no other transaction commits to *target*, and block others until this one ends."""

    @abstractmethod
    def begin_merge(self, target: Relation) -> None:
        """``lock_table`` for a transaction that merges: a lock that somebody holds for ever ends in an error."""

    @abstractmethod
    def find_table(self, target: Relation) -> FoundTable | None:
        """*target* as it is now, or None where there is no such table."""

    @abstractmethod
    def is_empty(self, target: Relation) -> bool:
        """Whether the table has no row."""

    def observe(self, target: Relation) -> Observed:
        """*target* as it is now."""
        found = self.find_table(target)
        is_table = found is not None and found.is_table
        return Observed(found, self.ledger.state_of(target), lambda: not is_table or self.is_empty(target))

    @abstractmethod
    def has_rows_between(
        self, target: Relation, column: str, after: int, before: int, null_column: str | None = None
    ) -> bool:
        """Whether the table has rows with ``after < column < before``, and with NULL in *null_column* if it is given."""

    @abstractmethod
    def has_rows_from(self, target: Relation, column: str, version: int) -> bool:
        """Whether the table has rows with ``column >= version``."""

    @abstractmethod
    def newest(self, target: Relation, column: str) -> int:
        """The largest value of *column*; 0 where there is no row."""

    @abstractmethod
    def version_of(
        self, target: Relation, column: str, key: Mapping[str, object], deleted_column: str | None = None
    ) -> tuple[int, bool] | None:
        """The value of *column* in the row with *key*, and whether *deleted_column* marks it as deleted; None where there is no
        such row. *key* has all columns of the primary key, with values of Python as ``Dialect.staged_cells`` gives them."""

    @abstractmethod
    def delete_below(self, target: Relation, column: str, version: int) -> int:
        """Delete rows with ``column < version``; how many."""

    @abstractmethod
    def truncate(self, target: Relation, column: str, version: int) -> None:
        """Delete all rows; all have ``column < version``."""

    @abstractmethod
    def drop_table(self, target: Relation) -> None:
        """Drop the table where it exists."""

    def drop_mirror(self, plan: TablePlan) -> None:
        """Drop the mirror of *plan*, whose upstream was dropped, and its tombstones."""
        for relation in (plan.target, plan.tombstones):
            self.drop_table(relation)

    def clear_tombstones(self, target: Relation, tombstones: Relation, version_column: str, floor_ts: int) -> None:
        """Drop the *tombstones* of *target* below *floor_ts* (TSO), which are no longer needed; the table itself if it
        is then empty."""
        found = self.find_table(tombstones)
        if found is None or found.column(version_column) is None:
            return
        self.delete_below(tombstones, version_column, floor_ts)
        if self.is_empty(tombstones):
            self.drop_table(tombstones)

    def fit_tombstones(self, plan: TablePlan, mirror: FoundTable) -> None:
        """Make the tombstones of *plan*, or widen them, so that they hold every key of *mirror*."""
        found = self.find_table(plan.tombstones)
        types = {column.name: column.type for column in mirror.columns}
        key = [ColumnDefinition(column.target, types[column.target]) for column in plan.key]
        if found is None:
            names = tuple(column.name for column in key)
            self.change(plan.tombstones, MirrorStep(MakeTable(tuple(key), plan.version_column, names)))
            return
        for column in key:
            remembered = found.column(column.name)
            if remembered is not None and not plan.dialect.holds(remembered.type, column.type):
                self.change(plan.tombstones, MirrorStep(ChangeType(column.name, column.type)))

    @abstractmethod
    def create_schema(self, schema: str) -> None:
        """Make *schema* where it does not exist."""

    @abstractmethod
    def change(self, target: Relation, step: MirrorStep) -> list[str]:
        """Do *step* to *target*. Returns what had to go for it, such as an index that a row does not fit. Raises
        TargetMismatchError if existing rows have no room for it."""

    def follow(self, target: Relation, move: ColumnMove) -> list[str]:
        """Note *move*, and do its steps to *target*. Returns what was done, and what ``change`` returns."""
        told = []
        for fill in move.fills:  # before it is noted: a load that breaks here does it again
            told += [*([fill.text] if fill.text else []), *self.change(target, fill)]
        self.ledger.note_column_event(target, move)
        return told if move.step is None else [*told, move.step.text, *self.change(target, move.step)]

    @abstractmethod
    def make_staging(self, load: Load, plan: TablePlan, defaults: Mapping[str, str], names: Sequence[str]) -> None:
        """Make the staging tables *names* for *plan*; the attempt of *load* or a later one drops them. *defaults* are
        SQL literals by column of the mirror, for rows that lack it."""

    @abstractmethod
    def drop_staging(self, names: Sequence[str]) -> None:
        """Drop the staging tables *names*."""

    @abstractmethod
    def merge(
        self, load: Load, plan: TablePlan, staged: Staged, found: FoundTable, *, in_order: bool, observed: Observed
    ) -> tuple[Merged, list[str]]:
        """Bring the *staged* versions, one of each key, into the mirror of *plan*, which is *found*, and its tombstones.

        Returns what was done, and what had to go for it, as ``change`` does.

        A key is either in the mirror, with the version of its row, or in the tombstones, with the version of its
        delete. If the plan has a ``deleted_column``, deleted rows stay in the mirror, marked, and there are no tombstones. A
        staged version below the floor, or older than either, changes nothing; an equal version replaces if it
        is a put, not if it is a delete. Secondary unique values may move between rows. *in_order*: all are newer than
        any that was applied; *observed*: the mirror before.

        Raises TargetMismatchError if a row ordered by place was in another partition, or if the mirror has rows newer
        than its ledger knows though *in_order*; UnrepresentableValueError for a row without room, if policy stops.
        """
