"""A base goes directly into its mirror: workers put its rows into the table that becomes the mirror, and nothing is merged.

That is possible where there is no mirror yet (``base.is_direct``). All tasks fill one table, in the room of staging tables, so
that nobody sees it before its ledger does. The table has the form that the plan's steps give an empty mirror; the load makes
that, too, and lets the filled one take its place, with its indexes, owner and grants. Rows with the same key are found by the
primary key.
"""

from abc import ABC, abstractmethod

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import FoundTable, MakeTable, Observed, Relation
from ticdc_replay.targets.mirror.staging import Staged


class Direct(ABC):
    """What a session does to such tables. Its methods raise the errors of the database's driver."""

    @abstractmethod
    def make(self, load: Load, target: Relation, make: MakeTable, name: str) -> None:
        """Make the staging table *name*, which is to become *target*, as *make* makes that."""

    def take(self, plan: TablePlan, staged: Staged, found: FoundTable, observed: Observed) -> list[str]:
        """Let the *staged* table be the mirror of *plan*, which this load has made empty, and is *found*; *observed* is what was
        there before. Returns what had to go for it.

        Raises TransientError if the table that was staged is no longer what is needed, and TargetMismatchError where two rows
        have the same key.
        """
        filled = Relation(LEDGER_SCHEMA, staged.stages[0])
        if observed.found is not None:
            raise TransientError(f"{plan.target} was made by another load while this one staged its rows; try again")
        if self.columns(filled) != [(column.name, column.type) for column in found.columns]:
            raise TransientError(f"{plan.target} is to have other columns by now than this load has staged; try again")
        rows = self.count(filled)
        if rows != staged.keys:
            raise TransientError(
                f"{rows} rows of {plan.target} are staged, and workers reported {staged.keys}; try again"
            )
        return self.replace(plan, filled, found)

    @abstractmethod
    def columns(self, table: Relation) -> list[tuple[str, str]]:
        """The names and types of the columns of *table*, in their order."""

    @abstractmethod
    def count(self, table: Relation) -> int:
        """The number of rows of *table*."""

    @abstractmethod
    def replace(self, plan: TablePlan, filled: Relation, found: FoundTable) -> list[str]:
        """Let *filled* take the place of the mirror of *plan*, which is *found* and empty, with its key and indexes; what it
        can't have of them. Raises TargetMismatchError where two rows have the same key."""
