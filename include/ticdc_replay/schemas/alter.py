"""Applies the parts of a CREATE TABLE or ALTER TABLE to a table definition."""

from collections.abc import Iterable, Sequence

import msgspec

from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.schemas import literals
from ticdc_replay.schemas.column_parser import as_bytes
from ticdc_replay.schemas.statements import (
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

MAX_COLUMNS = 4096
MAX_INDEXES = 512
"""Of a table: as many as TiDB can be configured to allow."""
MAX_ACTIONS = 10_000
"""Of one ALTER TABLE: more than would add and drop all columns and indexes that a table can have."""


class InconsistentDdlError(ValueError):
    """A DDL refers to what the known definition does not have: the definition is not the one the DDL was run on."""


def create(statement: CreateTable, name: TableName, commit_ts: int) -> TableDefinition:
    """The definition that *statement* makes. Table-level indexes come first, as TiDB numbers them.

    Raises InconsistentDdlError.
    """
    if len(statement.columns) > MAX_COLUMNS:
        raise InconsistentDdlError(
            f"{len(statement.columns)} columns, of which a table of TiDB has {MAX_COLUMNS} at most"
        )
    table = _Table(TableDefinition(name, (), binary=statement.binary))
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
        raise InconsistentDdlError(f"{len(actions)} actions in one ALTER TABLE, of which {MAX_ACTIONS} are read")
    table = _Table(definition)
    for action in actions:
        match action:
            case AddColumn(spec, _, unless_there) if is_skipped(definition, spec, unless_there, len(actions)):
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


def is_skipped(definition: TableDefinition, spec: ColumnSpec, unless_there: bool, actions: int) -> bool:
    """Whether TiDB may have left an ADD COLUMN IF NOT EXISTS out, because the column was there.

    Alone it would not have been sent then, so the definition is of a later time; among several *actions* it is sent with them.
    """
    return unless_there and actions > 1 and definition.column(spec.column.name) is not None


class _Table:
    """A definition while it changes."""

    def __init__(self, definition: TableDefinition) -> None:
        self._name = definition.name
        self._columns = list(definition.columns)
        self._indexes = list(definition.indexes)
        self._binary = definition.binary

    def definition(self, commit_ts: int) -> TableDefinition:
        """The definition as it is now. Primary key columns are NOT NULL, whatever their own option says."""
        primary = {column for index in self._indexes if index.name == PRIMARY for column in index.columns}
        columns = tuple(
            msgspec.structs.replace(column, nullable=False) if column.name in primary else column
            for column in self._columns
        )
        return TableDefinition(self._name, columns, tuple(self._indexes), self._binary, commit_ts)

    def append(self, spec: ColumnSpec) -> None:
        """Adds a column at the end."""
        self._columns.append(self._with_charset(spec))

    def add_column(self, spec: ColumnSpec, position: Position | None) -> None:
        """Adds a column and its indexes. A column of that name gives way: the definition was of a later time."""
        at = self._find(spec.column.name)
        if at is not None:
            del self._columns[at]
        if len(self._columns) >= MAX_COLUMNS:
            raise InconsistentDdlError(f"{self._name} has {MAX_COLUMNS} columns already")
        self._columns.insert(self._place(position, len(self._columns)), self._with_charset(spec))
        for index in spec.indexes:
            self.add_index(index)

    def drop_column(self, name: str) -> None:
        """Drops a column, also out of indexes."""
        at = self._find(name)
        if at is None:  # the definition was of a later time
            return
        name = self._columns.pop(at).name
        indexes = []
        for index in self._indexes:
            if name not in index.columns:
                indexes.append(index)
                continue
            columns = tuple(column for column in index.columns if column != name)
            if columns or not index.columns:
                indexes.append(msgspec.structs.replace(index, columns=columns))
        self._indexes = indexes

    def modify_column(self, name: str, spec: ColumnSpec, position: Position | None) -> None:
        """Replaces a column; its indexes follow a new name."""
        at = self._find(name)
        if at is None:
            at = self._find(spec.column.name)
        if at is None:
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to modify")
        old = self._columns.pop(at)
        if old.name != spec.column.name:
            self._refuse_taken(spec.column.name)
            self._rename_in_indexes(old.name, spec.column.name)
        self._columns.insert(self._place(position, at), self._with_charset(spec))
        for index in spec.indexes:
            self.add_index(index)

    def rename_column(self, name: str, to: str) -> None:
        """Renames a column, also in indexes."""
        at = self._find(name)
        if at is None:
            if self._find(to) is not None:  # the definition was of a later time
                return
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to rename")
        old = self._columns[at]
        if folded(old.name) != folded(to):
            self._refuse_taken(to)
        self._columns[at] = msgspec.structs.replace(old, name=to)
        self._rename_in_indexes(old.name, to)

    def set_default(self, name: str, default: literals.Literal | None, computed: bool) -> None:
        """Changes a column's default."""
        at = self._find(name)
        if at is None:
            raise InconsistentDdlError(f"{self._name} has no column {name!r} to set a default of")
        self._columns[at] = literals.with_default(self._columns[at], default, computed)

    def add_index(self, index: Index) -> None:
        """Adds an index; one without a name gets the name TiDB gives it."""
        if self._index(index.name) is not None:
            self.drop_index(index.name)
        if len(self._indexes) >= MAX_INDEXES:
            raise InconsistentDdlError(f"{self._name} has {MAX_INDEXES} indexes already")
        columns = []
        for name in index.columns:
            at = self._find(name)
            if at is None:
                raise InconsistentDdlError(f"{self._name} has no column {name!r} to index")
            columns.append(self._columns[at].name)
        name = index.name or self._free_index_name(columns[0] if index.plain and columns else "expression_index")
        self._indexes.append(Index(name, tuple(columns), index.unique, index.plain))

    def drop_index(self, name: str) -> None:
        """Drops an index; an unknown one may be a check or a foreign key, which are not kept."""
        at = self._index(name)
        if at is not None:
            del self._indexes[at]

    def rename_index(self, name: str, to: str) -> None:
        """Renames an index; an unknown one keeps being unknown."""
        at = self._index(name)
        if at is not None:
            self._indexes[at] = msgspec.structs.replace(self._indexes[at], name=to)

    def set_charset(self, binary: bool, convert: bool) -> None:
        """Sets the default charset; *convert* changes character columns along with it."""
        self._binary = binary
        if convert and binary:
            self._columns = [_bytes_column(column) for column in self._columns]

    def _find(self, name: str) -> int | None:
        return _find((column.name for column in self._columns), name)

    def _index(self, name: str) -> int | None:
        return _find((index.name for index in self._indexes), name)

    def _place(self, position: Position | None, otherwise: int) -> int:
        if position is None:
            return otherwise
        if position.after is None:
            return 0
        at = self._find(position.after)
        if at is None:
            raise InconsistentDdlError(f"{self._name} has no column {position.after!r} to put one behind")
        return at + 1

    def _refuse_taken(self, name: str) -> None:
        if self._find(name) is not None:
            raise InconsistentDdlError(f"{self._name} has a column {name!r} already")

    def _rename_in_indexes(self, name: str, to: str) -> None:
        self._indexes = [
            msgspec.structs.replace(index, columns=tuple(to if column == name else column for column in index.columns))
            if name in index.columns
            else index
            for index in self._indexes
        ]

    def _free_index_name(self, wanted: str) -> str:
        taken = {folded(index.name) for index in self._indexes}
        name, number = wanted, 2
        while folded(name) in taken:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def _with_charset(self, spec: ColumnSpec) -> DefinedColumn:
        return _bytes_column(spec.column) if self._binary and not spec.charset_given else spec.column


def _find(names: Iterable[str], name: str) -> int | None:
    wanted = folded(name)
    return next((at for at, known in enumerate(names) if folded(known) == wanted), None)


def _bytes_column(column: DefinedColumn) -> DefinedColumn:
    column_type = as_bytes(column.type)
    if column_type is column.type:
        return column
    column = msgspec.structs.replace(column, type=column_type)
    if column.default is None:
        return column
    return literals.with_default(column, literals.Literal("string", column.default), computed=False)
