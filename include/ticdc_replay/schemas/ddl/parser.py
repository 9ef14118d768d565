"""Reads a DDL text into a statement. Strict: what it does not know raises DdlSyntaxError, it never guesses."""

from collections.abc import Callable
from typing import Any

from ticdc_replay.domain.definition import PRIMARY, Index
from ticdc_replay.schemas.ddl.alter_parser import read_alter_table
from ticdc_replay.schemas.ddl.column_parser import read_charset_name, read_column
from ticdc_replay.schemas.ddl.index_parser import (
    INDEX_KINDS,
    NO_INDEX,
    read_index_columns,
    read_table_constraint,
    skip_index_type,
)
from ticdc_replay.schemas.ddl.statements import (
    AddIndex,
    AlterTable,
    ColumnSpec,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropIndex,
    DropTables,
    NoEffect,
    QualifiedName,
    RecoverTable,
    RenameTables,
    Statement,
    TruncateTable,
)
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError, Token

MAX_TABLES = 1_000
"""Of one DROP TABLE or RENAME TABLE."""


def parse(tokens: list[Token]) -> Statement:
    """The statement *tokens* make up. Raises DdlSyntaxError."""
    cursor = Cursor(tokens)
    if cursor.at_end:
        return NoEffect("empty statement")
    for words, read in _STATEMENTS:
        if cursor.take(*words):
            return read(cursor)
    raise DdlSyntaxError(f"unknown statement {cursor.peek().text!r} {cursor.peek(1).text!r}")


def may_be_renamed(tokens: list[Token]) -> QualifiedName | None:
    """The table that an ALTER TABLE may give another name, whether or not the rest of it is understood. Raises DdlSyntaxError."""
    cursor = Cursor(tokens)
    if not (cursor.take("ALTER", "TABLE") or cursor.take("ALTER", "IGNORE", "TABLE")):
        return None
    name = cursor.dotted_name()
    while not cursor.at_end:
        if cursor.take("RENAME") and not (cursor.sees("COLUMN") or cursor.sees("INDEX") or cursor.sees("KEY")):
            return name
        if not cursor.at_end:
            cursor.next()
    return None


def _create(cursor: Cursor) -> Statement:
    if cursor.take("TABLE") or cursor.take("TEMPORARY", "TABLE") or cursor.take("GLOBAL", "TEMPORARY", "TABLE"):
        return _create_table(cursor)
    if cursor.sees("DATABASE") or cursor.sees("SCHEMA") or cursor.sees("SEQUENCE"):
        return NoEffect(f"create {cursor.next().text.lower()}")
    unique = cursor.take("UNIQUE")
    for kind in INDEX_KINDS:
        cursor.take(kind)
    if cursor.take("INDEX"):
        cursor.take("IF", "NOT", "EXISTS")
        name = cursor.name()
        skip_index_type(cursor)
        cursor.expect("ON")
        table = cursor.dotted_name()
        return AlterTable(table, (AddIndex(read_index_columns(cursor, name, unique)),))
    while not cursor.at_end:  # OR REPLACE, ALGORITHM, DEFINER, SQL SECURITY
        if cursor.take("VIEW"):
            return NoEffect("create view")
        cursor.next()
    raise DdlSyntaxError("unknown CREATE statement")


def _create_table(cursor: Cursor) -> Statement:
    cursor.take("IF", "NOT", "EXISTS")
    name = cursor.dotted_name()
    if cursor.take("LIKE"):
        return CreateTableLike(name, cursor.dotted_name())
    cursor.expect("(")
    if cursor.take("LIKE"):
        return CreateTableLike(name, cursor.dotted_name())
    parts = cursor.listed(lambda: read_table_constraint(cursor) or read_column(cursor))
    cursor.expect(")")
    columns = tuple(part for part in parts if isinstance(part, ColumnSpec))
    indexes = tuple(part for part in parts if isinstance(part, Index) and part is not NO_INDEX)
    return CreateTable(name, columns, indexes, _table_options_binary(cursor))


def _table_options_binary(cursor: Cursor) -> bool:
    """Reads the options after a column list; whether they make the default charset binary."""
    binary = False
    while not cursor.at_end:
        if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET") or cursor.take("COLLATE"):
            binary = read_charset_name(cursor) == "binary" or binary
        elif cursor.sees("PARTITION", "BY"):
            return binary
        elif cursor.sees("SELECT") or cursor.sees("AS"):
            raise DdlSyntaxError("CREATE TABLE … SELECT does not say the types of its columns")
        elif cursor.sees("("):
            cursor.skip_parentheses()
        else:
            cursor.next()
    return binary


def _drop_statement(cursor: Cursor) -> Statement:
    if cursor.take("DATABASE") or cursor.take("SCHEMA"):
        cursor.take("IF", "EXISTS")
        return DropDatabase(cursor.name())
    if cursor.take("INDEX"):
        cursor.take("IF", "EXISTS")
        name = cursor.name()
        cursor.expect("ON")
        index = PRIMARY if name.upper() == PRIMARY else name
        return AlterTable(cursor.dotted_name(), (DropIndex(index),))
    if cursor.sees("VIEW") or cursor.sees("SEQUENCE"):
        return NoEffect(f"drop {cursor.next().text.lower()}")
    cursor.take("GLOBAL")
    cursor.take("TEMPORARY")
    if not cursor.take_any("TABLE", "TABLES"):
        raise DdlSyntaxError(f"unknown DROP statement {cursor.peek().text!r}")
    cursor.take("IF", "EXISTS")
    names = cursor.listed(cursor.dotted_name)
    _refuse_many(names)
    return DropTables(tuple(names))


def _rename_tables(cursor: Cursor) -> Statement:
    def pair() -> tuple[QualifiedName, QualifiedName]:
        old = cursor.dotted_name()
        cursor.expect("TO")
        return old, cursor.dotted_name()

    pairs = cursor.listed(pair)
    _refuse_many(pairs)
    if len({old for old, _ in pairs}) < len(pairs):
        raise DdlSyntaxError("one table is renamed twice")
    return RenameTables(tuple(pairs))


def _refuse_many(tables: list[Any]) -> None:
    if len(tables) > MAX_TABLES:
        raise DdlSyntaxError(f"{len(tables)} tables in one statement; at most {MAX_TABLES} are read")


def _truncate(cursor: Cursor) -> Statement:
    cursor.take("TABLE")
    return TruncateTable(cursor.dotted_name())


def _recover(cursor: Cursor) -> Statement:
    if cursor.sees("BY", "JOB"):
        return RecoverTable(None)
    name = cursor.dotted_name()
    if not cursor.at_end:  # the time or number of a job
        if cursor.take("TO"):
            return RecoverTable((name[0], cursor.name()), name)
        if cursor.peek().kind != "number":
            raise DdlSyntaxError(f"unknown clause {cursor.peek().text!r}")
    return RecoverTable(name)


_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[Cursor], Statement]], ...] = (
    (("CREATE",), _create),
    (("ALTER", "TABLE"), read_alter_table),
    (("ALTER", "IGNORE", "TABLE"), read_alter_table),
    (("ALTER", "DATABASE"), lambda cursor: NoEffect("alter database")),
    (("ALTER", "SCHEMA"), lambda cursor: NoEffect("alter database")),
    (("ALTER", "SEQUENCE"), lambda cursor: NoEffect("alter sequence")),
    (("DROP",), _drop_statement),
    (("RENAME", "TABLE"), _rename_tables),
    (("TRUNCATE",), _truncate),
    (("RECOVER", "TABLE"), _recover),
    (("FLASHBACK", "TABLE"), _recover),
)
