"""Reads the actions of ALTER TABLE."""

from ticdc_replay.domain.definition import PRIMARY, Index
from ticdc_replay.schemas.ddl import literals
from ticdc_replay.schemas.ddl.column_parser import read_charset_name, read_column
from ticdc_replay.schemas.ddl.index_parser import NO_INDEX, read_table_constraint
from ticdc_replay.schemas.ddl.statements import (
    Action,
    AddColumn,
    AddIndex,
    AlterTable,
    DropColumn,
    DropIndex,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    Position,
    RemovePartitions,
    RenameColumn,
    RenameIndex,
    RenameTo,
    SetCharset,
    SetDefault,
)
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError

_OPTIONS = {
    "ALGORITHM", "LOCK", "FORCE", "WITH", "WITHOUT", "ENABLE", "DISABLE", "COMMENT", "ENGINE", "AUTO_INCREMENT",
    "AUTO_ID_CACHE", "AUTO_RANDOM_BASE", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHECKSUM", "COMPRESSION", "CONNECTION",
    "DELAY_KEY_WRITE", "ENCRYPTION", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "NODEGROUP",
    "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "STORAGE", "TABLE_CHECKSUM", "DATA", "INDEX",
    "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STATS_SAMPLE_RATE", "STATS_BUCKETS", "STATS_TOPN",
    "STATS_COL_CHOICE", "STATS_COL_LIST", "STATS_OPTIONS", "SHARD_ROW_ID_BITS",
    "PRE_SPLIT_REGIONS", "TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL", "PLACEMENT", "ATTRIBUTES", "AFFINITY", "CACHE",
    "NOCACHE", "READ", "COMPACT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "ENGINE_ATTRIBUTE",
    "SECONDARY_LOAD", "SECONDARY_UNLOAD", "TABLESPACE", "UNION", "REMOVE",
}  # fmt: skip
"""Options that leave rows alone, by their first word. A list, as not all do: SOFTDELETE adds a column."""
_CHARSET = (("CHARACTER", "SET"), ("CHARSET",), ("COLLATE",))
_PARTITION_WORDS = {
    "PARTITION", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD",
    "REPAIR", "SPLIT", "MERGE", "LAST",
}  # fmt: skip


def read_alter_table(cursor: Cursor) -> AlterTable:
    """Reads what follows ``ALTER TABLE``. Raises DdlSyntaxError for an action that is not known."""
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
    if cursor.sees("DEFAULT") or any(cursor.sees(*words) for words in _CHARSET):
        return [_charset(cursor, convert=False)]
    if cursor.take("SET", "TIFLASH", "REPLICA") or cursor.take("SET", "HYPO", "TIFLASH", "REPLICA"):
        cursor.skip_item()
        while cursor.sees(",") and cursor.peek(1).kind == "string":  # LOCATION LABELS 'a', 'b'
            cursor.take(",")
            cursor.skip_item()
        return [NoEffect("tiflash replica")]
    if cursor.take("ORDER", "BY"):
        return [_order(cursor)]
    token = cursor.peek()
    word = token.text.upper() if token.kind == "word" else ""
    # FIRST PARTITION LESS THAN drops all below; MERGE FIRST PARTITION keeps their rows.
    if word in ("TRUNCATE", "FIRST"):
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
    cursor.skip_item(*_CHARSET)  # options need no comma between them, and a charset matters
    return [NoEffect(word.lower())]


def _order(cursor: Cursor) -> NoEffect:
    """Reads columns: no action begins with a quoted name."""
    while True:
        cursor.name()
        while cursor.take("."):
            cursor.name()
        cursor.take_any("ASC", "DESC")
        if not (cursor.sees(",") and cursor.peek(1).kind == "name"):
            return NoEffect("order by")
        cursor.take(",")


def _rest(cursor: Cursor) -> str:
    """Reads to the end: partition clauses hold commas of their own, and MySQL allows no other action after them.

    The result has no values: targets may mask them.
    """
    words = []
    while not cursor.at_end:
        token = cursor.next()
        is_value = token.kind in ("string", "number")
        words.append("…" if is_value else token.text.lower() if token.kind == "word" else token.text)
    return " ".join(words[:8])


def _add(cursor: Cursor) -> list[Action]:
    if cursor.sees("PARTITION"):
        return [NoEffect(f"add {_rest(cursor)}")]
    if cursor.take("STATS_EXTENDED"):
        cursor.skip_item()
        return [NoEffect("add stats_extended")]
    index = read_table_constraint(cursor)
    if index is NO_INDEX:
        return [NoEffect("add constraint")]
    if index is not None:
        return [AddIndex(index)]
    cursor.take("COLUMN")
    unless_there = cursor.take("IF", "NOT", "EXISTS")
    if not cursor.sees("("):
        return [AddColumn(read_column(cursor), _position(cursor), unless_there)]
    parts = cursor.in_parentheses(lambda: read_table_constraint(cursor) or read_column(cursor))
    return [
        AddIndex(part) if isinstance(part, Index) else AddColumn(part, None, unless_there)
        for part in parts
        if part is not NO_INDEX
    ]


def _drop(cursor: Cursor) -> Action:
    if cursor.take("PRIMARY", "KEY"):
        return DropIndex(PRIMARY)
    if cursor.take("INDEX") or cursor.take("KEY"):
        cursor.take("IF", "EXISTS")
        return DropIndex(cursor.name())
    if cursor.sees("PARTITION"):
        return RemovePartitions(f"drop {_rest(cursor)}")
    if cursor.take("STATS_EXTENDED"):
        cursor.take("IF", "EXISTS")
        cursor.name()
        return NoEffect("drop stats_extended")
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
        if any(cursor.take(*words) for words in _CHARSET):
            binary = read_charset_name(cursor) == "binary" or binary
        elif not cursor.take("DEFAULT"):
            return SetCharset(binary, convert)


def _position(cursor: Cursor) -> Position | None:
    if cursor.take("FIRST"):
        return Position(None)
    return Position(cursor.name()) if cursor.take("AFTER") else None
