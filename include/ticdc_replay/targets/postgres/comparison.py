"""A mirror in PostgreSQL as a side of a comparison: the canonical text of its cells (``verify.forms``), and its ranges."""

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import psycopg
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.mirror.comparison import Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.verify import forms
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, MirrorSide, Range

_SESSION = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1; "
    "SET default_transaction_read_only = on; SET max_parallel_workers_per_gather = 0"
)
"""One process of the server for one comparison, as the source has it: others have their part of the machine."""
_FORMS = {
    "smallint": {Form.INTEGER},
    "integer": {Form.INTEGER},
    "bigint": {Form.INTEGER},
    "real": {Form.FLOAT},
    "double precision": {Form.FLOAT},
    "date": {Form.DATE},
    "interval": {Form.SPAN},
    "text": {Form.TEXT},
    "json": {Form.JSON},
    "bytea": {Form.BYTES},
}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(\d+)\))?")

_BY_LOCALE = """
SELECT a.attname::text
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND l.collname NOT IN ('C', 'POSIX', 'ucs_basic')
"""
"""The database's own collation counts, too, whatever it is."""

_retried = retry(
    retry=retry_if_exception_type(TransientError),
    stop=stop_after_attempt(3),
    wait=wait_exponential_jitter(multiplier=0.2, jitter=0.2),
    reraise=True,
)


class PostgresComparisons(Comparisons):
    """A session that connects when the first statement is sent, and again after it was lost."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        """End the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def forms(self, type_name: str) -> frozenset[Form]:
        if _NUMERIC.fullmatch(type_name):
            return frozenset({Form.INTEGER, Form.DECIMAL})
        if type_name.startswith("timestamp"):
            return frozenset({Form.INSTANT if type_name.endswith("with time zone") else Form.MOMENT})
        return frozenset(_FORMS.get(type_name, ()))

    def side(self, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]) -> MirrorSide:
        return PostgresSide(self, table, columns, key)

    def compared_by_locale(self, table: Relation) -> frozenset[str]:
        """The columns of *table* whose collation may compare texts in another order than that of their bytes."""
        return frozenset(name for (name,) in self.query(f"compare {table}", _BY_LOCALE, [table.schema, table.table]))

    @_retried
    def query(self, doing: str, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of *statement*; *doing* says in errors what it is for."""
        try:
            if self._connection is None:
                self._connection = self._settings.connect()
                self._connection.autocommit = True
                self._connection.execute(_SESSION)
            return self._connection.execute(statement.encode(), parameters).fetchall()
        except psycopg.Error as error:
            self._fail(error, doing)

    def _fail(self, error: psycopg.Error, doing: str) -> NoReturn:
        if self._connection is not None and self._connection.closed:
            self._connection = None
        raise translate(error, doing, self._settings.conn_id) from error


class PostgresSide(MirrorSide):
    """Compares *columns* of *table*; *key* are the places of the key's columns among them."""

    def __init__(
        self, session: PostgresComparisons, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]
    ) -> None:
        assert table.found is not None, table.relation
        types = {column.name: column.type for column in table.found.columns}
        self._session = session
        self._doing = f"compare {table.relation}"
        self._columns = [(column, types[column.mirror]) for column in columns]
        self._key = [self._columns[at] for at in key]
        self._forms = [column.form for column, _ in self._key]
        by_locale = session.compared_by_locale(table.relation)
        self.steps_by_index = not any(column.mirror in by_locale for column, _ in self._key)
        # Ranges compare texts by their bytes, as the source does.
        self._names = ", ".join(
            _quoted(column.mirror) + (' COLLATE "C"' if column.mirror in by_locale else "") for column, _ in self._key
        )
        self._table = f"{_quoted(table.relation.schema)}.{_quoted(table.relation.table)}"
        self._version = _quoted(table.version_column)
        self._conditions: tuple[str, ...] = ()
        tombstones, marker = table.state.tombstones, table.state.deleted_column
        self._deletes: tuple[str, tuple[str, ...]] = f"{_quoted(tombstones.schema)}.{_quoted(tombstones.table)}", ()
        if marker is not None:
            self._conditions = (f"NOT {_quoted(marker)}",)
            self._deletes = self._table, (_quoted(marker),)
        self._row_md5 = f"md5({_joined([_in_row(*each) for each in self._columns])})"
        self._key_texts = ", ".join(_key_text(*each) for each in self._key)

    def digest(self, part: Range) -> Digest:
        bits = f"bit_xor(('x' || left({self._row_md5}, 16))::bit(64)::bigint)"
        [(rows, found)] = self._select(f"count(*), {bits}", part)
        return Digest(rows, (found or 0) % (1 << 64))

    def step(self, part: Range, rows: int) -> Key | None:
        found = self._select(self._key_texts, part, f" ORDER BY {self._names} LIMIT 1 OFFSET {rows}")
        return self._key_of(found[0]) if found else None

    def rows(self, part: Range) -> list[FoundRow]:
        found = self._select(f"{self._row_md5}, {self._version}, {self._key_texts}", part)
        return [FoundRow(self._key_of(row[2:]), row[0], row[1]) for row in found]

    def cells(self, key: Key) -> list[str | None] | None:
        found = self._of_key(", ".join(_cell(*each) for each in self._columns), key)
        return list(found[0]) if found else None

    def value(self, key: Key, column: int) -> str | None:
        found = self._of_key(_value(*self._columns[column]), key)
        return found[0][0] if found else None

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        table, conditions = self._deletes
        [(exists,)] = self._session.query(self._doing, "SELECT to_regclass(%s) IS NOT NULL", [table.replace("%%", "%")])
        if not exists or not keys:
            return {}
        rows = ", ".join([self._row] * len(keys))
        where = " AND ".join([*conditions, f"ROW({self._names}) IN ({rows})"])
        statement = f"SELECT {self._version}, {self._key_texts} FROM {table} WHERE {where}"
        found = self._session.query(self._doing, statement, [each for key in keys for each in self._parameters(key)])
        return {self._key_of(row[1:]): row[0] for row in found}

    def _key_of(self, texts: Sequence[str]) -> Key:
        return forms.canonical_key(texts, self._forms)

    def _select(self, selected: str, part: Range, end: str = "") -> list[tuple[Any, ...]]:
        conditions, parameters = [*self._conditions], []
        for bound, operator in ((part.lower, ">="), (part.upper, "<")):
            if bound is not None:
                conditions.append(f"ROW({self._names}) {operator} {self._row}")
                parameters += self._parameters(bound)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._session.query(self._doing, f"SELECT {selected} FROM {self._table}{where}{end}", parameters)

    def _of_key(self, selected: str, key: Key) -> list[tuple[Any, ...]]:
        where = " AND ".join([*self._conditions, f"ROW({self._names}) = {self._row}"])
        return self._session.query(
            self._doing, f"SELECT {selected} FROM {self._table} WHERE {where}", self._parameters(key)
        )

    @property
    def _row(self) -> str:
        return f"ROW({', '.join(_placeholder(type_name) for _, type_name in self._key)})"

    def _parameters(self, key: Key) -> list[str]:
        return [
            f"{text}+00" if form is Form.INSTANT else f"\\x{text}" if form is Form.BYTES else text
            for text, form in zip(key, self._forms, strict=True)
        ]


def _placeholder(type_name: str) -> str:
    return f"%s::{type_name}"


def _quoted(name: str) -> str:
    """*name* as an identifier, in a statement with placeholders."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _joined(cells: Sequence[str]) -> str:
    """The text of a row; functions take at most 100 arguments, and a cell may be two."""
    parts = [f"concat_ws(',', {', '.join(cells[at : at + 45])})" for at in range(0, len(cells), 45)]
    return " || ',' || ".join(parts)


def _in_row(column: ComparedColumn, type_name: str) -> str:
    """The cell among the arguments of concat_ws, which leaves out a NULL. A text stands after its length in bytes."""
    text = _cell(column, type_name)
    if column.form is Form.TEXT and not forms.is_hashed(column.form, column.type):
        return f"coalesce(octet_length({text}), {forms.NO_LENGTH}), {text}"
    return f"coalesce({text}, '{forms.NULL}')"


def _cell(column: ComparedColumn, type_name: str) -> str:
    if not forms.is_hashed(column.form, column.type):
        return _text(column, type_name)
    name = _quoted(column.mirror)
    return f"md5({name})" if column.form is Form.BYTES else f"md5({name}::text)"


def _value(column: ComparedColumn, type_name: str) -> str:
    name = _quoted(column.mirror)
    return f"{name}::float8::text" if column.form is Form.FLOAT else _text(column, type_name)


def _key_text(column: ComparedColumn, type_name: str) -> str:
    return _value(column, type_name)


def _text(column: ComparedColumn, type_name: str) -> str:
    """The canonical text of a cell."""
    name = _quoted(column.mirror)
    numeric = _NUMERIC.fullmatch(type_name)
    match column.form:
        case Form.INTEGER if numeric is not None and numeric[2] != "0":
            return f"trim_scale({name})::text"
        case Form.DECIMAL:
            scale = column.type.scale or 0
            if numeric is not None and numeric[2] == str(scale):
                return f"{name}::text"
            return f"CASE WHEN scale(trim_scale({name})) <= {scale} THEN round({name}, {scale}) ELSE {name} END::text"
        case Form.FLOAT:
            return float_text(f"{name}::float8")
        case Form.INSTANT:
            return f"({name} AT TIME ZONE 'UTC')::text"
        case Form.BYTES:
            return f"encode({name}, 'hex')"
        case Form.TEXT:
            return name
        case _:
            return f"{name}::text"


def float_text(number: str) -> str:
    """The text of a double: as in MySQL (``verify.mysql.float_text``)."""

    def decimal(scaled: str) -> str:
        return f"({scaled})::text::numeric(65,30)::text"

    def literal(value: float) -> str:
        return f"'{value!r}'::float8"

    low, high = literal(forms.PLAIN_FROM), literal(forms.PLAIN_TO)
    branches = [
        f"WHEN {number} BETWEEN {low} AND {high} OR {number} BETWEEN -{high} AND -{low} THEN {number}::text",
        f"WHEN abs({number}) >= {literal(forms.LEAST)} AND abs({number}) < {literal(forms.MOST)} THEN {decimal(number)}",
        f"WHEN {number} = 0 THEN '0'",
        f"WHEN {number} IN ('NaN', 'Infinity', '-Infinity') THEN {number}::text",
    ]
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_DOWN, 1)]):
        scaled = decimal(" * ".join([number, *map(literal, factors)]))
        branches.append(f"WHEN abs({number}) >= {literal(bound)} THEN '-{place}:' || {scaled}")
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_UP, 1)]):
        scaled = decimal(" * ".join([number, *map(literal, factors)]))
        branches.append(f"WHEN abs({number}) < {literal(bound)} THEN '{place}:' || {scaled}")
    return f"CASE {' '.join(branches)} END"
