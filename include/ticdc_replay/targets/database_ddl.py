"""DDL of whole databases, told for each table that a target has of them."""

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import BreakingChange, NoRowChange, TableChanges
from ticdc_replay.schemas.ddl import key_of
from ticdc_replay.targets.base import Load

_DROPPED = (BreakingChange("the table was dropped with its database", "dropped"),)


def with_database_ddl(load: Load, tables: Iterable[TableName]) -> Load:
    """*load* with what DDL of whole databases does to *tables*, those that the target has.

    Decode tells it of the tables whose definitions it knows. Of others the changelog has the DDL alone, with what it does to
    the database where it is no DROP.
    """
    index = load.index
    told = {(entry.commit_ts, key_of(entry.table)): entry.changes for entry in index.changes}
    databases = [(ddl.commit_ts, ddl.schema.casefold()) for ddl in index.ddl if not ddl.table]
    more = []
    for table in tables if databases else ():
        for commit_ts, schema in databases:
            changes = told.get((commit_ts, (schema, "")), _DROPPED)
            is_told = (commit_ts, key_of(table)) in told or all(isinstance(change, NoRowChange) for change in changes)
            if schema in ("", table.schema.casefold()) and not is_told:
                more.append(TableChanges(table, commit_ts, changes))
    if not more:
        return load
    return msgspec.structs.replace(
        load,
        index=msgspec.structs.replace(
            index, changes=tuple(sorted((*index.changes, *more), key=attrgetter("commit_ts")))
        ),
        tables=tuple(sorted({*load.tables, *(entry.table for entry in more)})),
    )
