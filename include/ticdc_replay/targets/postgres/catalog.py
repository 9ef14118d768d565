"""What is in the target's database: one table's columns and keys, as PostgreSQL's catalogue has them."""

from typing import Any

import msgspec
import psycopg

from ticdc_replay.targets.postgres.identifiers import Relation

Connection = psycopg.Connection[Any]

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


class FoundColumn(msgspec.Struct, frozen=True):
    """One column. ``loose``: its collation takes different texts as equal."""

    name: str
    type: str
    not_null: bool
    generated: bool
    loose: bool


class FoundTable(msgspec.Struct, frozen=True):
    """A table that exists."""

    kind: str
    """``r`` for an ordinary table, ``p`` for a partitioned one; others can't be mirrors."""
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    other_unique: dict[str, tuple[str, ...]]
    """Unique indexes beside the primary key, by name."""

    @property
    def is_table(self) -> bool:
        """Whether rows can be loaded into it: not a view or the like."""
        return self.kind in ("r", "p")

    def column(self, name: str) -> FoundColumn | None:
        """The column called *name*, or None."""
        return next((column for column in self.columns if column.name == name), None)


def find_table(connection: Connection, target: Relation) -> FoundTable | None:
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
    return FoundTable(kind, columns, primary_key, other_unique)
