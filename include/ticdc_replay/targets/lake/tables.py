"""Tables of a lake: their properties, and the statements that change one."""

import json
import re
from collections.abc import Iterator, Sequence

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.targets.lake.dialect import quoted
from ticdc_replay.targets.lake.table_format import INCARNATION, KEY, LEDGER, TableFormat
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


_HIDDEN = "*********(redacted)"
"""What Spark shows in place of a value that looks like a secret (``Utils.REDACTION_REPLACEMENT_TEXT``)."""


def own_properties(incarnation: str, ledger: str, key: Sequence[str] | None = None) -> dict[str, str]:
    """The properties by which a table of *ledger* is known, with the columns *key* that identify a row.

    Paths and columns may look like secrets to Spark, as ``access_token`` does, which hides them even from who asks for
    them. So they are in hex.
    """
    return {
        INCARNATION: incarnation,
        LEDGER: ledger.encode().hex(),
        **({} if key is None else key_property(key)),
    }


def key_property(key: Sequence[str]) -> dict[str, str]:
    """The property with the columns *key*, as ``own_properties`` has it."""
    return {KEY: json.dumps(list(key)).encode().hex()}


def properties_of(sql: Sql, name: str) -> dict[str, str]:
    """The properties of the table with the SQL *name*; those of ``own_properties`` as they were given.

    Raises TargetMismatchError where Spark hides one of these, which a person has set.
    """
    found = {row["key"]: row["value"] for row in sql.run(f"SHOW TBLPROPERTIES {name}")}
    return found | {own: _given(name, own, found[own]) for own in (LEDGER, KEY) if own in found}


def _given(table: str, name: str, value: str) -> str:
    if value == _HIDDEN:
        raise TargetMismatchError(
            f"{table}: Spark hides the table property {name}, as its value looks like a secret. Set it to the same text in hex: "
            f"SELECT lower(hex('…')), and ALTER TABLE … SET TBLPROPERTIES ('{name}' = '…')"
        )
    try:
        return bytes.fromhex(value).decode()
    except ValueError:  # a person has set it as text
        return value


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
    reason = why_type_stays(table_format, before, after)
    if reason is not None:
        raise TargetMismatchError(
            f"{target}: column {column}: {reason}. Write the table again with the new type by hand. Or build a mirror again "
            "from a dump at or after the change: `ticdc-replay mirror seed --only-base`, then `ticdc-replay mirror rebuild` with "
            "the --dump-base that it prints"
        )


def why_type_stays(table_format: TableFormat, before: str, after: str) -> str | None:
    """Why the format can't give a column the type *after* in place of *before* without writing all rows again; else None."""
    if (before, after) in table_format.changes_types:
        return None
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if old is not None and new is not None and (table_format.changes_scales or old[2] == new[2]):
        return None
    return f"{table_format.config.database} can't change it from {before} to {after} in a table with rows"
