"""DDL of a changelog by table of the target: also DDL of whole databases, and in the target's spelling."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, Ddl
from ticdc_replay.domain.ddl_kinds import ChangeKind
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import MAX_TSO, describe
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    NoRowChange,
    TableChanges,
    TableCreated,
    kind_of,
    perhaps_renamed,
)
from ticdc_replay.schemas.ddl.reader import ParsedDdl, key_of
from ticdc_replay.schemas.ddl.statements import DropDatabase
from ticdc_replay.targets.base import Load

_DROPPED = (BreakingChange("the table was dropped with its database", "dropped"),)
_NO_NAME = TableName("", "")
_Kinds = tuple[ChangeKind, ...]


def with_ddl_of(load: Load, tables: Iterable[TableName]) -> Load:
    """*load* with the DDL of its window listed for each of *tables*, which the target has, under their names.

    Names that differ in letter case are several tables to a target, but one to TiDB. So DDL that leaves no row counts
    for each of them; other DDL counts for the name in its event. A name that only a statement contains may have any
    letter case: its DDL counts for each table that it can mean.

    For DDL of a whole database, decode lists the tables whose definitions it knows. For other tables the changelog has
    only the DDL, and what it does unless it is a DROP. Between two DDLs of its own, a table gets the last DROP, and the
    last DDL of each kind after it: earlier ones no longer matter. So is the last RENAME with an unknown old schema.
    """
    if not load.index.ddl:
        return load
    changes, own = _changes_of(load.index, tables, load.tables)
    return msgspec.structs.replace(load.with_index(changes=changes), tables=own)


def ddl_of(index: ChangelogIndex, table: TableName, commit_ts: int) -> tuple[TableChanges, ...]:
    """What the DDL of *index* at *commit_ts* (TSO) did to all tables: to *table*, which the target has, under this name, as
    ``with_ddl_of`` lists it."""
    changes, _ = _changes_of(index, [table], [table])
    return tuple(entry for entry in changes if entry.commit_ts == commit_ts)


def _changes_of(
    index: ChangelogIndex, tables: Iterable[TableName], loaded: Iterable[TableName]
) -> tuple[tuple[TableChanges, ...], tuple[TableName, ...]]:
    """The DDL of *index* for each of *tables*, which the target has; and the tables with DDL or rows among them and *loaded*."""
    loaded = frozenset(loaded)
    in_rows = {version.schema.name for version in index.tables}
    in_events = in_rows | {TableName(ddl.schema, ddl.table) for ddl in index.ddl}
    known = {*tables, *in_rows.intersection(loaded)}
    spellings = defaultdict(list)
    for table in sorted(known):
        spellings[key_of(table)].append(table)
    found = {(entry.commit_ts, entry.table) for entry in index.changes}
    changes = []
    for entry in index.changes:
        others = [name for name in spellings.get(key_of(entry.table), ()) if (entry.commit_ts, name) not in found]
        is_own = entry.table in known or entry.table in in_events or not others
        meant = [entry.table] if is_own else []
        if entry.table not in in_events or entry.empties:
            meant += others
        changes += [msgspec.structs.replace(entry, table=name) for name in meant]
    listed = {(entry.commit_ts, entry.table) for entry in changes}
    known |= {name for _, name in listed}.intersection(loaded)
    own_times = defaultdict(list)
    for commit_ts, name in sorted(listed):
        own_times[name].append(commit_ts)
    of_databases = _DatabaseDdl(index.ddl, changes)
    more = [entry for table in sorted(known) for entry in of_databases.of(table, own_times[table])]
    more += [entry for entry in _perhaps_renamed(index, known) if (entry.commit_ts, entry.table) not in listed]
    changes = sorted((*changes, *more), key=attrgetter("commit_ts"))
    own = in_events.intersection(loaded) | known.intersection(entry.table for entry in changes)
    return tuple(changes), tuple(sorted(own))


def _perhaps_renamed(index: ChangelogIndex, known: Iterable[TableName]) -> Iterator[TableChanges]:
    """For each of *known*, the last RENAME of *index* that leaves its old schema open and may concern the table."""
    unclear = {
        (entry.commit_ts, entry.table)
        for entry in index.changes
        if any(kind_of(change) == "not_understood" for change in entry.changes)
    }
    last: dict[str, Ddl] = {}
    for ddl in sorted(index.ddl) if unclear else ():
        if (ddl.commit_ts, TableName(ddl.schema, ddl.table)) in unclear:
            last |= dict.fromkeys(ParsedDdl(ddl.event).taken, ddl)
    for table in sorted(known) if last else ():
        rename = last.get(folded(table.table))
        if rename is not None and key_of(TableName(rename.schema, rename.table)) != key_of(table):
            yield TableChanges(table, rename.commit_ts, (perhaps_renamed(rename.query),))


def with_creations_of(load: Load, tables: Iterable[TableName]) -> Load:
    """*load* with each CREATE TABLE listed also for names in another letter case: those tables no longer exist then.

    These are those of *tables*, which the target has, and of the load. They get a creation without definition.
    """
    created = [
        entry for entry in load.index.changes if any(isinstance(change, TableCreated) for change in entry.changes)
    ]
    if not created:
        return load
    spellings = defaultdict(set)
    for table in (*tables, *load.tables):
        spellings[key_of(table)].add(table)
    own = {(entry.commit_ts, entry.table) for entry in load.index.changes}
    more = [
        TableChanges(name, entry.commit_ts, (TableCreated(None),))
        for entry in created
        for name in sorted(spellings[key_of(entry.table)])
        if (entry.commit_ts, name) not in own
    ]
    changes = sorted((*load.index.changes, *more), key=attrgetter("commit_ts"))
    tables = sorted({*load.tables, *(entry.table for entry in more)})
    return msgspec.structs.replace(load.with_index(changes=tuple(changes)), tables=tuple(tables))


def dropped_databases(index: ChangelogIndex) -> dict[str, int]:
    """When (TSO) the DDL of *index* last dropped each database, by folded name; ``""`` is all."""
    return _DatabaseDdl(index.ddl, index.changes).dropped


def drops_of(table: TableName, dropped: Mapping[str, int], from_ts: int) -> tuple[TableChanges, ...]:
    """The drops of *table* with the databases *dropped* at *from_ts* (TSO) or later, by folded name."""
    times = {dropped.get(schema, -1) for schema in (folded(table.schema), "")}
    return tuple(TableChanges(table, commit_ts, _DROPPED) for commit_ts in sorted(times) if commit_ts >= from_ts)


class _DatabaseDdl:
    """The DDL of whole databases, by folded schema; that of the schema ``""`` concerns all."""

    def __init__(self, ddl: Iterable[Ddl], changes: Iterable[TableChanges]) -> None:
        """*changes* has the effect of each *ddl* without a table, except DROP DATABASE; entries of tables are ignored."""
        what: dict[tuple[int, str], tuple[Change, ...]] = {
            (entry.commit_ts, folded(entry.table.schema)): entry.changes for entry in changes if not entry.table.table
        }
        self._times: dict[str, list[int]] = defaultdict(list)
        found: dict[str, list[TableChanges]] = defaultdict(list)
        for each in ddl:
            statement = None if each.table else ParsedDdl(each.event).statement
            if isinstance(statement, DropDatabase):
                what[each.commit_ts, folded(statement.name)] = _DROPPED
        for (commit_ts, schema), done in sorted(what.items(), key=itemgetter(0)):
            if not all(isinstance(change, NoRowChange) for change in done):
                self._times[schema].append(commit_ts)
                found[schema].append(TableChanges(_NO_NAME, commit_ts, done))
        self._counting = {schema: _last_of_each_kind(entries) for schema, entries in found.items()}

    @property
    def dropped(self) -> dict[str, int]:
        """When (TSO) each database was dropped last."""
        return {
            schema: counting[-1][0].commit_ts for schema, counting in self._counting.items() if counting[-1][0].empties
        }

    def of(self, table: TableName, own_times: Sequence[int]) -> Iterator[TableChanges]:
        """What counts of it for *table*, which has DDL of its own at *own_times* (TSO, in order)."""
        for schema in dict.fromkeys((folded(table.schema), "")):
            times, counting = self._times.get(schema, []), self._counting.get(schema, [])
            after = -1
            for before in (*own_times, MAX_TSO + 1):
                end = bisect_left(times, before)
                if end:
                    found = (entry for entry in counting[end - 1] if entry.commit_ts > after)
                    yield from (msgspec.structs.replace(entry, table=table) for entry in found)
                after = before


def _last_of_each_kind(entries: Sequence[TableChanges]) -> list[tuple[TableChanges, ...]]:
    """For each of *entries* what counts of those up to it: the last DROP, and the last of each kind after it."""
    counting: list[tuple[TableChanges, ...]] = []
    last: dict[_Kinds, TableChanges] = {}
    first_ts: dict[_Kinds, int] = {}
    for entry in entries:
        kinds = tuple(map(kind_of, entry.changes))
        if "dropped" in kinds:
            last, first_ts = {}, {}
        elif kinds in last:
            since = f" (the last of several such DDLs of its database, from {describe(first_ts[kinds])} on)"
            entry = msgspec.structs.replace(entry, changes=tuple(_with(change, since) for change in entry.changes))
        first_ts.setdefault(kinds, entry.commit_ts)
        last.pop(kinds, None)
        last[kinds] = entry
        counting.append(tuple(last.values()))
    return counting


def _with(change: Change, text: str) -> Change:
    return BreakingChange(change.what + text, change.kind) if isinstance(change, BreakingChange) else change
