"""Tables of a lake: their properties, and the statements that change one."""

import re
from collections.abc import Iterator

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.targets.lake.table_format import TableFormat
from ticdc_replay.targets.mirror.planning.tables import (
    Action,
    ChangeDefault,
    ChangeType,
    CreateIndex,
    FillColumn,
    MakeColumn,
    Relation,
    RemoveColumn,
    RenameColumn,
)
from ticdc_replay.targets.sql import Sql

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def properties_of(sql: Sql, name: str) -> dict[str, str]:
    """The properties of the table with the SQL *name*."""
    return {row["key"]: row["value"] for row in sql.run(f"SHOW TBLPROPERTIES {name}")}


def statements_of(table_format: TableFormat, target: Relation, action: Action) -> Iterator[str]:
    """The statements that do *action* to *target*. Those that change no column by its name may run twice.

    A table has no defaults: what rows show in a column that they lack is known to the ledger, and written into rows.
    """
    name = table_format.name_of(target)
    match action:
        case MakeColumn(column=column):
            yield f"ALTER TABLE {name} ADD COLUMN {quoted(column.name)} {column.type}"
            if column.default is not None:
                yield f"UPDATE {name} SET {quoted(column.name)} = {column.default} WHERE {quoted(column.name)} IS NULL"
        case ChangeType(column=column_name, type=type_name):
            yield from table_format.change_type(target, column_name, type_name)
        case RemoveColumn(column=column_name):
            yield f"ALTER TABLE {name} DROP COLUMN {quoted(column_name)}"
        case RenameColumn(column=column_name, to=to):
            yield f"ALTER TABLE {name} RENAME COLUMN {quoted(column_name)} TO {quoted(to)}"
        case FillColumn(column=column_name, fill=fill, version_column=version, until=until):
            yield (
                f"UPDATE {name} SET {quoted(column_name)} = {fill} "
                f"WHERE {quoted(version)} <= {until} AND {quoted(column_name)} IS NULL"
            )
        case ChangeDefault() | CreateIndex():
            return


def require_change(table_format: TableFormat, target: Relation, column: str, before: str, after: str) -> None:
    """Raise TargetMismatchError where the format can't give *column* another type without writing all rows again."""
    if (before, after) in table_format.changes_types:
        return
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if old is not None and new is not None and (table_format.changes_scales or old[2] == new[2]):
        return
    raise TargetMismatchError(
        f"{target}: {table_format.config.database} can't change column {column} from {before} to {after} in a table with "
        "rows. Write the table again with the new type by hand, or drop it, forget the mirror and load its windows again"
    )
