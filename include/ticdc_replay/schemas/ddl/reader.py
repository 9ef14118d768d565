"""Applies a DDL of the changefeed to the known table definitions. Never raises for a text."""

from collections.abc import Iterable, Iterator, MutableMapping
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.schemas.ddl import alter, parser
from ticdc_replay.schemas.ddl.statements import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTables,
    QualifiedName,
    RecoverTable,
    RenameTables,
    RenameTo,
    Statement,
)
from ticdc_replay.schemas.ddl.tokens import DdlSyntaxError, sql_tokens, wire_tokens

_REASON_CHARACTERS = 1000
TableKey = tuple[str, str]
"""Schema and table in one letter case: TiDB compares both without regard to case."""


class AppliedDdl(NamedTuple):
    """What a DDL did: tables that it *defined*, and tables that are *gone* or no longer known.

    A table that was renamed is gone under its old name and defined under the new one.
    """

    statement: Statement
    defined: tuple[TableDefinition, ...] = ()
    gone: tuple[TableName, ...] = ()


class UnparsedDdl(NamedTuple):
    """A DDL that could not be understood: from its commitTs on nothing is known of *table*."""

    table: TableName
    reason: str


def key_of(name: TableName) -> TableKey:
    """The name by which a table is found."""
    return folded(name.schema), folded(name.table)


class Tables(MutableMapping[TableKey, TableDefinition]):
    """The definitions that hold at a moment, by folded name; those of one schema are found without a look at the others."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, TableDefinition]] = {}

    def of_schema(self, name: str) -> Iterable[TableDefinition]:
        """The definitions of the tables of the schema *name*, in any letter case."""
        return self._schemas.get(folded(name), {}).values()

    def drop_schema(self, name: str) -> None:
        """Forget the tables of the schema *name*, in any letter case."""
        self._schemas.pop(folded(name), None)

    def __getitem__(self, key: TableKey) -> TableDefinition:
        return self._schemas[key[0]][key[1]]

    def __setitem__(self, key: TableKey, definition: TableDefinition) -> None:
        self._schemas.setdefault(key[0], {})[key[1]] = definition

    def __delitem__(self, key: TableKey) -> None:
        tables = self._schemas[key[0]]
        del tables[key[1]]
        if not tables:  # a dict that was emptied takes as long to go through as a full one
            del self._schemas[key[0]]

    def __iter__(self) -> Iterator[TableKey]:
        return ((schema, table) for schema, tables in self._schemas.items() for table in tables)

    def __len__(self) -> int:
        return sum(map(len, self._schemas.values()))


class ParsedDdl:
    """A DDL whose text was read once. It can be applied to definitions any number of times."""

    __slots__ = ("_altered", "_refused", "copies", "event", "new_names", "renames", "statement", "taken")

    def __init__(self, event: DdlEvent) -> None:
        self.event = event
        self.statement: Statement | None = None
        """None where the text could not be understood."""
        self._refused = ""
        self._altered: QualifiedName | None = None
        """What an ALTER TABLE, understood or not, may have given another name."""
        try:
            tokens = wire_tokens(event.query)
            self._altered = parser.may_be_renamed(tokens)
            self.statement = parser.parse(tokens)
        except Exception as error:
            self._refused = _reason(error)
        pairs = _pairs(self.statement)
        self.new_names = {key_of(_full(new, event)) for _, new in pairs}
        """The names that CREATE TABLE LIKE and renames give a table."""
        half = [old[1] for old, new in pairs if _is_half_qualified(old, new)]
        self.taken = frozenset[str]() if isinstance(self.statement, CreateTableLike) else frozenset(map(folded, half))
        """Names of tables, without schema and folded, that a rename took from an unknown schema."""
        self.copies = [] if half else [(key_of(_full(old, event)), key_of(_full(new, event))) for old, new in pairs]
        """Of CREATE TABLE LIKE and of renames: a table, and the one that gets its definition, if both are known."""
        self.renames = self.copies if isinstance(self.statement, RenameTables) else []
        """``copies`` of a RENAME TABLE that can be applied; of no other statement."""

    @property
    def names(self) -> set[TableKey]:
        """The tables that the text names and the DDL changes; none where the text could not be understood."""
        match self.statement:
            case None | DropDatabase():
                return set()
            case DropTables(names):
                return {key_of(_full(name, self.event)) for name in names}
            case CreateTableLike():
                return self.new_names
        return {key_of(TableName(self.event.schema, self.event.table))} | {key for pair in self.copies for key in pair}

    def taken_by(self, name: TableName) -> TableName | None:
        """What the table *name* was called before, if this may have renamed it and can't be applied; without schema if the text
        leaves that out."""
        if self._altered is not None:
            schema, table = self._altered
            is_own = schema is not None and key_of(TableName(schema, table)) == key_of(name)
            return None if is_own else TableName(schema or "", table)
        return next(
            (
                TableName("", old[1])
                for old, new in _pairs(self.statement)
                if folded(old[1]) in self.taken and key_of(_full(new, self.event)) == key_of(name)
            ),
            None,
        )

    def drops(self, name: TableName) -> bool:
        """Whether it drops the table *name* itself, or its database.

        Not where the event is of another table that the text names, too: each has a DROP of its own, at a commitTs of its own.
        """
        match self.statement:
            case DropTables():
                return key_of(name) == key_of(TableName(self.event.schema, self.event.table))
            case DropDatabase():
                return True
        return False

    def apply(self, tables: Tables) -> AppliedDdl | UnparsedDdl:
        """What the DDL does to *tables*, the definitions that hold just before it. *tables* is not changed.

        A DDL on a table that is not among *tables* defines nothing, unless it creates it.
        """
        if self.statement is None:
            return self._unparsed(self._refused)
        if self.taken:
            return self._unparsed(f"the schema of {', '.join(sorted(self.taken))} is unknown")
        try:
            defined, gone = _effect(self.statement, tables, self.event)
        except Exception as error:
            return self._unparsed(_reason(error))
        return AppliedDdl(self.statement, tuple(defined), tuple(gone))

    def _unparsed(self, reason: str) -> UnparsedDdl:
        return UnparsedDdl(TableName(self.event.schema, self.event.table), reason)


def _pairs(statement: Statement | None) -> list[tuple[QualifiedName, QualifiedName]]:
    """The tables of which another gets the definition, and that other."""
    match statement:
        case RenameTables(pairs):
            return list(pairs)
        case CreateTableLike(name, source):
            return [(source, name)]
        case AlterTable(name, actions):
            return [(name, action.to) for action in actions if isinstance(action, RenameTo)]
    return []


def _reason(error: Exception) -> str:
    """Why a DDL was not understood: *error* itself where the reader refused it, else that the reader failed, and where.

    Raises what is not the text's fault.
    """
    if isinstance(error, (DdlSyntaxError, alter.InconsistentDdlError)):
        return str(error)[:_REASON_CHARACTERS]
    return failure(error)


def definition_from_sql(name: TableName, sql: str) -> TableDefinition:
    """The definition of the table *name* from its CREATE TABLE as SHOW CREATE TABLE prints it, valid from the start.

    Raises ConfigError when *sql* is not such a statement, or is of another table.
    """
    try:
        statement = parser.parse(sql_tokens(sql))
        if not isinstance(statement, CreateTable):
            raise DdlSyntaxError("not a CREATE TABLE with a column list")
        if folded(statement.name[1]) != folded(name.table):
            raise DdlSyntaxError(f"it creates the table {statement.name[1]!r}")
        return alter.create(statement, name, commit_ts=0)
    except Exception as error:
        raise ConfigError(
            f"definitions: create_table of {name}: {_reason(error)}; give the output of SHOW CREATE TABLE {name}"
        ) from None


def _effect(statement: Statement, tables: Tables, ddl: DdlEvent) -> tuple[list[TableDefinition], list[TableName]]:
    match statement:
        case CreateTable():
            created = alter.create(statement, _full(statement.name, ddl), ddl.commit_ts)
            return [msgspec.structs.replace(created, from_ddl=True)], []
        case CreateTableLike(name, source):
            known = None if _is_half_qualified(source, name) else tables.get(key_of(_full(source, ddl)))
            return _moved(known, _full(name, ddl), ddl)
        case AlterTable():
            return _altered(statement, tables, ddl)
        case RenameTables(pairs):
            defined: list[TableDefinition] = []
            gone: list[TableName] = []
            for old, new in pairs:
                before = _full(old, ddl)
                moved, unknown = _moved(tables.get(key_of(before)), _full(new, ddl), ddl)
                defined += moved
                gone += [before, *unknown]
            return defined, gone
        case DropTables(names):
            return [], [_full(name, ddl) for name in names]
        case DropDatabase(database):
            return [], [table.name for table in tables.of_schema(database)]
        case RecoverTable(name, _):  # as it was before it was dropped, which may be long ago
            return [], [_full(name, ddl) if name is not None else TableName(ddl.schema, ddl.table)]
    return [], []


def _altered(statement: AlterTable, tables: Tables, ddl: DdlEvent) -> tuple[list[TableDefinition], list[TableName]]:
    name = _full(statement.name, ddl)
    target = next((action.to for action in statement.actions if isinstance(action, RenameTo)), None)
    before = tables.get(key_of(name))
    after = alter.alter(before, statement.actions, ddl.commit_ts) if before is not None else None
    if target is not None:
        defined, gone = _moved(after, _full(target, ddl), ddl)
        return defined, [name, *gone]
    if before is None or after is None or msgspec.structs.replace(after, valid_from=before.valid_from) == before:
        return [], []
    return [after], []


def _moved(
    definition: TableDefinition | None, name: TableName, ddl: DdlEvent
) -> tuple[list[TableDefinition], list[TableName]]:
    """*definition* under another name; when it is not known, nothing is known of *name* any more.

    DDL does not tell it all from then on: of a name that the changefeed's filter leaves out TiCDC sends no DDL, and of a swap its
    releases differ in the names.
    """
    if definition is None:
        return [], [name]
    return [msgspec.structs.replace(definition, name=name, valid_from=ddl.commit_ts, from_ddl=False)], []


def _full(name: QualifiedName, ddl: DdlEvent) -> TableName:
    schema, table = name
    return TableName(ddl.schema if schema is None else schema, table)


def _is_half_qualified(source: QualifiedName, target: QualifiedName) -> bool:
    # The wire names the schema of the result; where only the result is qualified in the text, the source's schema was
    # the session's, which is unknown.
    return source[0] is None and target[0] is not None
