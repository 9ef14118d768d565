"""What each kind of target does about each kind of DDL: the one place that says so.

The mirror asks it which changes to follow, the check which of them will stop a load, and the table in docs/targets.md is
held against it by a test.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.changelog.version_order import VersionOrder
from ticdc_replay.decode.filter import TableFilter
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ChangeKind,
    ColumnAdded,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    TableCreated,
    kind_of,
)
from ticdc_replay.schemas.ddl import TableKey, key_of

Outcome = Literal["apply", "nothing", "list", "stop", "rebuild"]
"""``apply``: the target is changed as the upstream was. ``nothing``: there is nothing to do. ``list``: the change is told
beside the rows, which stay. ``stop``: nothing is loaded until a person has done to the target what the DDL did. ``rebuild``: the
same, and only a dump of the upstream tells the rows."""

DdlPolicy = Literal["ddl", "truncate", "drop"]
"""Keys of ``policies`` with ``apply`` or ``stop``."""


class Rule(msgspec.Struct, frozen=True):
    """What a kind of target does about one kind of change."""

    outcome: Outcome
    remedy: str = ""
    """What a person does to the target where the load stops."""
    policy: DdlPolicy | None = None
    """The policy that can have the load stop instead."""

    def stops(self, stopping: frozenset[DdlPolicy]) -> bool:
        """Whether a load stops, where the policies of *stopping* say so."""
        return self.outcome in ("stop", "rebuild") or self.policy in stopping


FILL_ANEW = "fill its mirror anew from a dump of the upstream at or after this commitTs"

_MIRROR: Mapping[ChangeKind, Rule] = {
    "no_row_change": Rule("nothing"),
    "table_created": Rule("apply"),
    "column_added": Rule("apply", "add the column to its mirror", "ddl"),
    "column_computed": Rule("stop", "add the column to its mirror, filled with what the upstream shows in older rows"),
    "column_widened": Rule("apply", "change the column of its mirror", "ddl"),
    "truncated": Rule("apply", "delete the rows of its mirror up to this commitTs", "truncate"),
    "dropped": Rule("apply", "drop its mirror, or delete its rows up to this commitTs where it has newer ones", "drop"),
    "renamed_away": Rule("stop", "rename its mirror where the new name is mirrored too, else drop it"),
    "renamed_here": Rule("stop", "rename the mirror of the old name where there is one, else " + FILL_ANEW),
    "recovered": Rule("rebuild", FILL_ANEW),
    "column_dropped": Rule("stop", "drop the column of its mirror"),
    "column_renamed": Rule("stop", "rename the column of its mirror"),
    "column_changed": Rule("stop", "change the column of its mirror; where that altered values, " + FILL_ANEW),
    "key_changed": Rule("stop", "give its mirror this primary key; where its rows can't have it, " + FILL_ANEW),
    "partition_emptied": Rule("rebuild", FILL_ANEW),
    "exchanged": Rule("rebuild", FILL_ANEW),
    "not_understood": Rule("stop", "do to its mirror what the DDL did, or " + FILL_ANEW),
}

_FILES: Mapping[ChangeKind, Rule] = dict.fromkeys(_MIRROR, Rule("list"))

RULES: Mapping[str, Mapping[ChangeKind, Rule]] = {"postgres": _MIRROR, "parquet": _FILES}
"""By the type of the target."""


def stopping_policies(ddl: str, truncate: str, drop: str) -> frozenset[DdlPolicy]:
    """Those of the policies that stop loads: with *ddl* ``stop`` all of them."""
    if ddl == "stop":
        return frozenset(("ddl", "truncate", "drop"))
    asked: dict[DdlPolicy, str] = {"truncate": truncate, "drop": drop}
    return frozenset(name for name, value in asked.items() if value == "stop")


_COLUMNS_CHANGE = frozenset(("column_dropped", "column_renamed", "column_changed", "key_changed"))
_ANOTHER_TABLE = frozenset(("dropped", "renamed_away", "renamed_here", "recovered", "not_understood"))


class Emptied(msgspec.Struct, frozen=True):
    """The last TRUNCATE or DROP of a window that a mirror follows: no row up to ``commit_ts`` (TSO) is left.

    ``dropped``: the table itself was dropped, by this DDL or one before it in the window. ``form_ts`` (TSO): the last DDL, up to
    this one, after which the name stands for another table; 0 where there is none. A TRUNCATE keeps columns and keys.
    """

    commit_ts: int
    dropped: bool
    form_ts: int

    def settles(self, commit_ts: int, change: Change) -> bool:
        """Whether *change*, of a DDL of *commit_ts* (TSO), stops no load because nothing is left of what it concerns."""
        return commit_ts <= self.form_ts or (commit_ts <= self.commit_ts and not stops_without_rows(change))


def emptied_by(
    changes: Sequence[TableChanges], target: str, stopping: frozenset[DdlPolicy], order: VersionOrder
) -> Emptied | None:
    """What of *changes*, those of one table, empties its mirror; None where a policy forbids to follow any of it.

    None, too, in windows by offset, where nothing tells which rows are from before it.
    """
    emptying = [
        (entry.commit_ts, change)
        for entry in changes
        for change in entry.changes
        if isinstance(change, BreakingChange) and change.empties
    ]
    stops = any(RULES[target][change.kind].stops(stopping) for _, change in emptying)
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


def foreseen_stops(
    index: ChangelogIndex, wanted: TableFilter, target: str, stopping: frozenset[DdlPolicy]
) -> Iterator[str]:
    """What of the DDL of *index* will stop a load into a target of the type *target*, one line each.

    Told without a look at the target: a floor above the DDL lets it through, and so does a table that is not there yet.
    """
    by_table: dict[TableKey, list[TableChanges]] = {}
    for entry in index.changes:
        if wanted.wants(entry.table.schema, entry.table.table):
            by_table.setdefault(key_of(entry.table), []).append(entry)
    for changes in by_table.values():
        emptied = emptied_by(changes, target, stopping, index.order)
        for entry in changes:
            for change in entry.changes:
                if emptied is not None and emptied.settles(entry.commit_ts, change):
                    continue
                rule = RULES[target][kind_of(change)]
                by_place = index.order == "place" and isinstance(change, BreakingChange) and rule.outcome == "apply"
                if rule.stops(stopping) or by_place:
                    yield stop_text(entry.table, entry.commit_ts, words_of(change), rule)


def words_of(change: Change) -> str:
    """What *change* did, for people."""
    match change:
        case ColumnAdded(column=column):
            return f"the column {column.name} was added"
        case ColumnWidened(after=column):
            return f"the column {column.name} holds more values"
        case NoRowChange(what=what) | BreakingChange(what=what):
            return what
        case TableCreated():
            return "the table was created"


def stop_text(table: TableName, commit_ts: int, what: str, rule: Rule) -> str:
    """One line that says which change of *table* stops a load, and what a person does about it."""
    return f"{table} at {describe(commit_ts)}: {what}: {rule.remedy}"
