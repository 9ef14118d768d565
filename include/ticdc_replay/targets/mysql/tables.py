"""Tables in MySQL, TiDB and MariaDB: what the catalogue has of one, and the statements that change one."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.mirror.planning.tables import (
    Action,
    ChangeDefault,
    ChangeType,
    ColumnDefinition,
    CreateIndex,
    FillColumn,
    FoundColumn,
    FoundTable,
    MakeColumn,
    MakeTable,
    Relation,
    RemoveColumn,
    RenameColumn,
)
from ticdc_replay.targets.mysql.errors import Errors
from ticdc_replay.targets.mysql.ledger_tables import of_texts
from ticdc_replay.targets.mysql.server import MysqlConnection, Server
from ticdc_replay.targets.mysql.types import spelled

_TABLE = "SELECT table_type, engine FROM information_schema.tables WHERE (table_schema, table_name) = (%s, %s)"
_COLUMNS = """
SELECT column_name, column_type, is_nullable, coalesce(generation_expression, ''), coalesce(collation_name, '')
FROM information_schema.columns WHERE (table_schema, table_name) = (%s, %s) ORDER BY ordinal_position
"""
_UNIQUE = """
SELECT index_name, column_name, sub_part FROM information_schema.statistics
WHERE (table_schema, table_name) = (%s, %s) AND non_unique = 0 ORDER BY index_name, seq_in_index
"""
_INDEXES = """
SELECT DISTINCT index_name FROM information_schema.statistics
WHERE (table_schema, table_name, column_name) = (%s, %s, %s) AND non_unique = 1 ORDER BY index_name
"""
_TEXTS = ("varchar", "longtext")
_TIMES = ("timestamp", "datetime")
_LONG = {"varchar": "longtext", "varbinary": "longblob"}
_ROW_BYTES = 65_000
"""Of the 65,535 that the columns of a row may declare, without those that lie apart."""
_NO_ROOM = frozenset({1117, 1118, 1071, 1074})
"""Columns, bytes of a row, bytes of a key: more than a table may have."""
_INDEX_PREFIX = 191
"""Characters or bytes of a long column in an index that is not unique."""
_FIRST_TIMESTAMP = "'1970-01-01 00:00:01'"


def find_table(connection: MysqlConnection, server: Server, target: Relation) -> FoundTable | None:
    """*target* as it is now, or None where there is no such table. Raises TargetMismatchError for a table whose engine has no
    transactions."""
    place = (target.schema, target.table)
    with connection.cursor() as cursor:
        if not cursor.execute(_TABLE, place):
            return None
        ((kind, engine),) = cursor.fetchall()
        if kind == "BASE TABLE" and engine != "InnoDB":
            raise TargetMismatchError(
                f"{target} has the engine {engine}, which has no transactions: ALTER TABLE … ENGINE = InnoDB"
            )
        cursor.execute(_COLUMNS, place)
        columns = tuple(
            FoundColumn(
                name,
                spelled(_text(type_name)),
                null == "NO",
                bool(generated),
                bool(collation) and collation not in server.exact,
            )
            for name, type_name, null, generated, collation in cursor.fetchall()
        )
        cursor.execute(_UNIQUE, place)
        unique: dict[str, list[str]] = {}
        for index, column, part in cursor.fetchall():
            unique.setdefault(index, []).append(column if part is None else f"{column}({part})")
    primary_key = tuple(unique.pop("PRIMARY", ()))
    return FoundTable(kind == "BASE TABLE", columns, primary_key, {name: tuple(each) for name, each in unique.items()})


def exists(connection: MysqlConnection, target: Relation) -> bool:
    """Whether there is a table called *target*."""
    with connection.cursor() as cursor:
        return bool(cursor.execute(_TABLE, (target.schema, target.table)))


def indexes_on(connection: MysqlConnection, target: Relation, column: str) -> list[str]:
    """The indexes of *target* that have *column*, but for unique ones."""
    place = (target.schema, target.table, column)
    with connection.cursor() as cursor:
        cursor.execute(_INDEXES, place)
        return [name for (name,) in cursor.fetchall()]


def sql_of(relation: Relation) -> str:
    """The quoted name."""
    return f"{identifier(relation.schema)}.{identifier(relation.table)}"


def listed(names: Iterable[str]) -> str:
    """*names*, quoted."""
    return ", ".join(map(identifier, names))


def statement_of(
    server: Server, target: Relation, action: Action, found: FoundTable | None, default: Callable[[str], str | None]
) -> str:
    """The statement that does *action* to *target*, which is *found*; *default* is what rows show that lack a column."""
    table = f"ALTER TABLE {sql_of(target)}"
    columns = found.columns if found is not None else ()
    match action:
        case MakeTable(columns=wanted, version_column=version, key=key, deleted_column=deleted):
            fitted = fitting(wanted, key)
            definitions = [definition(server, column, not_null=column.name in key) for column in fitted]
            definitions.append(f"{identifier(version)} bigint NOT NULL")
            if deleted is not None:
                definitions.append(f"{identifier(deleted)} boolean NOT NULL DEFAULT FALSE")
            definitions.append(f"PRIMARY KEY ({listed(key)})")
            return f"CREATE TABLE {sql_of(target)} ({', '.join(definitions)}) ENGINE = InnoDB {of_texts(server)}"
        case CreateIndex(columns=names):
            return f"{table} ADD INDEX ({', '.join(index_part(name, columns) for name in names)})"
        case MakeColumn(column=column):
            return f"{table} ADD COLUMN {definition(server, _beside(column, columns))}"
        case ChangeType(column=name, type=type_name):
            assert found is not None, "a column is changed where it is"
            changed = ColumnDefinition(name, changed_type(found, name, type_name), default(name))
            not_null = any(column.not_null for column in columns if column.name == name)
            return f"{table} MODIFY COLUMN {definition(server, changed, not_null=not_null)}"
        case RemoveColumn(column=name):
            return f"{table} DROP COLUMN {identifier(name)}"
        case RenameColumn(column=name, to=to):
            return f"{table} RENAME COLUMN {identifier(name)} TO {identifier(to)}"
        case ChangeDefault(column=name, default=literal):
            type_name = next(column.type for column in columns if column.name == name)
            if is_long(type_name):  # MySQL refuses SET DEFAULT, even with a literal in brackets
                return f"{table} MODIFY COLUMN {definition(server, ColumnDefinition(name, type_name, literal))}"
            return f"{table} ALTER COLUMN {identifier(name)} SET DEFAULT {_default(server, type_name, literal)}"
        case FillColumn(column=name, fill=fill, version_column=version, until=until):
            # A table that a person has made may have times that change with each UPDATE which does not set them.
            times = [each.name for each in columns if each.type.startswith(_TIMES) and each.name != name]
            values = [f"{identifier(name)} = {fill}", *(f"{identifier(time)} = {identifier(time)}" for time in times)]
            return (
                f"UPDATE {sql_of(target)} SET {', '.join(values)} "
                f"WHERE {identifier(version)} <= {until} AND {identifier(name)} IS NULL"
            )


@contextmanager
def needing_room(target: Relation, what: str) -> Iterator[None]:
    """Raises TargetMismatchError for *what* is done to *target*, if a table has no room for it."""
    try:
        yield
    except Errors as error:
        code, text = mysql_protocol.code_and_text(error)
        if code not in _NO_ROOM:
            raise
        raise TargetMismatchError(
            f"{target} has no room for {what or 'what the window needs'}: {text}. Leave columns out by a column "
            "selector of the changefeed; or load the table into a parquet target, and take it out of `tables` for this one"
        ) from error


def set_key_statement(server: Server, target: Relation, found: FoundTable, key: Sequence[str]) -> str:
    """The statement that gives *target*, which is *found*, the primary key *key*, and lets other columns be NULL that were in
    the old one. Raises TargetMismatchError for a column whose type has no place in a key."""
    types = {column.name: column.type for column in found.columns}
    too_long = [name for name in key if is_long(types[name])]
    if too_long:
        raise TargetMismatchError(
            f"{target}: the column {too_long[0]} is {types[too_long[0]]}, which can't be part of a key: rebuild the mirror"
        )
    parts = ["DROP PRIMARY KEY"] if found.primary_key else []
    parts.append(f"ADD PRIMARY KEY ({listed(key)})")
    parts += [
        f"MODIFY COLUMN {definition(server, ColumnDefinition(name, types[name]))}"
        for name in found.primary_key
        if name not in key
    ]
    return f"ALTER TABLE {sql_of(target)} {', '.join(parts)}"


def definition(server: Server, column: ColumnDefinition, *, not_null: bool = False) -> str:
    """A column in a CREATE TABLE, ADD or MODIFY COLUMN."""
    texts = f" {of_texts(server)}" if column.type.startswith(_TEXTS) else ""
    begin = f"{identifier(column.name)} {column.type}{texts}"
    if not not_null:
        return f"{begin} NULL DEFAULT {_default(server, column.type, column.default)}"
    # A TIMESTAMP without a default may get one that changes with each UPDATE.
    return f"{begin} NOT NULL" + (f" DEFAULT {_FIRST_TIMESTAMP}" if column.type.startswith("timestamp") else "")


def changed_type(found: FoundTable, name: str, type_name: str) -> str:
    """The type that the column *name* of *found* gets where *type_name* is asked for: as there is room for it."""
    if any(column.not_null for column in found.columns if column.name == name):
        return type_name
    others = [column for column in found.columns if column.name != name]
    return _beside(ColumnDefinition(name, type_name), others).type


def is_long(type_name: str) -> bool:
    """Whether values of the type lie apart from their row, and can't be indexed as a whole."""
    return type_name in _LONG.values()


def fitting(columns: Sequence[ColumnDefinition], key: Iterable[str] = ()) -> list[ColumnDefinition]:
    """*columns*, the longest of them that are not in *key* as longtext or longblob where a row has no room for all."""
    found, kept = list(columns), set(key)
    while sum(row_bytes(column.type) for column in found) > _ROW_BYTES:
        movable = [column for column in found if column.name not in kept and column.type.startswith(tuple(_LONG))]
        if not movable:
            break
        longest = max(movable, key=lambda column: row_bytes(column.type))
        found[found.index(longest)] = msgspec.structs.replace(longest, type=_apart(longest.type))
    return found


def _beside(column: ColumnDefinition, others: Iterable[FoundColumn]) -> ColumnDefinition:
    """*column* as there is room for it beside *others*."""
    taken = sum(row_bytes(each.type) for each in others)
    if taken + row_bytes(column.type) <= _ROW_BYTES or not column.type.startswith(tuple(_LONG)):
        return column
    return msgspec.structs.replace(column, type=_apart(column.type))


def _apart(type_name: str) -> str:
    return _LONG[type_name.partition("(")[0]]


def row_bytes(type_name: str) -> int:
    """How many bytes the type takes of ``_ROW_BYTES`` at most."""
    sized = re.fullmatch(r"(varchar|varbinary)\((\d+)\)", type_name)
    if sized is not None:
        return int(sized[2]) * (4 if sized[1] == "varchar" else 1) + 3
    return 36 if type_name.startswith("decimal") else 13


def index_part(name: str, columns: Iterable[FoundColumn]) -> str:
    """The column *name* of *columns* in an index that is not unique: the beginning of a long one."""
    is_apart = any(column.name == name and is_long(column.type) for column in columns)
    return identifier(name) + (f"({_INDEX_PREFIX})" if is_apart else "")


def _default(server: Server, type_name: str, literal: str | None) -> str:
    """*literal* after DEFAULT: long types have expressions only. Raises TargetMismatchError for one that TiDB refuses, or
    would alter: bytes that are not UTF-8."""
    if literal is None:
        return "NULL"
    if server.is_tidb and (is_long(type_name) or not _is_utf8(literal)):
        raise TargetMismatchError(
            f"TiDB can't show {literal} in older rows of a column {type_name}: give the upstream's column no such default, or "
            "load the table into another target, and take it out of `tables` for this one"
        )
    return f"({literal})" if is_long(type_name) else literal


def _is_utf8(literal: str) -> bool:
    """Whether a literal of bytes is text; other literals are."""
    octets = re.fullmatch(r"x'([0-9a-f]*)'", literal)
    try:
        bytes.fromhex(octets[1] if octets is not None else "").decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(found: str | bytes) -> str:
    """MySQL gives types as bytes."""
    return found.decode() if isinstance(found, bytes) else found
