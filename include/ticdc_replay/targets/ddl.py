"""What a target's rules make of the DDL of a window: what empties a mirror, and what will stop a load."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.config.target_rules import DdlPolicy, DdlRule, DropColumn, Rules
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    TableCreated,
    kind_of,
)
from ticdc_replay.schemas.ddl.reader import TableKey, key_of


def stopping_policies(
    ddl: str, truncate: str, drop: str, drop_column: DropColumn | None = None
) -> frozenset[DdlPolicy]:
    """Those of the policies that stop loads: with *ddl* ``stop`` all of them."""
    if ddl == "stop":
        return frozenset(("ddl", "truncate", "drop", "drop_column"))
    asked: dict[DdlPolicy, str | None] = {"truncate": truncate, "drop": drop, "drop_column": drop_column}
    return frozenset(name for name, value in asked.items() if value == "stop")


_COLUMNS_CHANGE = frozenset(("column_dropped", "column_renamed", "column_changed", "column_narrowed", "key_changed"))
_ANOTHER_TABLE = frozenset(("dropped", "renamed_away", "renamed_here", "recovered", "not_understood"))


class Emptied(msgspec.Struct, frozen=True):
    """The last TRUNCATE or DROP of a window that a mirror follows: no row up to ``commit_ts`` (TSO) is left.

    ``dropped``: the window dropped the table itself. ``form_ts`` (TSO): the last DDL up to this one after which the
    name means another table, or 0. A TRUNCATE keeps columns and keys.
    """

    commit_ts: int
    dropped: bool
    form_ts: int

    def settles(self, commit_ts: int, change: Change) -> bool:
        """Whether *change*, of a DDL of *commit_ts* (TSO), stops no load because nothing is left of what it concerns."""
        return commit_ts <= self.form_ts or (commit_ts <= self.commit_ts and not stops_without_rows(change))


def emptied_by(
    changes: Sequence[TableChanges], rules: Rules, stopping: frozenset[DdlPolicy], order: VersionOrder
) -> Emptied | None:
    """The last of *changes*, those of one table, that empties its mirror. None if a policy forbids to follow one of
    them, and in windows by offset: there nothing shows which rows are older."""
    emptying = [
        (entry.commit_ts, change)
        for entry in changes
        for change in entry.changes
        if isinstance(change, BreakingChange) and change.empties
    ]
    stops = any(rules[change.kind].stops(stopping) for _, change in emptying)
    if not emptying or stops or order == "place":
        return None
    last_ts = emptying[-1][0]
    return Emptied(last_ts, any(change.kind == "dropped" for _, change in emptying), another_table_ts(changes, last_ts))


def changes_by_table(changes: Iterable[TableChanges]) -> dict[TableName, tuple[TableChanges, ...]]:
    """*changes* of each table, in their order."""
    found: dict[TableName, list[TableChanges]] = {}
    for entry in changes:
        found.setdefault(entry.table, []).append(entry)
    return {table: tuple(entries) for table, entries in found.items()}


def another_table_ts(changes: Iterable[TableChanges], until_ts: int) -> int:
    """The last of *changes* up to *until_ts* after which the name stands for another table: its commitTs (TSO), or 0."""
    return max(
        (
            entry.commit_ts
            for entry in changes
            if entry.commit_ts <= until_ts and any(kind_of(change) in _ANOTHER_TABLE for change in entry.changes)
        ),
        default=0,
    )


def stops_without_rows(change: Change) -> bool:
    """Whether *change* stops a load also where no row from before it is left, as it changes columns or keys."""
    return kind_of(change) in _COLUMNS_CHANGE


def stops_always(change: Change, order: VersionOrder) -> bool:
    """Whether no mirror follows *change*, whatever the policies say: one that only a person can follow, or, in windows by
    offset, one of which rows have to be older or newer. TRUNCATE and DROP are left to ``emptied_by``."""
    if isinstance(change, ColumnDropped | ColumnRenamed):
        return order == "place"
    return isinstance(change, BreakingChange) and (order == "place" or not change.empties)


def foreseen_stops(
    index: ChangelogIndex, wanted: TablePatterns, rules: Rules, stopping: frozenset[DdlPolicy]
) -> Iterator[str]:
    """The DDL of *index* that will stop a load into a target of these *rules*, one line each. The target is not asked:
    a floor above the DDL, or a missing table, lets it through."""
    by_table: dict[TableKey, list[TableChanges]] = {}
    for entry in index.changes:
        if wanted.wants(entry.table.schema, entry.table.table):
            by_table.setdefault(key_of(entry.table), []).append(entry)
    for changes in by_table.values():
        emptied = emptied_by(changes, rules, stopping, index.order)
        for entry in changes:
            for change in entry.changes:
                if emptied is not None and emptied.settles(entry.commit_ts, change):
                    continue
                rule = rules[kind_of(change)]
                if rule.stops(stopping) or (rule.outcome == "apply" and stops_always(change, index.order)):
                    yield stop_text(entry.table, entry.commit_ts, words_of(change), rule)


def words_of(change: Change) -> str:
    """What *change* did, for people."""
    match change:
        case ColumnAdded(column=column):
            return f"the column {column.name} was added"
        case ColumnWidened(after=column):
            return f"the column {column.name} holds more values"
        case NoRowChange() | ColumnDropped() | ColumnRenamed() | BreakingChange():
            return change.what
        case TableCreated():
            return "the table was created"


def stop_text(table: TableName, commit_ts: int, what: str, rule: DdlRule) -> str:
    """One line that says which change of *table* stops a load, and what a person does about it."""
    return f"{table} at {describe(commit_ts)}: {what}: {rule.remedy}"
