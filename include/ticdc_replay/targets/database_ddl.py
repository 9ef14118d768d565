"""DDL of a changelog, told of the tables that a target has: of those of whole databases, and in the target's spelling."""

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter

import msgspec

from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.schemas.changes import BreakingChange, NoRowChange, TableChanges
from ticdc_replay.schemas.ddl import key_of
from ticdc_replay.targets.base import Load

_DROPPED = (BreakingChange("the table was dropped with its database", "dropped"),)


def told_of(load: Load, tables: Iterable[TableName]) -> Load:
    """*load* with its DDL told of *tables*, those that the target has, and under their names.

    Names that are equal but for letter case are several tables to a target. TiDB has one of them at a time, so what leaves no
    row is told of each. Other DDL is told under the name that its event has. A name that only a text has may be spelled in any
    letter case: its DDL is told of each table that it can mean.

    Of DDL of a whole database decode tells the tables whose definitions it knows; of others the changelog has the DDL alone,
    with what it does to the database where it is no DROP.
    """
    index = load.index
    if not index.ddl:
        return load
    in_rows = {version.schema.name for version in index.tables}
    in_events = in_rows | {TableName(ddl.schema, ddl.table) for ddl in index.ddl}
    known = {*tables, *in_rows.intersection(load.tables)}
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
    told = {(entry.commit_ts, entry.table) for entry in changes}
    known |= {name for _, name in told}.intersection(load.tables)
    by_schema = defaultdict(list)
    for table in sorted(known):
        by_schema[folded(table.schema)].append(table)
    of_schemas = {
        (entry.commit_ts, folded(entry.table.schema)): entry.changes for entry in changes if not entry.table.table
    }
    more = []
    for commit_ts, schema in dict.fromkeys((ddl.commit_ts, folded(ddl.schema)) for ddl in index.ddl if not ddl.table):
        what = of_schemas.get((commit_ts, schema), _DROPPED)
        if not all(isinstance(change, NoRowChange) for change in what):
            more += [
                TableChanges(table, commit_ts, what)
                for table in (by_schema[schema] if schema else sorted(known))
                if (commit_ts, table) not in told
            ]
    changes = sorted((*changes, *more), key=attrgetter("commit_ts"))
    own = in_events.intersection(load.tables) | known.intersection(entry.table for entry in changes)
    return msgspec.structs.replace(
        load, index=msgspec.structs.replace(index, changes=tuple(changes)), tables=tuple(sorted(own))
    )
