"""The names that tables and columns had before: by DDL, as the names of rows that were written before it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from ticdc_replay.domain.former_names import FormerNames
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.schemas.changes import (
    BreakingChange,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    TableChanges,
    TableCreated,
    net_renames,
)
from ticdc_replay.schemas.ddl.reader import TableKey, key_of


class _Names:
    def __init__(
        self, tables: Iterable[TableName] = (), columns: Mapping[str, Iterable[str]] = MappingProxyType({})
    ) -> None:
        self.tables = set(tables)
        self.columns = defaultdict[str, set[str]](set, {name: set(former) for name, former in columns.items()})


def former_names(changes: Iterable[TableChanges]) -> list[FormerNames]:
    """The former names of tables after *changes*, all that DDL did up to a moment, by commitTs. A table or column that was
    dropped or made anew has none."""
    known: defaultdict[TableKey, _Names] = defaultdict(_Names)
    dropped: dict[TableKey, _Names] = {}
    spelled: dict[TableKey, TableName] = {}
    for _, entries in groupby(changes, key=attrgetter("commit_ts")):
        of_moment = list(entries)
        for entry in of_moment:
            spelled[key_of(entry.table)] = entry.table
            _follow(entry, known, dropped)
        moved = {old: (new, known.pop(key_of(old), _Names())) for old, new in net_renames(of_moment).items()}
        for old, (new, names) in moved.items():
            names.tables.add(old)
            known[key_of(new)] = names
            spelled[key_of(new)] = new
    return [
        FormerNames(
            table=spelled[key],
            tables=tuple(sorted(each for each in names.tables if key_of(each) != key)),
            columns={
                name: tuple(sorted(former - {name}))
                for name, former in sorted(names.columns.items())
                if former - {name}
            },
        )
        for key, names in sorted(known.items())
        if names.tables or names.columns
    ]


def _follow(entry: TableChanges, known: defaultdict[TableKey, _Names], dropped: dict[TableKey, _Names]) -> None:
    """Let *known* follow what *entry* does, but for the table's own name. *dropped* tables may come back."""
    key = key_of(entry.table)
    for change in entry.changes:
        match change:
            case TableCreated():
                known.pop(key, None)
            case ColumnRenamed(name=name, to=to):
                columns = known[key].columns
                columns[folded(to)] = columns.pop(folded(name), set()) | {folded(name)}
            case ColumnDropped(name=name):
                known[key].columns.pop(folded(name), None)
            case ColumnAdded(column=column):
                known[key].columns.pop(folded(column.name), None)
            case BreakingChange(kind="not_understood", other=TableName() as other):
                known[key] = _Names({other})
            case BreakingChange(kind="dropped"):
                dropped[key] = known.pop(key, _Names())
            case BreakingChange(kind="recovered", other=None) if key in dropped:
                known[key] = dropped.pop(key)
            case BreakingChange(kind="recovered", other=TableName() as other):
                of_other = dropped.pop(key_of(other), None) or known.get(
                    key_of(other), _Names()
                )  # the latter: truncated
                known[key] = _Names({*of_other.tables, other}, of_other.columns)
