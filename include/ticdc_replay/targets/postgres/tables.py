"""Tables in PostgreSQL: what its catalogue has of one, and the statements that change one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import TargetMismatchError
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
from ticdc_replay.targets.postgres.dialect import type_words

PgConnection = psycopg.Connection[Any]
"""A connection of the driver, unlike ``domain.connections.Connection``."""

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated <> '',
       coalesce(NOT l.collisdeterministic, false)
FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT i.indexrelid::regclass::text, i.indisprimary,
       array(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(attnum, at)
             LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.at <= i.indnkeyatts ORDER BY k.at)
FROM pg_catalog.pg_index i WHERE i.indrelid = %s AND i.indisunique
"""

_CASCADES = """
SELECT quote_ident(conname) || ' of ' || conrelid::regclass::text FROM pg_catalog.pg_constraint
WHERE confrelid = %s AND contype = 'f' AND confdeltype IN ('c', 'n', 'd') ORDER BY 1
"""

_KEY = """
SELECT c.conname, array(SELECT a.attname::text FROM unnest(c.conkey) k(attnum)
                        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum)
FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = %s AND t.relname = %s AND c.contype = 'p'
"""


def find_table(connection: PgConnection, target: Relation) -> FoundTable | None:
    """*target* as it is now, or None where there is no such table."""
    row = connection.execute(
        "SELECT c.oid, c.relkind::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [target.schema, target.table],
    ).fetchone()
    if row is None:
        return None
    oid, kind = row
    columns = tuple(FoundColumn(*column) for column in connection.execute(_COLUMNS, [oid]))
    primary_key: tuple[str, ...] = ()
    other_unique = {}
    for name, primary, members in connection.execute(_UNIQUE, [oid]):
        if primary:
            primary_key = tuple(members)
        else:
            other_unique[name] = tuple(members)
    cascades = tuple(name for (name,) in connection.execute(_CASCADES, [oid]))
    is_table = kind in ("r", "p")  # an ordinary table, or a partitioned one
    return FoundTable(is_table, columns, primary_key, other_unique, cascades)


def sql_of(relation: Relation) -> sql.Identifier:
    """The quoted name."""
    return sql.Identifier(relation.schema, relation.table)


def statement_of(target: Relation, action: Action) -> sql.Composed:
    """The statement that does *action* to *target*."""
    table = sql_of(target)
    match action:
        case MakeTable(columns=columns, version_column=version, key=key, deleted_column=deleted):
            definitions = [*map(definition, columns), sql.SQL("{} bigint NOT NULL").format(sql.Identifier(version))]
            if deleted is not None:
                definitions.append(sql.SQL("{} boolean NOT NULL DEFAULT false").format(sql.Identifier(deleted)))
            if key:
                definitions.append(sql.SQL("PRIMARY KEY ({})").format(_names(key)))
            return sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(definitions))
        case CreateIndex(columns=names):
            return sql.SQL("CREATE INDEX ON {} ({})").format(table, _names(names))
        case MakeColumn(column=column):
            return sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(table, definition(column))
        case ChangeType(column=name, type=type_name):
            parts = table, sql.Identifier(name), trusted(type_words(type_name))
            return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(*parts)
        case RemoveColumn(column=name):
            return sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(table, sql.Identifier(name))
        case RenameColumn(column=name, to=to):
            old, new = sql.Identifier(name), sql.Identifier(to)
            return sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, old, new)
        case ChangeDefault(column=name, default=None):
            return sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT").format(table, sql.Identifier(name))
        case ChangeDefault(column=name, default=default):
            assert default is not None
            parts = table, sql.Identifier(name), trusted(default)
            return sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {}").format(*parts)
        case FillColumn(column=name, fill=fill, version_column=version, until=until):
            return sql.SQL("UPDATE {} SET {column} = {} WHERE {} <= {} AND {column} IS NULL").format(
                *(table, trusted(fill), sql.Identifier(version), sql.Literal(until)), column=sql.Identifier(name)
            )


@contextmanager
def needing_room(target: Relation, what: str) -> Iterator[None]:
    """Raises TargetMismatchError for *what* is done to *target*, if PostgreSQL has no room for it."""
    try:
        yield
    except psycopg.errors.ProgramLimitExceeded as error:
        raise TargetMismatchError(
            f"{target} has no room for {what or 'what the window needs'}: {error}. Leave columns out by a column "
            "selector of the changefeed; or load the table into a parquet target, and take it out of `tables` for this one"
        ) from error


def set_key_statements(connection: PgConnection, target: Relation, key: Sequence[str]) -> Iterator[sql.Composed]:
    """The statements that give *target* the primary key *key*, and let other columns be NULL that were in the old one."""
    table = sql_of(target)
    known = connection.execute(_KEY, [target.schema, target.table]).fetchone()
    if known is not None:
        yield sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, sql.Identifier(known[0]))
        for column in known[1]:
            if column not in key:
                yield sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(table, sql.Identifier(column))
    yield sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(table, _names(key))


def rename_statements(names: Mapping[Relation, Relation]) -> Iterator[sql.Composed]:
    """The statements that give each table of *names* its new name, by names of no table: two may swap theirs."""
    between = {old: f"ticdc_replay_renamed_{number}" for number, old in enumerate(names)}
    for old, name in between.items():
        yield sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql_of(old), sql.Identifier(name))
    for old, new in names.items():
        table = Relation(old.schema, between[old])
        if old.schema != new.schema:
            yield sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(sql_of(table), sql.Identifier(new.schema))
        named = sql_of(Relation(new.schema, table.table))
        yield sql.SQL("ALTER TABLE {} RENAME TO {}").format(named, sql.Identifier(new.table))


def definition(column: ColumnDefinition) -> sql.Composed:
    """A column in a CREATE TABLE or ADD COLUMN."""
    parts = [sql.Identifier(column.name), trusted(type_words(column.type))]
    if column.default is not None:
        parts += [sql.SQL("DEFAULT"), trusted(column.default)]
    return sql.SQL(" ").join(parts)


def trusted(text: str) -> sql.SQL:
    """SQL made by ``types``, or a literal that ``dialect`` has quoted."""
    return sql.SQL(text)


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
