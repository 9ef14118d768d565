"""Reads a DDL text into a statement. Strict: what it does not know raises DdlSyntaxError, it never guesses."""

from collections.abc import Callable

from ticdc_replay.schemas import literals
from ticdc_replay.schemas.column_parser import read_charset_name, read_column
from ticdc_replay.schemas.definition import PRIMARY, Index
from ticdc_replay.schemas.statements import (
    Action,
    AddColumn,
    AddIndex,
    AlterTable,
    ColumnSpec,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropTables,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    Position,
    RemovePartitions,
    RenameColumn,
    RenameIndex,
    RenameTables,
    RenameTo,
    SetCharset,
    SetDefault,
    Statement,
    TruncateTable,
)
from ticdc_replay.schemas.tokens import Cursor, DdlSyntaxError, Token

_INDEX_KINDS = ("FULLTEXT", "SPATIAL", "VECTOR", "HYBRID", "COLUMNAR")
_OPTIONS = {
    "ALGORITHM", "LOCK", "FORCE", "WITH", "WITHOUT", "ENABLE", "DISABLE", "COMMENT", "ENGINE", "AUTO_INCREMENT",
    "AUTO_ID_CACHE", "AUTO_RANDOM_BASE", "AVG_ROW_LENGTH", "CHECKSUM", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE",
    "ENCRYPTION", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "ROW_FORMAT",
    "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STATS_BUCKETS", "STATS_TOPN", "SHARD_ROW_ID_BITS",
    "PRE_SPLIT_REGIONS", "TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL", "PLACEMENT", "ATTRIBUTES", "CACHE", "NOCACHE",
    "COMPACT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "ENGINE_ATTRIBUTE", "SECONDARY_LOAD",
    "SECONDARY_UNLOAD", "TABLESPACE", "UNION", "REMOVE",
}  # fmt: skip
_PARTITION_WORDS = {
    "PARTITION", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD",
    "REPAIR", "IMPORT", "DISCARD", "SPLIT", "MERGE", "FIRST", "LAST",
}  # fmt: skip


def parse(tokens: list[Token]) -> Statement:
    """The statement *tokens* make up. Raises DdlSyntaxError."""
    cursor = Cursor(tokens)
    if cursor.at_end:
        return NoEffect("empty statement")
    for words, read in _STATEMENTS:
        if cursor.take(*words):
            return read(cursor)
    raise DdlSyntaxError(f"unknown statement {cursor.peek().text!r} {cursor.peek(1).text!r}")


def parse_create_table(tokens: list[Token]) -> CreateTable:
    """The CREATE TABLE *tokens* make up. Raises DdlSyntaxError, for any other statement too."""
    statement = parse(tokens)
    if not isinstance(statement, CreateTable):
        raise DdlSyntaxError("not a CREATE TABLE with a column list")
    return statement


# -- CREATE -----------------------------------------------------------------------------------------------------------


def _create(cursor: Cursor) -> Statement:
    if cursor.take("TABLE") or cursor.take("TEMPORARY", "TABLE") or cursor.take("GLOBAL", "TEMPORARY", "TABLE"):
        return _create_table(cursor)
    if cursor.sees("DATABASE") or cursor.sees("SCHEMA") or cursor.sees("SEQUENCE"):
        return NoEffect(f"create {cursor.next().text.lower()}")
    unique = cursor.take("UNIQUE")
    for kind in _INDEX_KINDS:
        cursor.take(kind)
    if cursor.take("INDEX"):
        cursor.take("IF", "NOT", "EXISTS")
        name = cursor.name()
        _skip_index_type(cursor)
        cursor.expect("ON")
        table = cursor.dotted_name()
        return AlterTable(table, (AddIndex(_index_columns(cursor, name, unique)),))
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
    columns: list[ColumnSpec] = []
    indexes: list[Index] = []
    while True:
        index = _table_constraint(cursor)
        if index is None:
            columns.append(read_column(cursor))
        elif index is not _NO_INDEX:
            indexes.append(index)
        if cursor.take(")"):
            break
        cursor.expect(",")
    return CreateTable(name, tuple(columns), tuple(indexes), _table_options_binary(cursor))


_NO_INDEX = Index("", ())


def _table_constraint(cursor: Cursor) -> Index | None:
    """Reads an index or constraint; None when a column comes instead, _NO_INDEX for what makes no index of rows."""
    symbol = ""
    constraints = ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK")
    if cursor.take("CONSTRAINT") and not any(cursor.sees(word) for word in constraints):
        symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        _skip_index_type(cursor)
        return _index_columns(cursor, PRIMARY, unique=True)
    if cursor.take("UNIQUE"):
        cursor.take_any("KEY", "INDEX")
        return _named_index(cursor, unique=True, symbol=symbol)
    if cursor.take("FOREIGN", "KEY"):
        cursor.skip_item()
        return _NO_INDEX
    if cursor.take("CHECK"):
        cursor.skip_item()
        return _NO_INDEX
    for kind in _INDEX_KINDS:
        if cursor.sees(kind, "INDEX") or cursor.sees(kind, "KEY") or (kind == "FULLTEXT" and cursor.sees(kind)):
            cursor.next()
            cursor.take_any("INDEX", "KEY")
            return _named_index(cursor, unique=False, symbol="")
    if cursor.take_any("INDEX", "KEY"):
        return _named_index(cursor, unique=False, symbol="")
    return None


def _named_index(cursor: Cursor, unique: bool, symbol: str) -> Index:
    cursor.take("IF", "NOT", "EXISTS")
    name = symbol
    if not any(cursor.sees(word) for word in ("(", "USING", "TYPE")):
        name = cursor.name()
    _skip_index_type(cursor)
    return _index_columns(cursor, name, unique)


def _skip_index_type(cursor: Cursor) -> None:
    if cursor.take("USING") or cursor.take("TYPE"):
        cursor.next()


def _index_columns(cursor: Cursor, name: str, unique: bool) -> Index:
    """Reads ``(part, …)`` and the index options behind it."""
    cursor.expect("(")
    columns: list[str] = []
    plain = True
    while True:
        if cursor.sees("("):
            cursor.skip_parentheses()
            plain = False
        else:
            columns.append(cursor.name())
            if cursor.take("("):
                cursor.number()
                cursor.expect(")")
        cursor.take_any("ASC", "DESC")
        if cursor.take(")"):
            break
        cursor.expect(",")
    cursor.skip_item()
    return Index(name, tuple(columns), unique, plain)


def _table_options_binary(cursor: Cursor) -> bool:
    """Reads the options behind a column list; whether they make the default charset binary."""
    binary = False
    while not cursor.at_end:
        if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET") or cursor.take("COLLATE"):
            binary = read_charset_name(cursor) == "binary" or binary
        elif cursor.sees("PARTITION", "BY"):
            return binary
        elif cursor.sees("SELECT") or cursor.sees("AS"):
            raise DdlSyntaxError("CREATE TABLE … SELECT does not tell the types of its columns")
        elif cursor.sees("("):
            cursor.skip_parentheses()
        else:
            cursor.next()
    return binary


# -- ALTER ------------------------------------------------------------------------------------------------------------


def _alter_table(cursor: Cursor) -> Statement:
    table = cursor.dotted_name()
    actions: list[Action] = []
    while not cursor.at_end:
        actions.extend(_alter_action(cursor))
        cursor.take(",")
    return AlterTable(table, tuple(actions))


def _alter_action(cursor: Cursor) -> list[Action]:
    if cursor.take("ADD"):
        return _add(cursor)
    if cursor.take("DROP"):
        return [_drop(cursor)]
    if cursor.take("MODIFY"):
        cursor.take("COLUMN")
        cursor.take("IF", "EXISTS")
        spec = read_column(cursor)
        return [ModifyColumn(spec.column.name, spec, _position(cursor))]
    if cursor.take("CHANGE"):
        cursor.take("COLUMN")
        cursor.take("IF", "EXISTS")
        return [ModifyColumn(cursor.name(), read_column(cursor), _position(cursor))]
    if cursor.take("RENAME"):
        return [_rename(cursor)]
    if cursor.take("ALTER"):
        return [_alter_column(cursor)]
    if cursor.take("CONVERT", "TO"):
        return [_charset(cursor, convert=True)]
    if cursor.sees("DEFAULT") or cursor.sees("CHARACTER", "SET") or cursor.sees("CHARSET") or cursor.sees("COLLATE"):
        return [_charset(cursor, convert=False)]
    if cursor.take("SET", "TIFLASH", "REPLICA") or cursor.take("SET", "HYPO", "TIFLASH", "REPLICA"):
        cursor.skip_item()
        return [NoEffect("tiflash replica")]
    token = cursor.peek()
    word = token.text.upper() if token.kind == "word" else ""
    if word == "TRUNCATE":
        return [RemovePartitions(_rest(cursor))]
    if cursor.take("EXCHANGE", "PARTITION"):
        cursor.name()
        cursor.expect("WITH", "TABLE")
        table = cursor.dotted_name()
        _rest(cursor)
        return [ExchangePartition(table)]
    if word in _PARTITION_WORDS:
        return [NoEffect(_rest(cursor))]
    if word not in _OPTIONS:
        raise DdlSyntaxError(f"unknown ALTER TABLE action {token.text!r}")
    cursor.skip_item()
    return [NoEffect(word.lower())]


def _rest(cursor: Cursor) -> str:
    """Reads to the end: partition clauses hold commas of their own, and MySQL allows no other action behind them."""
    words = []
    while not cursor.at_end:
        token = cursor.next()
        words.append(token.text.lower() if token.kind == "word" else token.text)
    return " ".join(words[:8])


def _add(cursor: Cursor) -> list[Action]:
    if cursor.sees("PARTITION") or cursor.sees("STATS_EXTENDED"):
        return [NoEffect(f"add {_rest(cursor)}")]
    index = _table_constraint(cursor)
    if index is _NO_INDEX:
        return [NoEffect("add constraint")]
    if index is not None:
        return [AddIndex(index)]
    cursor.take("COLUMN")
    cursor.take("IF", "NOT", "EXISTS")
    if not cursor.take("("):
        return [AddColumn(read_column(cursor), _position(cursor))]
    actions: list[Action] = []
    while True:
        index = _table_constraint(cursor)
        if index is None:
            actions.append(AddColumn(read_column(cursor), None))
        elif index is not _NO_INDEX:
            actions.append(AddIndex(index))
        if cursor.take(")"):
            return actions
        cursor.expect(",")


def _drop(cursor: Cursor) -> Action:
    if cursor.take("PRIMARY", "KEY"):
        return DropIndex(PRIMARY)
    if cursor.take("INDEX") or cursor.take("KEY"):
        cursor.take("IF", "EXISTS")
        return DropIndex(cursor.name())
    if cursor.sees("PARTITION"):
        return RemovePartitions(f"drop {_rest(cursor)}")
    if cursor.take("FOREIGN", "KEY") or cursor.take("CHECK"):
        cursor.take("IF", "EXISTS")
        cursor.name()
        return NoEffect("drop constraint")
    if cursor.take("CONSTRAINT"):  # a check, a foreign key, or a unique index
        return DropIndex(cursor.name())
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    name = cursor.name()
    cursor.take_any("RESTRICT", "CASCADE")
    return DropColumn(name)


def _rename(cursor: Cursor) -> Action:
    if cursor.take("COLUMN"):
        name = cursor.name()
        cursor.expect("TO")
        return RenameColumn(name, cursor.name())
    if cursor.take("INDEX") or cursor.take("KEY"):
        name = cursor.name()
        cursor.expect("TO")
        return RenameIndex(name, cursor.name())
    cursor.take_any("TO", "AS", "=")
    return RenameTo(cursor.dotted_name())


def _alter_column(cursor: Cursor) -> Action:
    for word in ("INDEX", "CHECK", "CONSTRAINT"):
        if cursor.take(word):
            cursor.skip_item()
            return NoEffect(f"alter {word.lower()}")
    cursor.take("COLUMN")
    name = cursor.name()
    if cursor.take("DROP", "DEFAULT"):
        return SetDefault(name, None, computed=False)
    cursor.expect("SET", "DEFAULT")
    literal = literals.read_default(cursor)
    return SetDefault(name, literal, computed=literal is None)


def _charset(cursor: Cursor, convert: bool) -> SetCharset:
    binary = False
    cursor.take("DEFAULT")
    while True:
        if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET") or cursor.take("COLLATE"):
            binary = read_charset_name(cursor) == "binary" or binary
        elif not cursor.take("DEFAULT"):
            return SetCharset(binary, convert)


def _position(cursor: Cursor) -> Position | None:
    if cursor.take("FIRST"):
        return Position(None)
    return Position(cursor.name()) if cursor.take("AFTER") else None


# -- the rest ---------------------------------------------------------------------------------------------------------


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
    names = [cursor.dotted_name()]
    while cursor.take(","):
        names.append(cursor.dotted_name())
    return DropTables(tuple(names))


def _rename_tables(cursor: Cursor) -> Statement:
    pairs = []
    while True:
        old = cursor.dotted_name()
        cursor.expect("TO")
        pairs.append((old, cursor.dotted_name()))
        if not cursor.take(","):
            return RenameTables(tuple(pairs))


def _truncate(cursor: Cursor) -> Statement:
    cursor.take("TABLE")
    return TruncateTable(cursor.dotted_name())


_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[Cursor], Statement]], ...] = (
    (("CREATE",), _create),
    (("ALTER", "TABLE"), _alter_table),
    (("ALTER", "IGNORE", "TABLE"), _alter_table),
    (("ALTER", "DATABASE"), lambda cursor: NoEffect("alter database")),
    (("ALTER", "SCHEMA"), lambda cursor: NoEffect("alter database")),
    (("ALTER", "SEQUENCE"), lambda cursor: NoEffect("alter sequence")),
    (("DROP",), _drop_statement),
    (("RENAME", "TABLE"), _rename_tables),
    (("TRUNCATE",), _truncate),
)
