"""A table as its DDL defines it: more than a ``TableSchema``, since later DDL refers to index names and virtual columns."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import Column, TableName, TableSchema, folded


class DefinedColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of a definition, in the spelling of the DDL."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    """The default as text; None where there is none, where it is NULL, or where it is not a literal."""
    computed_default: bool = False
    """Whether the default is computed by the server (CURRENT_TIMESTAMP, an expression, AUTO_INCREMENT)."""
    generated: Literal["stored", "virtual"] | None = None
    digits: tuple[int, int] | None = None
    """M and D of FLOAT(M,D) and DOUBLE(M,D), to which the server rounds; None if it does not. Not a part of the type:
    most protocols don't send it, and targets ignore it. Older stored definitions lack it."""
    since: int = 0
    """commitTs (TSO) of the DDL that added the column or gave it its name; 0 if it came with the table, or for unknown."""

    def type_text(self) -> str:
        """The type as MySQL would print it."""
        if self.digits is None:
            return str(self.type)
        length, scale = self.digits
        return f"{self.type.base}({length},{scale})" + (" unsigned" if self.type.unsigned else "")


class Index(msgspec.Struct, frozen=True, omit_defaults=True):
    """One index. ``columns`` are spelled as in the column definitions, without expressions. Expressions, and a
    condition (WHERE), make ``plain`` false: rows may share a key. The primary key is called PRIMARY."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    plain: bool = True


PRIMARY = "PRIMARY"


class TableDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table's definition from ``valid_from`` (commitTs of its DDL, TSO; 0 if declared) on.

    ``indexes`` are in order of creation, as TiDB's index ids. ``binary``: the table's default charset is binary, so
    character columns without a charset of their own hold bytes.
    """

    name: TableName
    columns: tuple[DefinedColumn, ...]
    indexes: tuple[Index, ...] = ()
    binary: bool = False
    valid_from: int = 0
    from_ddl: bool = False
    """Whether DDL of the changefeed gave all of it, from the CREATE TABLE on, without contradiction."""

    def column(self, name: str) -> DefinedColumn | None:
        """The column called *name*, in any letter case (MySQL's rule for column names), or None."""
        wanted = folded(name)
        return next((column for column in self.columns if folded(column.name) == wanted), None)

    def by_name(self) -> dict[str, DefinedColumn]:
        """The columns by folded name, in their order: for more look-ups than ``column`` is for."""
        columns: dict[str, DefinedColumn] = {}
        for column in self.columns:
            columns.setdefault(folded(column.name), column)
        return columns

    def virtual(self) -> tuple[str, ...]:
        """The virtual generated columns: known, but not sent by TiCDC."""
        return tuple(column.name for column in self.columns if column.generated == "virtual")

    def handle_key(self) -> tuple[str, ...]:
        """The columns that identify a row, sorted by name.

        The primary key; else the unique index with the fewest columns, all NOT NULL and not virtual; the oldest first.
        """
        primary = next((index for index in self.indexes if index.name == PRIMARY), None)
        if primary is not None:
            return tuple(sorted(primary.columns))
        candidates = [index.columns for index in self._identifying()]
        if not candidates:
            return ()
        fewest = min(candidates, key=len)
        return tuple(sorted(fewest))

    def is_unique_key(self, names: Iterable[str]) -> bool:
        """Whether the columns *names*, in any letter case, are the primary key or a unique index without NULL. Then at most one
        row has given values in them, and an index finds it."""
        wanted = {folded(name) for name in names}
        return any({folded(name) for name in index.columns} == wanted for index in self._identifying())

    def partial_keys(self) -> frozenset[tuple[str, ...]]:
        """The sorted columns of unique indexes that don't identify rows, and of no other unique index. Indexes of
        expressions only are left out: no columns are the key of a row without key."""
        keys = [(index.plain, tuple(sorted(index.columns))) for index in self.indexes if index.unique and index.columns]
        return frozenset(key for plain, key in keys if not plain) - {key for plain, key in keys if plain}

    def _identifying(self) -> list[Index]:
        """The unique indexes whose columns are all NOT NULL and not virtual."""
        unique = [index for index in self.indexes if index.unique and index.plain]
        if not unique:
            return []
        there = {key for key, column in self.by_name().items() if not column.nullable and column.generated != "virtual"}
        return [index for index in unique if there.issuperset(map(folded, index.columns))]

    def schema(self) -> TableSchema:
        """What rows of the table look like: all columns but the virtual ones."""
        columns = tuple(
            Column(
                column.name, column.type, column.nullable, column.default, column.generated is not None, column.since
            )
            for column in self.columns
            if column.generated != "virtual"
        )
        virtual = set(self.virtual())
        unique_keys = tuple(
            tuple(sorted(index.columns))
            for index in self.indexes
            if index.unique and index.plain and virtual.isdisjoint(index.columns)
        )
        return TableSchema(self.name, columns, self.handle_key(), unique_keys, self.valid_from)
