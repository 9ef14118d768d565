"""A mirror in PostgreSQL as a side of a comparison: the canonical text of its cells (``verify.forms``), and its ranges."""

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import psycopg
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.mirror.comparison import Comparisons, MirrorTable
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.verify import forms
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, MirrorSide, Range

_SESSION = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1; "
    "SET default_transaction_read_only = on"
)
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

    steps_by_index = True

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
        self._names = ", ".join(_quoted(column.mirror) for column, _ in self._key)
        self._table = f"{_quoted(table.relation.schema)}.{_quoted(table.relation.table)}"
        self._tombstones = f"{_quoted(table.state.tombstones.schema)}.{_quoted(table.state.tombstones.table)}"
        self._version = _quoted(table.version_column)
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
        found = self._of_keys(", ".join(_cell(*each) for each in self._columns), [key])
        return list(found[0]) if found else None

    def value(self, key: Key, column: int) -> str | None:
        found = self._of_keys(_value(*self._columns[column]), [key])
        return found[0][0] if found else None

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        [(exists,)] = self._session.query(
            self._doing, "SELECT to_regclass(%s) IS NOT NULL", [self._tombstones.replace("%%", "%")]
        )
        if not exists or not keys:
            return {}
        found = self._of_keys(f"{self._version}, {self._key_texts}", keys, self._tombstones)
        return {self._key_of(row[1:]): row[0] for row in found}

    def _key_of(self, texts: Sequence[str]) -> Key:
        return forms.canonical_key(texts, self._forms)

    def _select(self, selected: str, part: Range, end: str = "") -> list[tuple[Any, ...]]:
        conditions, parameters = [], []
        for bound, operator in ((part.lower, ">="), (part.upper, "<")):
            if bound is not None:
                conditions.append(f"ROW({self._names}) {operator} {self._row}")
                parameters += self._parameters(bound)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._session.query(self._doing, f"SELECT {selected} FROM {self._table}{where}{end}", parameters)

    def _of_keys(self, selected: str, keys: Sequence[Key], table: str | None = None) -> list[tuple[Any, ...]]:
        rows = ", ".join([self._row] * len(keys))
        statement = f"SELECT {selected} FROM {table or self._table} WHERE ROW({self._names}) IN ({rows})"
        return self._session.query(self._doing, statement, [each for key in keys for each in self._parameters(key)])

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
