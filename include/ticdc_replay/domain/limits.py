"""What no TiDB has: names, types, column counts and commit times that only damaged or foreign messages have."""

from collections.abc import Collection, Iterable

from ticdc_replay.domain import tso
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import DefinedColumn, TableDefinition
from ticdc_replay.domain.tables import Column, TableSchema, folded

MAX_NAME = 64
"""Characters of the name of a database or table."""
MAX_COLUMN_NAME = 80
"""Characters of the name of a column: 64, but the hidden one of an expression index is called ``_V$_<index>_<number>``."""
MAX_COLUMNS = 4096
"""What TiDB's table-column-count-limit allows at most."""
_MAX_AHEAD_MS = 10 * 365 * 86_400_000
_CLOCKS_ARE_SET_MS = 1_420_070_400_000
MAX_KEY_COLUMNS = 16
"""Of any index, and so of a handle key."""
MAX_INDEXES = 513
"""Of a table: what TiDB's index-limit allows at most, and a clustered integer key, which it does not count."""
KEYLESS_TYPES = frozenset({"json", "vector"})
"""Base types of columns that no unique index has."""
MAX_FRACTION_DIGITS = 6
"""Of a TIME, DATETIME or TIMESTAMP."""
_MOST_DIGITS, _MOST_SCALE = 65, 30
_LONGEST = {"bit": 64, "char": 255, "binary": 255}
_LONGEST_OF_ALL = (1 << 32) - 1
_MOST_MEMBERS = 64
BAD_NAME, NAME_TOO_LONG, TOO_MANY_COLUMNS = "bad_name", "name_too_long", "too_many_columns"
BAD_TYPE, BAD_KEY = "bad_type", "bad_key"
"""Reasons of what is called otherwise, has more columns, columns of other types, or another key."""

Refusal = tuple[str, str]
"""Why something can't be of a table: the reason, and what is wrong."""


def latest_commit_ts(recorded_ms: int) -> int:
    """The last commitTs (TSO) that a record made at *recorded_ms* can have: it is made after the commit. Allows ten
    years of clock skew, and anything before 2015, when a clock was never set. As the native decoder does."""
    return tso.MAX_TSO if recorded_ms < _CLOCKS_ARE_SET_MS else tso.from_ms(recorded_ms + _MAX_AHEAD_MS)


def may_resolve(resolved_ts: int, recorded_ms: int, skew_ms: int) -> bool:
    """Whether TiCDC can have sent *resolved_ts* (TSO), which lies in its past, in a record made at *recorded_ms*, with
    clocks *skew_ms* apart. Anything passes for records before 2015: a clock that was never set."""
    return recorded_ms < _CLOCKS_ARE_SET_MS or tso.physical_ms(resolved_ts) <= recorded_ms + skew_ms


def refused_table(schema: str, table: str) -> Refusal | None:
    """Why no table is called *schema*.*table*, or None. Empty names mean no table, and no database. Avro writes ``_``
    before a name that begins with a digit: it may be one longer."""
    return _refused_name("schema name", _without_prefix(schema), MAX_NAME) or _refused_name(
        "table name", _without_prefix(table), MAX_NAME
    )


def _without_prefix(name: str) -> str:
    return name[1:] if name[:1] == "_" and name[1:2].isdecimal() else name


def refused_columns(names: Collection[str]) -> Refusal | None:
    """Why no table has columns called *names*; None where one may have them. About 0.3 µs for each."""
    if len(names) > MAX_COLUMNS:
        return TOO_MANY_COLUMNS, f"{len(names)} columns, and no table has more than {MAX_COLUMNS}"
    if "" in names:
        return BAD_NAME, "a column without a name"
    for name in names:
        refusal = _refused_name("column name", name, MAX_COLUMN_NAME)
        if refusal is not None:
            return refusal
    if len(set(map(folded, names))) < len(names):
        return BAD_NAME, "two columns of one name, regardless of letter case"
    return None


def refused_type(column_type: ColumnType) -> str | None:
    """Why TiDB makes no column of *column_type*, or None. About 0.2 µs. What passes has a type in Arrow, Parquet and
    the targets, and values no larger than on the wire. Unknown numbers (None) pass."""
    base, length, scale, elements = column_type.base, column_type.length, column_type.scale, column_type.elements
    if base == "decimal":
        digits = _MOST_DIGITS if length is None else length
        if not 1 <= digits <= _MOST_DIGITS or not 0 <= (scale or 0) <= min(digits, _MOST_SCALE):
            return f"{column_type}: a DECIMAL has 1 to {_MOST_DIGITS} digits, of which at most {_MOST_SCALE} after the point"
    elif length is not None:
        least, most = int(base == "bit"), _LONGEST.get(base, _LONGEST_OF_ALL)
        if not least <= length <= most:
            return f"{column_type}: the length of a {base.upper()} is from {least} to {most}"
    if base != "decimal" and not 0 <= (scale or 0) <= MAX_FRACTION_DIGITS:
        return f"{column_type}: a {base.upper()} has at most {MAX_FRACTION_DIGITS} fraction digits"
    if elements is not None:
        if base == "set" and len(elements) > _MOST_MEMBERS:
            return f"a SET of {len(elements)} members; none has more than {_MOST_MEMBERS}"
        if not all(map(is_unicode, elements)):
            return f"an {base.upper()} with names that are not Unicode"
    return None


def refused_types(columns: Iterable[Column | DefinedColumn]) -> Refusal | None:
    """Why no table has *columns* of their types."""
    for column in columns:
        why = refused_type(column.type)
        if why is not None:
            return BAD_TYPE, f"the column {column.name} is {why}"
    return None


def refused_schema(schema: TableSchema) -> Refusal | None:
    """Why no table is as *schema* says."""
    return (
        refused_table(schema.name.schema, schema.name.table)
        or refused_columns([column.name for column in schema.columns])
        or refused_types(schema.columns)
        or _refused_key(schema)
    )


def _refused_key(schema: TableSchema) -> Refusal | None:
    key = schema.handle_key
    if len(key) > MAX_KEY_COLUMNS:
        return BAD_KEY, f"a handle key of {len(key)} columns; none has more than {MAX_KEY_COLUMNS}"
    for column in schema.columns:
        if column.type.base in KEYLESS_TYPES and column.name in key:
            return BAD_KEY, f"the column {column.name} of the handle key is {column.type}, and TiDB makes no such key"
    return None


def refused_definition(definition: TableDefinition) -> Refusal | None:
    """Why no table is defined by *definition*."""
    return (
        refused_table(definition.name.schema, definition.name.table)
        or refused_columns([column.name for column in definition.columns])
        or refused_types(definition.columns)
        or _refused_indexes(definition)
    )


def _refused_indexes(definition: TableDefinition) -> Refusal | None:
    if len(definition.indexes) > MAX_INDEXES:
        return BAD_KEY, f"{len(definition.indexes)} indexes; no table has more than {MAX_INDEXES}"
    for index in definition.indexes:
        if len(index.columns) > MAX_KEY_COLUMNS:
            return BAD_KEY, f"an index of {len(index.columns)} columns; none has more than {MAX_KEY_COLUMNS}"
        if len(set(index.columns)) < len(index.columns):
            return BAD_KEY, "an index with one column twice"
    return None


def _refused_name(what: str, name: str, longest: int) -> Refusal | None:
    if len(name) > longest:
        return NAME_TOO_LONG, f"a {what} of {len(name)} characters, {name[:20]!r}…; none has more than {longest}"
    if "\0" in name or not is_unicode(name):
        return BAD_NAME, f"the {what} {name!r} holds a NUL, or what is not Unicode; none does"
    return None


def refused_name(name: str) -> str | None:
    """Why no statement of TiDB names anything *name*; None where one may."""
    if not name:
        return "a name without characters"
    refusal = _refused_name("name", name, MAX_NAME)
    return None if refusal is None else refusal[1]


def is_unicode(text: str) -> bool:
    """Whether *text* can be written: half of a surrogate pair can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
