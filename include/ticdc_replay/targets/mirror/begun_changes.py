"""Changes of columns that were begun in a database whose DDL is no part of a transaction: each is noted before its statement,
and taken out after it, so that a load that broke between finds what is to be done again."""

from collections.abc import Sequence

import msgspec

from ticdc_replay.targets.mirror.planning.tables import ColumnMove, FoundColumn, RemoveColumn, RenameColumn


class BegunChange(msgspec.Struct, frozen=True):
    """A statement that changes one column, and may have been done or not: *column* is added if ``adds``, else it is
    renamed *to* another name, or dropped if that is None."""

    column: str
    to: str | None = None
    adds: bool = False
    commit_ts: int = 0
    """Of its DDL (TSO); 0 for a column that is added."""

    @classmethod
    def of(cls, move: ColumnMove) -> "BegunChange | None":
        """What *move* does to the table; None where it does nothing."""
        match move.step.action if move.step is not None else None:
            case RemoveColumn(column):
                return cls(column, commit_ts=move.event.commit_ts)
            case RenameColumn(column, to):
                return cls(column, to, commit_ts=move.event.commit_ts)
        return None

    @property
    def key(self) -> tuple[str, str | None, bool]:
        """What tells it apart from others of a table."""
        return self.column, self.to, self.adds

    @property
    def action(self) -> RemoveColumn | RenameColumn:
        """What is to be done where the table still has the column. A column that was being added goes: no row has a value of
        its own there, and not all may have the default."""
        return RemoveColumn(self.column) if self.to is None else RenameColumn(self.column, self.to)


def as_if_ended(columns: Sequence[FoundColumn], begun: Sequence[BegunChange]) -> list[FoundColumn]:
    """*columns* as if what was *begun* had been done, and no column that is being added were there: it may lack values."""
    found = list(columns)
    for change in begun:
        names = {column.name for column in found}
        if change.to is None:
            found = [column for column in found if column.name != change.column]
        elif change.column in names and change.to not in names:
            found = [
                msgspec.structs.replace(column, name=change.to) if column.name == change.column else column
                for column in found
            ]
    return found
