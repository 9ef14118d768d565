"""Names and schemas of tables."""

import msgspec

from ticdc_replay.domain.column_types import ColumnType


def folded(name: str) -> str:
    """*name* as the upstream compares names of schemas, tables and columns: each character in lower case, so that ß is not ss."""
    if name.isascii():
        return name.lower()
    return "".join(char.lower()[0] for char in name)  # one character has a lower case of two: İ, which is i to TiDB


class TableName(msgspec.Struct, frozen=True, order=True):
    """A logical table of the upstream, in the upstream's spelling. ``table`` is empty for a database-level DDL."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.table else self.schema


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of a table schema."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    """The default as text, None where there is none or where it is NULL."""
    generated: bool = False
    since: int = 0
    """As ``DefinedColumn`` has it: of two columns of one name, the one that was added later is another one."""


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schema of a table at a moment of its history.

    ``columns`` are in table order if a definition is known, else sorted by name. ``handle_key`` are the sorted columns
    that identify a row (primary key, else the chosen NOT NULL unique key), empty for none. ``valid_from`` is the
    commitTs (TSO) of its DDL, 0 if it was declared or derived.
    """

    name: TableName
    columns: tuple[Column, ...]
    handle_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    valid_from: int = 0

    def column(self, name: str) -> Column | None:
        """The column called *name* (exact spelling), or None."""
        return next((column for column in self.columns if column.name == name), None)
