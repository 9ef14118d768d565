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

    A DDL's text may spell a table in another letter case. Of DDL of a whole database decode tells the tables whose definitions
    it knows; of others the changelog has the DDL alone, with what it does to the database where it is no DROP.
    """
    index = load.index
    if not index.ddl:
        return load
    known = (*load.tables, *tables)
    names = {key_of(table): table for table in known}
    names |= {key_of(version.schema.name): version.schema.name for version in index.tables}
    wanted = sorted({key_of(table) for table in known})
    by_schema = defaultdict(list)
    for key in wanted:
        by_schema[key[0]].append(key)
    changes = [
        msgspec.structs.replace(entry, table=names.get(key_of(entry.table), entry.table)) for entry in index.changes
    ]
    told = {(entry.commit_ts, key_of(entry.table)): entry.changes for entry in changes}
    more = []
    for commit_ts, schema in dict.fromkeys((ddl.commit_ts, folded(ddl.schema)) for ddl in index.ddl if not ddl.table):
        what = told.get((commit_ts, (schema, "")), _DROPPED)
        if not all(isinstance(change, NoRowChange) for change in what):
            more += [
                TableChanges(names[key], commit_ts, what)
                for key in (by_schema[schema] if schema else wanted)
                if (commit_ts, key) not in told
            ]
    own = {key_of(table) for table in load.tables} | {key_of(entry.table) for entry in more}
    return msgspec.structs.replace(
        load,
        index=msgspec.structs.replace(index, changes=tuple(sorted((*changes, *more), key=attrgetter("commit_ts")))),
        tables=tuple(sorted(names[key] for key in own)),
    )
