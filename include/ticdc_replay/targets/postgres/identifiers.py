"""Names in PostgreSQL: at most 63 bytes, where MySQL allows 64 characters."""

import hashlib

from psycopg import sql

from ticdc_replay.targets.postgres.section import LEDGER_SCHEMA as LEDGER_SCHEMA
from ticdc_replay.targets.postgres.section import SYSTEM_COLUMNS

MAX_BYTES = 63


def fit(name: str) -> str:
    """*name*, or for one that is too long its beginning and a hash of the whole: the same for every load.

    PostgreSQL itself would cut the name without a word, and two long names might become one.
    """
    return name if len(name.encode()) <= MAX_BYTES else _with_hash(name)


def fit_column(name: str) -> str:
    """*name* as ``fit`` has it; one that PostgreSQL has in every table, such as ``xmin``, gets the hash, too."""
    return _with_hash(name) if name in SYSTEM_COLUMNS else fit(name)


def _with_hash(name: str) -> str:
    encoded = name.encode()
    suffix = "_" + hashlib.sha256(encoded).hexdigest()[:8]
    return encoded[: MAX_BYTES - len(suffix)].decode(errors="ignore") + suffix


def tombstone_table(schema: str, table: str) -> str:
    """Name, in the ledger's schema, of the table that remembers the deletes of a mirror table."""
    return fit(f"tombstones_{hashlib.sha256(f'{schema}.{table}'.encode()).hexdigest()[:12]}_{table}")


class Relation:
    """A table by schema and name, for statements and for people."""

    __slots__ = ("schema", "table")

    def __init__(self, schema: str, table: str) -> None:
        self.schema = schema
        self.table = table

    @property
    def sql(self) -> sql.Identifier:
        """The quoted name."""
        return sql.Identifier(self.schema, self.table)

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.table}"'
