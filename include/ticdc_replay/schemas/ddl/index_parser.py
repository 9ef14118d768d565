"""Reads the indexes and constraints of a table: a part of CREATE TABLE, of ALTER TABLE and of CREATE INDEX."""

from ticdc_replay.domain.definition import PRIMARY, Index
from ticdc_replay.domain.limits import MAX_KEY_COLUMNS
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError

INDEX_KINDS = ("FULLTEXT", "SPATIAL", "VECTOR", "HYBRID", "COLUMNAR")
"""The words before INDEX that make one of another kind than the ordinary or the unique."""
NO_INDEX = Index("", ())
"""Stands for what makes no index of rows, such as a foreign key."""


def read_table_constraint(cursor: Cursor) -> Index | None:
    """Reads an index or constraint; None where a column comes instead, NO_INDEX for what makes no index of rows.

    Raises DdlSyntaxError.
    """
    symbol = ""
    constraints = ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK")
    if cursor.take("CONSTRAINT") and not any(cursor.sees(word) for word in constraints):
        symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        _index_name(cursor)  # TiDB keeps one, and calls the key PRIMARY all the same
        return read_index_columns(cursor, PRIMARY, unique=True)
    if cursor.take("UNIQUE"):
        cursor.take_any("KEY", "INDEX")
        return _named_index(cursor, unique=True, symbol=symbol)
    if cursor.take("FOREIGN", "KEY") or cursor.take("CHECK"):
        cursor.skip_item()
        return NO_INDEX
    for kind in INDEX_KINDS:
        if cursor.sees(kind, "INDEX") or cursor.sees(kind, "KEY") or (kind == "FULLTEXT" and cursor.sees(kind)):
            cursor.next()
            cursor.take_any("INDEX", "KEY")
            return _named_index(cursor, unique=False, symbol="")
    if cursor.take_any("INDEX", "KEY"):
        return _named_index(cursor, unique=False, symbol="")
    return None


def _named_index(cursor: Cursor, unique: bool, symbol: str) -> Index:
    name = _index_name(cursor)
    return read_index_columns(cursor, symbol if name is None else name, unique)


def _index_name(cursor: Cursor) -> str | None:
    """Reads what may stand before the columns of an index; its name, None where there is none."""
    cursor.take("IF", "NOT", "EXISTS")
    name = None if any(cursor.sees(word) for word in ("(", "USING", "TYPE")) else cursor.name()
    skip_index_type(cursor)
    return name


def skip_index_type(cursor: Cursor) -> None:
    """Reads ``USING BTREE`` and the like, where it stands."""
    if cursor.take("USING") or cursor.take("TYPE"):
        cursor.next()


def read_index_columns(cursor: Cursor, name: str, unique: bool) -> Index:
    """Reads ``(part, …)`` and the index options after it."""
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
        if len(columns) > MAX_KEY_COLUMNS:
            raise DdlSyntaxError(f"an index of more than {MAX_KEY_COLUMNS} columns")
        if cursor.take(")"):
            break
        cursor.expect(",")
    cursor.skip_item(("WHERE",))
    if cursor.take("WHERE"):  # TiDB drops the condition of a primary key
        plain = plain and name == PRIMARY
        cursor.skip_item()
    return Index(name, tuple(columns), unique, plain)
