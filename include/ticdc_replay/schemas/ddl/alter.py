"""Applies the parts of a CREATE TABLE or ALTER TABLE to a table definition."""

from collections.abc import Mapping, Sequence

import msgspec

from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.limits import KEYLESS_TYPES, MAX_COLUMNS, MAX_INDEXES
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.schemas.ddl import literals
from ticdc_replay.schemas.ddl.column_parser import as_bytes
from ticdc_replay.schemas.ddl.statements import (
    Action,
    AddColumn,
    AddIndex,
    ColumnSpec,
    CreateTable,
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

MAX_ACTIONS = 10_000
"""Of one ALTER TABLE: more than would add and drop all columns and indexes that a table can have."""


class InconsistentDdlError(ValueError):
    """A DDL refers to what the known definition does not have: the definition is not the one the DDL was run on."""


def create(statement: CreateTable, name: TableName, commit_ts: int) -> TableDefinition:
    """The definition that *statement* makes. Table-level indexes come first, as TiDB numbers them.

    Raises InconsistentDdlError.
    """
    if len(statement.columns) > MAX_COLUMNS:
        raise InconsistentDdlError(f"{len(statement.columns)} columns; a table of TiDB has at most {MAX_COLUMNS}")
    table = _Table(TableDefinition(name, (), binary=statement.binary), {}, 0)
    for spec in statement.columns:
        table.append(spec)
    for index in statement.indexes:
        table.add_index(index)
    for spec in statement.columns:
        for index in spec.indexes:
            table.add_index(index)
    return table.definition(commit_ts)


def alter(definition: TableDefinition, actions: Sequence[Action], commit_ts: int) -> TableDefinition:
    """*definition* after *actions*; RENAME TO is left to the caller. Raises InconsistentDdlError."""
    if len(actions) > MAX_ACTIONS:
        raise InconsistentDdlError(f"{len(actions)} actions in one ALTER TABLE; at most {MAX_ACTIONS} are read")
    known = definition.by_name()
    table = _Table(definition, known, commit_ts)
    for action in actions:
        match action:
            case AddColumn(spec, _, unless_there) if is_skipped(known, spec, unless_there, len(actions)):
                pass
            case AddColumn(spec, position):
                table.add_column(spec, position)
            case DropColumn(name):
                table.drop_column(name)
            case ModifyColumn(name, spec, position):
                table.modify_column(name, spec, position)
            case RenameColumn(name, to):
                table.rename_column(name, to)
            case SetDefault(name, default, computed):
                table.set_default(name, default, computed)
            case AddIndex(index):
                table.add_index(index)
            case DropIndex(name):
                table.drop_index(name)
            case RenameIndex(name, to):
                table.rename_index(name, to)
            case SetCharset(binary, convert):
                table.set_charset(binary, convert)
            case RenameTo() | RemovePartitions() | ExchangePartition() | NoEffect():
                pass
    return table.definition(commit_ts)


def is_skipped(known: Mapping[str, DefinedColumn], spec: ColumnSpec, unless_there: bool, actions: int) -> bool:
    """Whether TiDB may have left an ADD COLUMN IF NOT EXISTS out, because the column was there: one of *known*, by folded name.

    Alone it would not have been sent then, so the definition is of a later time; among several *actions* it is sent with them.
    """
    return unless_there and actions > 1 and folded(spec.column.name) in known


class _Table:
    """A definition while it changes. Columns and indexes are found by folded name."""

    def __init__(self, definition: TableDefinition, columns: Mapping[str, DefinedColumn], since: int) -> None:
        """*columns* are those of *definition*, by folded name; *since* is that of columns which come."""
        self._since = since
        self._name = definition.name
        self._columns = dict(columns)
        self._order = list(self._columns)
        """The keys of ``_columns`` as the table has them."""
        self._indexes = {folded(index.name): index for index in definition.indexes}
        self._binary = definition.binary
        self._from_ddl = definition.from_ddl
        self._unconverted = set(self._columns)
        """Keys of columns that came or changed since all were converted to bytes."""

    def definition(self, commit_ts: int) -> TableDefinition:
        """The definition as it is now. Primary key columns are NOT NULL, whatever their own option says.

        Raises InconsistentDdlError where a column that TiDB makes no key of is in one.
        """
        primary = {column for index in self._indexes.values() if index.name == PRIMARY for column in index.columns}
        columns = tuple(
            msgspec.structs.replace(column, nullable=False) if column.name in primary else column
            for column in map(self._columns.__getitem__, self._order)
        )
        indexes = tuple(self._indexes.values())
        keyless = {column.name for column in columns if column.type.base in KEYLESS_TYPES}
        for index in indexes if keyless else ():
            if index.unique and index.plain and not keyless.isdisjoint(index.columns):
                raise InconsistentDdlError(f"{self._name} has a key of a column of a type that TiDB makes no key of")
        return TableDefinition(self._name, columns, indexes, self._binary, commit_ts, self._from_ddl)

    def append(self, spec: ColumnSpec) -> None:
        self._refuse_taken(spec.column.name)
        self._order.append(self._put(spec, self._since))

    def add_column(self, spec: ColumnSpec, position: Position | None) -> None:
        """Adds a column and its indexes. A column of that name gives way: the definition was of a later time."""
        key = folded(spec.column.name)
        if key in self._columns:
            self._from_ddl = False
            del self._columns[key]
            self._order.remove(key)
        if len(self._columns) >= MAX_COLUMNS:
            raise InconsistentDdlError(f"{self._name} has {MAX_COLUMNS} columns already")
        self._order.insert(len(self._order) if position is None else self._place(position), key)
        self._put(spec, self._since)
        for index in spec.indexes:
            self.add_index(index)

    def drop_column(self, name: str) -> None:
        """Drops a column, also out of indexes."""
        key = folded(name)
        if key not in self._columns:  # the definition was of a later time
            self._from_ddl = False
            return
        self._order.remove(key)
        name = self._columns.pop(key).name
        for of_index, index in list(self._indexes.items()):
            if name in index.columns:
                columns = tuple(column for column in index.columns if column != name)
                if columns:
                    self._indexes[of_index] = msgspec.structs.replace(index, columns=columns)
                else:
                    del self._indexes[of_index]

    def modify_column(self, name: str, spec: ColumnSpec, position: Position | None) -> None:
        """Replaces a column; its indexes follow a new name."""
        old = self._columns.get(folded(name))
        if old is None:
            self._from_ddl = False
            old = self._columns.get(folded(spec.column.name))
        if old is None:
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to modify")
        key = self._put(spec, self._rename(old, spec.column.name))
        if position is not None:
            self._order.remove(key)
            self._order.insert(self._place(position, key), key)
        for index in spec.indexes:
            self.add_index(index)

    def rename_column(self, name: str, to: str) -> None:
        """Renames a column, also in indexes."""
        old = self._columns.get(folded(name))
        if old is None:
            if folded(to) in self._columns:  # the definition was of a later time
                self._from_ddl = False
                return
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to rename")
        self._rename(old, to)

    def set_default(self, name: str, default: literals.Literal | None, computed: bool) -> None:
        key = folded(name)
        if key not in self._columns:
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to set a default of")
        self._columns[key] = literals.with_default(self._columns[key], default, computed)

    def add_index(self, index: Index) -> None:
        """Adds an index; one without a name gets the name TiDB gives it.

        A key that comes later may end a time in which the table had none: TiCDC sends no DDL of such a table, that which dropped
        the key neither, but where ``force-replicate`` is set.
        """
        self.drop_index(index.name)
        self._from_ddl = self._from_ddl and not index.unique
        if len(self._indexes) >= MAX_INDEXES:
            raise InconsistentDdlError(f"{self._name} has {MAX_INDEXES} indexes already")
        columns = []
        for name in index.columns:
            column = self._columns.get(folded(name))
            if column is None:
                raise InconsistentDdlError(f"{self._name} has no column {name!r} to index")
            columns.append(column.name)
        if len(set(columns)) < len(columns):
            raise InconsistentDdlError(f"{self._name} has no index with a column twice: {', '.join(columns)}")
        name = index.name or self._free_index_name(columns[0] if index.plain and columns else "expression_index")
        self._indexes[folded(name)] = Index(name, tuple(columns), index.unique, index.plain)

    def drop_index(self, name: str) -> None:
        """Drops an index; an unknown one may be a check or a foreign key, which are not kept."""
        self._indexes.pop(folded(name), None)

    def rename_index(self, name: str, to: str) -> None:
        """Renames an index; an unknown one keeps being unknown. One that has the new name gives way."""
        key, new = folded(name), folded(to)
        if key not in self._indexes:
            return
        if new != key:
            self._indexes.pop(new, None)
            self._indexes = {new if known == key else known: index for known, index in self._indexes.items()}
        self._indexes[new] = msgspec.structs.replace(self._indexes[new], name=to)

    def set_charset(self, binary: bool, convert: bool) -> None:
        """Sets the default charset; *convert* changes character columns along with it."""
        self._binary = binary
        if convert and binary:
            for key in self._unconverted & self._columns.keys():
                self._columns[key] = _bytes_column(self._columns[key])
            self._unconverted.clear()

    def _put(self, spec: ColumnSpec, since: int) -> str:
        """Keep the column of *spec*, which has its name since the commitTs *since*; its key."""
        key = folded(spec.column.name)
        column = msgspec.structs.replace(spec.column, since=since) if since else spec.column
        self._columns[key] = _bytes_column(column) if self._binary and not spec.charset_given else column
        self._unconverted.add(key)
        return key

    def _rename(self, old: DefinedColumn, to: str) -> int:
        """Rename *old* where it is, and in indexes; since when the column has its name."""
        if old.name == to:
            return old.since
        key, new = folded(old.name), folded(to)
        if new != key:
            self._refuse_taken(to)
            self._order[self._order.index(key)] = new
            self._unconverted.add(new)
        del self._columns[key]
        self._columns[new] = msgspec.structs.replace(old, name=to, since=self._since)
        for of_index, index in self._indexes.items():
            if old.name in index.columns:
                columns = tuple(to if column == old.name else column for column in index.columns)
                self._indexes[of_index] = msgspec.structs.replace(index, columns=columns)
        return self._since

    def _place(self, position: Position, moved: str | None = None) -> int:
        """Where in the order *position* is; the column *moved* is out of it."""
        if position.after is None:
            return 0
        key = folded(position.after)
        if key not in self._columns or key == moved:
            raise InconsistentDdlError(f"{self._name} has no column {position.after!r} to put one after")
        return self._order.index(key) + 1

    def _refuse_taken(self, name: str) -> None:
        if folded(name) in self._columns:
            raise InconsistentDdlError(f"{self._name} has a column {name!r} already")

    def _free_index_name(self, wanted: str) -> str:
        name, number = wanted, 2
        while folded(name) in self._indexes:
            name, number = f"{wanted}_{number}", number + 1
        return name


def _bytes_column(column: DefinedColumn) -> DefinedColumn:
    column_type = as_bytes(column.type)
    if column_type is column.type:
        return column
    column = msgspec.structs.replace(column, type=column_type)
    if column.default is None:
        return column
    return literals.with_default(column, literals.Literal("string", column.default), computed=False)
