"""What a DDL means for a table that mirrors the upstream's: nothing, an additive change, or one that needs a person.

TiCDC sends no row events for what a DDL does to rows: a new column's default in old rows, truncated or exchanged partitions,
dropped tables. So DDL is classified by what it does to rows that exist already.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

import msgspec

from ticdc_replay.domain.column_types import BINARY_TYPES, INTEGER_TYPES, ColumnType
from ticdc_replay.domain.ddl_kinds import BreakingKind, ChangeKind
from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import Column, TableName, TableSchema, folded
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.schemas.ddl.alter import is_skipped
from ticdc_replay.schemas.ddl.reader import ParsedDdl, TableKey, Tables, UnparsedDdl, key_of
from ticdc_replay.schemas.ddl.statements import (
    Action,
    AddColumn,
    AddIndex,
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropTables,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    QualifiedName,
    RecoverTable,
    RemovePartitions,
    RenameColumn,
    RenameTables,
    RenameTo,
    SetCharset,
    Statement,
    TruncateTable,
)
from ticdc_replay.schemas.epochs import Epoch, keep
from ticdc_replay.schemas.history import SchemaHistory


class NoRowChange(msgspec.Struct, frozen=True, tag=True):
    """Rows and keys stay as they are; ``what`` names the change."""

    what: str


class TableCreated(msgspec.Struct, frozen=True, tag=True):
    """A table that is new and empty; ``schema`` is None if its definition is unknown."""

    schema: TableSchema | None


class ColumnAdded(msgspec.Struct, frozen=True, tag=True):
    """A new column. Old rows have ``fill`` in it, where ``fill_known``; a fill of None is NULL.

    The fill is text in the neutral form. A number has the value that is stored, not always the digits that MySQL prints; bit is
    an unsigned decimal number. Dates and times are as MySQL prints them, without zeros that end a fraction. Enum and set are
    names, binary types characters U+0000 to U+00FF. The fill is unknown if the server computed it, or if it
    depends on the session that ran the DDL.
    """

    column: Column
    fill: str | None
    fill_known: bool


class ColumnWidened(msgspec.Struct, frozen=True, tag=True):
    """A column that now holds more values, or NULL; the old rows' values did not change."""

    before: Column
    after: Column


class ColumnDropped(msgspec.Struct, frozen=True, tag=True):
    """A column that is gone with its values. It had its name since ``since`` (TSO; 0 for ever, or for unknown)."""

    name: str
    since: int = 0

    @property
    def what(self) -> str:
        """For people."""
        return f"the column {self.name} was dropped"


class ColumnRenamed(msgspec.Struct, frozen=True, tag=True):
    """A column that is called ``to`` now. It was called ``name`` since ``since`` (TSO; 0 for ever, or for unknown)."""

    name: str
    to: str
    since: int = 0

    @property
    def what(self) -> str:
        """For people."""
        return f"the column {self.name} was renamed to {self.to}"


class BreakingChange(msgspec.Struct, frozen=True, tag=True):
    """Anything else: rows, names or keys change in a way that row events don't carry; ``what`` says it to a person.

    Changelogs of earlier versions have ``column_dropped`` and ``column_renamed`` of it.
    """

    what: str
    kind: BreakingKind = "not_understood"
    other: TableName | None = None
    """Of ``renamed_away`` the new name, of ``renamed_here`` the old one, of ``recovered`` the old one if it has another now. Of
    ``not_understood`` the old one, if the text may have changed it; without schema if the text leaves that out. None in
    changelogs of earlier versions."""
    column: Column | None = None
    """Of ``column_narrowed`` and ``column_changed``, as it is now; None in changelogs of earlier versions."""
    key: tuple[str, ...] = ()
    """Of ``key_changed``, the columns by which rows are identified now; empty for none, and for unknown."""

    @property
    def empties(self) -> bool:
        """Whether nothing of the table's rows is left after it."""
        return self.kind in ("truncated", "dropped")


Change = NoRowChange | TableCreated | ColumnAdded | ColumnWidened | ColumnDropped | ColumnRenamed | BreakingChange


def kind_of(change: Change) -> ChangeKind:
    """The kind of *change*."""
    match change:
        case NoRowChange():
            return "no_row_change"
        case TableCreated():
            return "table_created"
        case ColumnAdded(fill_known=known):
            return "column_added" if known else "column_computed"
        case ColumnWidened():
            return "column_widened"
        case ColumnDropped():
            return "column_dropped"
        case ColumnRenamed():
            return "column_renamed"
        case BreakingChange(kind=kind):
            return kind


class TableChanges(msgspec.Struct, frozen=True):
    """What one DDL does to one table, in the order of its actions. A rename has one for each of its two names."""

    table: TableName
    commit_ts: int
    changes: tuple[Change, ...]

    @property
    def empties(self) -> bool:
        """Whether nothing of the table's rows is left after it."""
        return any(isinstance(change, BreakingChange) and change.empties for change in self.changes)

    @property
    def ends_rows(self) -> bool:
        """Whether no row from before it is left under the table's name: the name may be another table's now, or nobody's."""
        return any(kind_of(change) in _ENDS_ROWS for change in self.changes)

    @property
    def moves_rows(self) -> bool:
        """Whether rows came to the table, or went, without row events; or whether they did is unknown."""
        return any(kind_of(change) in _MOVES_ROWS for change in self.changes)


_ENDS_ROWS = frozenset[ChangeKind](("table_created", "truncated", "dropped", "renamed_away"))
_MOVES_ROWS = frozenset[ChangeKind](("renamed_here", "recovered", "partition_emptied", "exchanged", "not_understood"))


def net_renames(changes: Iterable[TableChanges]) -> dict[TableName, TableName]:
    """The names that tables had before the statement that made *changes*, and what they are called after it. A name that it uses
    only in between, as ``c`` in ``a TO c, b TO a, c TO b``, is none of them."""
    steps: defaultdict[TableName, deque[tuple[str, TableName]]] = defaultdict(deque)
    """By name, what happens to it in turn: its table gets another name, or it is given to another table."""
    for entry in changes:
        for change in entry.changes:
            if isinstance(change, BreakingChange) and change.kind in ("renamed_away", "renamed_here") and change.other:
                steps[entry.table].append((change.kind, change.other))
    held: dict[TableName, TableName | None] = {}
    """By name, the table that has it, as it was called before; None for one that *changes* does not tell of."""
    goes_on = True
    while goes_on:
        goes_on = False
        for name, own in steps.items():
            if not own:
                continue
            kind, other = own[0]
            there = steps.get(other)
            if kind == "renamed_here" and there is None:
                held[name] = None
            elif kind == "renamed_away" and (there is None or (there and there[0] == ("renamed_here", name))):
                held[other] = held.pop(name, name)
                if there:
                    there.popleft()
            else:
                continue
            own.popleft()
            goes_on = True
    return {old: new for new, old in held.items() if old is not None}


def changes_of(ddls: Iterable[DdlEvent], history: SchemaHistory) -> list[TableChanges]:
    """What *ddls* do to the tables they touch, by commitTs; *history* has their definitions just before each. Never raises.

    A dropped database counts for each of its tables, once, however many DDLs drop it. A RENAME whose text leaves out the schema
    of the old name counts for each table that it may be, the last of several for one definition of it.
    """
    found: list[TableChanges] = []
    renames: defaultdict[str, list[ParsedDdl]] = defaultdict(list)
    tables = Tables()
    epochs = iter(history.epochs)
    epoch = next(epochs, None)
    for commit_ts, of_moment in groupby(sorted(ddls, key=_commit_ts), key=_commit_ts):
        while epoch is not None and epoch.after < commit_ts:
            keep(tables, key_of(epoch.name), epoch.definition)
            epoch = next(epochs, None)
        dropped: set[str] = set()
        for ddl in map(ParsedDdl, of_moment):
            if isinstance(ddl.statement, DropDatabase):
                schema = folded(ddl.statement.name)
                if schema in dropped:
                    continue
                dropped.add(schema)
            found += [TableChanges(table, commit_ts, tuple(made)) for table, made in _made_by(ddl, tables).items()]
            for name in ddl.taken:
                renames[name].append(ddl)
        for schema in dropped:
            tables.drop_schema(schema)
    found += _in_any_schema(renames, history)
    return sorted(found, key=_commit_ts)


def perhaps_renamed(query: str) -> BreakingChange:
    """What the DDL *query* does to a table that it may have renamed, or not: the text leaves the schema out."""
    return BreakingChange(
        f"a DDL may have renamed it, or a table of this name in another schema; its text does not say which: {query[:500]}"
    )


def _in_any_schema(renames: Mapping[str, list[ParsedDdl]], history: SchemaHistory) -> Iterator[TableChanges]:
    """*renames*, by the name that they take a table from, of each table of the name, in whatever schema."""
    current: dict[TableKey, Epoch] = {}
    for epoch in history.epochs if renames else ():
        key = key_of(epoch.name)
        if key[1] in renames:
            if key in current:
                yield from _last_rename(renames[key[1]], current[key], epoch.after)
            current[key] = epoch
    for key, epoch in current.items():
        yield from _last_rename(renames[key[1]], epoch, MAX_TSO)


def _last_rename(renames: list[ParsedDdl], epoch: Epoch, until: int) -> Iterator[TableChanges]:
    """The last of *renames* up to *until* (TSO), of the table of *epoch*, where that was known by then."""
    last = renames[max(0, bisect_right(renames, until, key=_ddl_ts) - 1)]
    own = key_of(TableName(last.event.schema, last.event.table))
    if epoch.definition is not None and epoch.after < _ddl_ts(last) <= until and own != key_of(epoch.name):
        yield TableChanges(epoch.name, _ddl_ts(last), (perhaps_renamed(last.event.query),))


def _ddl_ts(ddl: ParsedDdl) -> int:
    return ddl.event.commit_ts


_commit_ts = attrgetter("commit_ts")


def _made_by(parsed: ParsedDdl, tables: Tables) -> dict[TableName, list[Change]]:
    ddl = parsed.event
    outcome = parsed.apply(tables)
    if isinstance(outcome, UnparsedDdl):
        what = f"a DDL that is not understood ({outcome.reason}): {ddl.query[:500]}"
        return {outcome.table: [BreakingChange(what, other=parsed.taken_by(outcome.table))]}
    return _changes(outcome.statement, outcome.defined, tables, ddl)


def _changes(
    statement: Statement, defined: tuple[TableDefinition, ...], tables: Tables, ddl: DdlEvent
) -> dict[TableName, list[Change]]:
    match statement:
        case CreateTable(name) | CreateTableLike(name):
            return {_full(name, ddl, tables): [TableCreated(defined[0].schema() if defined else None)]}
        case AlterTable(name):
            renames = any(isinstance(action, RenameTo) for action in statement.actions)
            full = (_renamed if renames else _full)(name, ddl, tables)
            return _altered(statement, full, defined, tables, ddl)
        case RenameTables(pairs):
            changes: dict[TableName, list[Change]] = {}
            for old, new in pairs:
                _add_rename(changes, _renamed(old, ddl, tables), _full(new, ddl, tables))
            return changes
        case DropTables(names):
            return {_full(name, ddl, tables): [BreakingChange("the table was dropped", "dropped")] for name in names}
        case TruncateTable(name):
            return {_full(name, ddl, tables): [BreakingChange("the table was truncated", "truncated")]}
        case RecoverTable(found, former):
            back = _full(found, ddl, tables) if found is not None else TableName(ddl.schema, ddl.table)
            was = _full(former, ddl, tables) if former is not None else None
            told = "a table that was dropped or truncated is back with its rows"
            return {back: [BreakingChange(told, "recovered", other=was)]}
        case DropDatabase(database):
            gone = BreakingChange("the table was dropped with its database", "dropped")
            return {table.name: [gone] for table in tables.of_schema(database)}
        case NoEffect(what):
            return {TableName(ddl.schema, ddl.table): [NoRowChange(what)]}


def _altered(
    statement: AlterTable, name: TableName, defined: tuple[TableDefinition, ...], tables: Tables, ddl: DdlEvent
) -> dict[TableName, list[Change]]:
    before = tables.get(key_of(name))
    after = defined[0] if defined else before
    known = before.by_name() if before is not None else {}
    now = after.by_name() if after is not None else {}
    done: set[tuple[str, str]] = set()
    changes: dict[TableName, list[Change]] = {name: []}
    for action in statement.actions:
        if isinstance(action, RenameTo):
            _add_rename(changes, name, _full(action.to, ddl, tables))
            continue
        if isinstance(action, ExchangePartition):
            what = f"its rows were exchanged with a partition of {name}"
            changes[_full(action.table, ddl, tables)] = [BreakingChange(what, "exchanged")]
        if isinstance(action, AddColumn) and before is not None:
            skipped = is_skipped(known, action.spec, action.unless_there, len(statement.actions))
            if skipped:
                changes[name].append(_perhaps_added(action.spec.column))
                continue
        subject = _subject(action)
        if subject is None or subject not in done:
            changes[name].extend(_change(action, before, known, now))
        if subject is not None:
            done.add(subject)
    if before is not None and after is not None and before.handle_key() != after.handle_key():
        key = after.handle_key()
        what = f"rows are now identified by {', '.join(key) or 'no column'}"
        changes[name].append(BreakingChange(what, "key_changed", key=tuple(key)))
    return changes


def _add_rename(changes: dict[TableName, list[Change]], old: TableName, new: TableName) -> None:
    away = BreakingChange(f"the table was renamed to {new}", "renamed_away", other=new)
    here = BreakingChange(f"the table was renamed from {old}", "renamed_here", other=old)
    changes.setdefault(old, []).append(away)
    changes.setdefault(new, []).append(here)


def _subject(action: Action) -> tuple[str, str] | None:
    """What an action changes, if the definitions before and after the statement show all of it: then one change is enough."""
    match action:
        case AddColumn(spec):
            return "added", folded(spec.column.name)
        case ModifyColumn(_, spec):
            return "modified", folded(spec.column.name)
        case SetCharset():
            return "charset", ""
    return None


def _change(
    action: Action,
    before: TableDefinition | None,
    known: Mapping[str, DefinedColumn],
    now: Mapping[str, DefinedColumn],
) -> list[Change]:
    """What *action* does: of the table that was *before*, with the columns *known*, and *now* after the statement."""
    match action:
        case AddColumn(spec):
            return [_added(now.get(folded(spec.column.name)), spec.column)]
        case DropColumn(name):
            column = known.get(folded(name))
            if column is not None and column.generated == "virtual":
                return [NoRowChange(f"drop virtual column {name}")]
            return [ColumnDropped(name) if column is None else ColumnDropped(column.name, column.since)]
        case ModifyColumn(name, spec):
            return _modified(name, known.get(folded(name)), now.get(folded(spec.column.name), spec.column))
        case RenameColumn(name, to):
            column = known.get(folded(name))
            return [ColumnRenamed(name, to) if column is None else ColumnRenamed(column.name, to, column.since)]
        case SetCharset() if before is not None:
            changed = [
                BreakingChange(
                    f"the column {old.name} changed from {old.type} to {new.type}",
                    "column_changed",
                    column=_column(new),
                )
                for key, old in known.items()
                if (new := now.get(key)) is not None and new.type != old.type
            ]
            return [*changed] or [NoRowChange("default charset")]
        case AddIndex(index) if index.name == PRIMARY and before is None:
            return [BreakingChange("a primary key was added", "key_changed")]
        case DropIndex(name) if name == PRIMARY and before is None:
            return [BreakingChange("the primary key was dropped", "key_changed")]
        case RemovePartitions(what):
            return [BreakingChange(f"rows went without events: {what}", "partition_emptied")]
        case ExchangePartition(table):
            return [BreakingChange(f"rows were exchanged with the table {table[1]}", "exchanged")]
        case NoEffect(what):
            return [NoRowChange(what)]
    return [NoRowChange(_words(type(action).__name__))]


def _added(known: DefinedColumn | None, defined: DefinedColumn) -> Change:
    column = known or defined
    if column.generated == "virtual":
        return NoRowChange(f"add virtual column {column.name}")
    fill, fill_known = _fill(column)
    return ColumnAdded(_column(column), fill, fill_known)


def _perhaps_added(column: DefinedColumn) -> Change:
    """For a column that is known before an ADD COLUMN IF NOT EXISTS which may not have been run."""
    if _fill(column) == (None, True):
        return NoRowChange(f"add column {column.name} if not exists")
    return BreakingChange(
        f"ADD COLUMN IF NOT EXISTS {column.name} among other changes, and whether the column was there is unknown"
    )


def _fill(column: DefinedColumn) -> tuple[str | None, bool]:
    """What old rows get in a new column: the default, else NULL, else the zero value of a NOT NULL column's type."""
    if column.generated is not None or column.computed_default:
        return None, False
    if column.default is not None or column.nullable:
        return column.default, True
    base = column.type.base
    if base in INTEGER_TYPES or base in ("float", "double", "decimal", "bit"):
        return "0", True
    if base in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "set"):
        return "", True
    if base in BINARY_TYPES:
        return "\0" * (column.type.length or 0) if base == "binary" else "", True
    if base == "enum" and column.type.elements:
        return column.type.elements[0], True
    if base == "time":
        return "00:00:00", True
    return None, False


def _modified(name: str, before: DefinedColumn | None, after: DefinedColumn) -> list[Change]:
    """What a MODIFY or CHANGE COLUMN did: the new name first, where it gave one, then what became of that."""
    if before is None:
        what = f"the column {name}, of unknown type before, became {after.name} {after.type_text()}"
        changed = BreakingChange(what, "column_changed", column=_column(after))
        return [changed] if folded(name) == folded(after.name) else [ColumnRenamed(name, after.name), changed]
    if before.name == after.name:
        return [_redefined(name, before, after)]
    renamed = ColumnRenamed(before.name, after.name, before.since)
    redefined = _redefined(after.name, before, after)
    return [renamed] if isinstance(redefined, NoRowChange) else [renamed, redefined]


def _redefined(name: str, before: DefinedColumn, after: DefinedColumn) -> Change:
    if before.generated != after.generated:
        return BreakingChange(f"the column {name} is generated in another way", "column_changed", column=_column(after))
    is_same = before.type == after.type and before.digits == after.digits
    if is_same and not (after.nullable and not before.nullable):
        return NoRowChange(f"modify column {name}")
    if is_same or (widens(before.type, after.type) and _keeps_digits(before, after)):
        return ColumnWidened(_column(before), _column(after))
    what = f"the column {name} changed from {before.type_text()} to {after.type_text()}"
    if narrows(before.type, after.type) and _keeps_digits(before, after):
        return BreakingChange(what, "column_narrowed", column=_column(after))
    return BreakingChange(what, "column_changed", column=_column(after))


def _keeps_digits(before: DefinedColumn, after: DefinedColumn) -> bool:
    """Whether the server rounds no value of *before*, whose type *after* widens: it rounds to the digits of FLOAT(M,D).

    A FLOAT(7,2) that becomes DOUBLE(7,2) is rounded, too: 1.27 is another number in 32 bits than in 64.
    """
    if after.digits is None:
        return True
    if before.digits is None or before.type.base != after.type.base:
        return False
    whole = [length - scale for length, scale in (before.digits, after.digits)]
    return whole[1] >= whole[0] and after.digits[1] >= before.digits[1]


_SIZES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_CAPACITY = {"tinytext": 1 << 8, "text": 1 << 16, "mediumtext": 1 << 24, "longtext": 1 << 32}
_BYTES_CAPACITY = {"tinyblob": 1 << 8, "blob": 1 << 16, "mediumblob": 1 << 24, "longblob": 1 << 32}


def widens(before: ColumnType, after: ColumnType) -> bool:
    """Whether every value of *before* is the same value in *after*, or the types are equal.

    Not of FLOAT(M,D) and DOUBLE(M,D): their digits are no part of the type.
    """
    if before == after:
        return True
    if before.base in INTEGER_TYPES and after.base in INTEGER_TYPES:
        gained = _SIZES[after.base] - _SIZES[before.base]
        if before.unsigned == after.unsigned:
            return gained >= 0
        return before.unsigned and gained > 0
    if before.base in ("char", "varchar", *_CAPACITY) and after.base in ("char", "varchar", *_CAPACITY):
        # CHAR drops trailing spaces, so only CHAR itself goes to CHAR.
        return _capacity(after) >= _capacity(before) and (after.base != "char" or before.base == "char")
    if before.base in ("varbinary", *_BYTES_CAPACITY) and after.base in ("varbinary", *_BYTES_CAPACITY):
        return _capacity(after) >= _capacity(before)
    if before.base != after.base:
        return (before.base, after.base) == ("float", "double") and before.unsigned >= after.unsigned
    if before.base == "decimal" and before.unsigned >= after.unsigned:
        whole = [(column.length or 0) - (column.scale or 0) for column in (before, after)]
        return whole[1] >= whole[0] and (after.scale or 0) >= (before.scale or 0)
    if before.base in ("float", "double"):
        return before.unsigned >= after.unsigned
    if before.base in ("time", "datetime", "timestamp"):
        return (after.scale or 0) >= (before.scale or 0)
    if before.base == "bit":
        return (after.length or 0) >= (before.length or 0)
    if before.base in ("enum", "set") and before.elements is not None and after.elements is not None:
        return after.elements[: len(before.elements)] == before.elements
    return before.base == "vector" and after.length is None


def narrows(before: ColumnType, after: ColumnType) -> bool:
    """Whether *after* has only some values of *before*, or others beside them, and each value that it has is the same in both.

    So a change of the type alters no row where all rows fit *after*. Integers, floats, texts, bytes, decimals, fractions of a
    second, and names of ENUM and SET. TiDB casts each row (``needChangeColumnData``, ``getRowRecord`` in ``pkg/ddl/column.go``,
    ``pkg/types/datum.go``): to 32 bits, with rounded fractions, and members of ENUM and SET by their names, those of a SET in the
    order of its elements (``ParseSetName``). Not of FLOAT(M,D) and DOUBLE(M,D): their digits are no part of the type.
    """
    if widens(before, after):
        return False
    families = (
        INTEGER_TYPES,
        ("char", "varchar", *_CAPACITY),
        ("varbinary", *_BYTES_CAPACITY),
        ("decimal",),
        ("float", "double"),
        ("time",),
        ("datetime",),
        ("timestamp",),
    )
    if any(before.base in family and after.base in family for family in families):
        return True
    if before.base != after.base or before.elements is None or after.elements is None:
        return False
    kept = [name for name in before.elements if name in after.elements]
    return before.base == "enum" or kept == [name for name in after.elements if name in before.elements]


def _capacity(column_type: ColumnType) -> int:
    """Characters or bytes that fit, about: enough to compare."""
    known = {**_CAPACITY, **_BYTES_CAPACITY}.get(column_type.base)
    return known if known is not None else column_type.length or 0


def _column(column: DefinedColumn) -> Column:
    return Column(column.name, column.type, column.nullable, column.default, column.generated is not None, column.since)


def _words(name: str) -> str:
    return "".join(" " + letter.lower() if letter.isupper() else letter for letter in name).strip()


def _full(name: QualifiedName, ddl: DdlEvent, tables: Tables) -> TableName:
    """The table that a text means, as TiDB spells it: texts may do so in another letter case."""
    own = TableName(ddl.schema, ddl.table)
    found = _renamed(name, ddl, tables)
    return own if key_of(found) == key_of(own) else found


def _renamed(name: QualifiedName, ddl: DdlEvent, tables: Tables) -> TableName:
    """The same of the old name of a RENAME: the event has the new one, of which it may differ in letter case only."""
    full = TableName(ddl.schema if name[0] is None else name[0], name[1])
    known = tables.get(key_of(full))
    return known.name if known is not None else full
