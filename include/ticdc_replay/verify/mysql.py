"""A table in MySQL, TiDB or MariaDB as a side of a comparison.

The session's ``time_zone`` is UTC, its ``sql_mode`` empty, and what it returns UTF-8 (``source_statements.SESSION``).
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.mysql_protocol import quoted
from ticdc_replay.verify import forms
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import Digest, FoundRow, Key, Range, Side

Query = Callable[[Statement], Sequence[tuple[Any, ...]]]
"""Runs a statement; its rows, cells as the bytes that the server sent."""

_WHOLE_SECONDS = len("2026-03-01 10:00:00")
_UTF8 = ("utf8mb4_", "utf8mb3_", "utf8_", "ascii_")
"""How collations of character sets begin whose bytes are UTF-8."""
_MOST_TEXT = 65_535 * 4
"""Bytes of a text of unknown length; in UTF-8 up to four for each stored one."""
_MOST_OTHERS = 400
"""Bytes of an MD5, a length, a number or a time, with what a CASE adds; a decimal has 65 digits."""
_IN_ORDER = frozenset({"utf8mb4_bin", "utf8mb3_bin", "utf8_bin", "ascii_bin"})
"""Collations whose order is that of UTF-8's bytes, but for spaces at the end."""


class MySqlColumn(msgspec.Struct, frozen=True):
    """A column to compare, its ``collation`` for texts."""

    name: str
    type: ColumnType
    form: Form
    nullable: bool
    collation: str | None = None
    own_scale: int | None = None
    """Digits after the point of a decimal of a mirror, which may be more than those of ``type``."""
    by_bytes: bool = False
    """Whether its texts are UTF-8, in a collation that orders them by their bytes, spaces at the end too, as a mirror's are."""
    is_utf8: bool = False
    """Whether its texts can be taken as they are: in UTF-8, and in one collation with all other texts of the table."""


class MySqlSide(Side):
    """Compares *columns* of the rows of *table* that meet *conditions*; *key* are the places of the key's columns among them, in
    the order of an index."""

    def __init__(
        self,
        query: Query,
        table: TableName,
        columns: Sequence[MySqlColumn],
        key: Sequence[int],
        conditions: Sequence[str] = (),
    ) -> None:
        self.query = query
        self._conditions = conditions
        collations = {column.collation for column in columns if forms.is_character(column.type)}
        as_they_are = len(collations) == 1 and all(each is not None and each.startswith(_UTF8) for each in collations)
        self._columns = tuple(
            msgspec.structs.replace(
                column, is_utf8=column.by_bytes or (as_they_are and forms.is_character(column.type))
            )
            for column in columns
        )
        self._key = tuple(self._columns[at] for at in key)
        self._forms = [column.form for column in self._key]
        self._table = f"{quoted(table.schema)}.{quoted(table.table)}"
        self._name = str(table)
        self.steps_by_index = all(ordered(column) == quoted(column.name) for column in self._key)
        self._row_md5 = f"MD5(CONCAT_WS(',', {', '.join(_in_row(column) for column in self._columns)}))"
        self._key_texts = ", ".join(key_text(column) for column in self._key)

    def digest(self, part: Range) -> Digest:
        bits = f"BIT_XOR(CAST(CONV(LEFT({self._row_md5}, 16), 16, 10) AS UNSIGNED))"
        # A second MD5 of each row takes as long as all else.
        whole_rows = "COUNT(*)" if self._fits_packet else f"COUNT({self._row_md5})"
        [(rows, found, whole)] = self._select(f"COUNT(*), {bits}, {whole_rows}", part)
        if int(whole) < int(rows):
            raise PermanentError(
                f"{self._name}: the text of a row is longer than the max_allowed_packet of its server: set it higher"
            )
        return Digest(int(rows), int(found))

    @cached_property
    def _fits_packet(self) -> bool:
        """Whether the text of every row has room in the max_allowed_packet of the server, which has no text that is longer."""
        [(most,)] = self.query(Statement("SELECT @@max_allowed_packet"))
        return sum(map(_most_bytes, self._columns)) <= int(most)

    def step(self, part: Range, rows: int) -> Key | None:
        order = ", ".join(ordered(column) for column in self._key)
        found = self._select(self._key_texts, part, f" ORDER BY {order} LIMIT 1 OFFSET {rows}")
        return self._key_of(found[0]) if found else None

    def rows(self, part: Range) -> list[FoundRow]:
        return [FoundRow(key, md5, 0) for key, md5, _ in self.rows_with(part, "0")]

    def rows_with(self, part: Range, selected: str) -> list[tuple[Key, str, bytes]]:
        """The rows of *part*: key, MD5 and what *selected*, an expression, gives."""
        found = self._select(f"{self._row_md5}, {selected}, {self._key_texts}", part)
        return [(self._key_of(row[2:]), self._md5(row), row[1]) for row in found]

    def keys_with(
        self, keys: Sequence[Key], selected: str, table: TableName, conditions: Sequence[str] = ()
    ) -> list[tuple[Key, bytes]]:
        """Those of *keys* of which *table*, whose key columns are those of this one, has a row that meets *conditions*, and what
        *selected* gives of each."""
        found_keys = [_all(_equal(*pair) for pair in zip(self._key, key, strict=True)) for key in keys]
        where = " AND ".join([*conditions, f"({' OR '.join(f'({text})' for text, _ in found_keys)})"])
        place = f"{quoted(table.schema)}.{quoted(table.table)}"
        statement = f"SELECT {selected}, {self._key_texts} FROM {place} WHERE {where}"
        found = self.query(Statement(statement, tuple(value for _, values in found_keys for value in values)))
        return [(self._key_of(row[1:]), row[0]) for row in found]

    def cells(self, key: Key) -> list[str | None] | None:
        texts = ", ".join(_cell(column) for column in self._columns)
        found = self._of_key(texts, key)
        return None if not found else [None if cell is None else cell.decode() for cell in found[0]]

    def value(self, key: Key, column: int) -> str | None:
        found = self._of_key(_value(self._columns[column]), key)
        return None if not found or found[0][0] is None else str(found[0][0].decode())

    def _md5(self, row: tuple[Any, ...]) -> str:
        if row[0] is None:
            raise PermanentError(
                f"{self._name}: the text of the row {self._key_of(row[1:])} is longer than the source's max_allowed_packet: "
                "set it higher"
            )
        return str(row[0].decode())

    def _key_of(self, cells: Sequence[bytes]) -> Key:
        return forms.canonical_key([cell.decode() for cell in cells], self._forms)

    def _select(self, selected: str, part: Range, end: str = "") -> Sequence[tuple[Any, ...]]:
        conditions, parameters = [*self._conditions], []
        for bound, condition in ((part.lower, _from), (part.upper, _below)):
            if bound is not None:
                text, values = condition(self._key, bound)
                conditions.append(text)
                parameters += values
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self.query(Statement(f"SELECT {selected} FROM {self._table}{where}{end}", tuple(parameters)))

    def _of_key(self, selected: str, key: Key) -> Sequence[tuple[Any, ...]]:
        condition, values = _all(_equal(column, text) for column, text in zip(self._key, key, strict=True))
        where = " AND ".join([*self._conditions, condition])
        return self.query(Statement(f"SELECT {selected} FROM {self._table} WHERE {where}", tuple(values)))


_Condition = tuple[str, list[Any]]


def _most_bytes(column: MySqlColumn) -> int:
    """How many bytes the cell has at most in the text of its row."""
    if column.form is not Form.TEXT or forms.is_hashed(column.form, column.type):
        return _MOST_OTHERS
    names, length = column.type.elements, column.type.length
    if names is not None:
        return _MOST_OTHERS + sum(len(name.encode()) + 1 for name in names)
    short = column.type.base in ("char", "varchar") and length is not None
    return _MOST_OTHERS + (length * 4 if short and length is not None else _MOST_TEXT)


def _from(key: Sequence[MySqlColumn], bound: Key) -> _Condition:
    return _ordered(key, bound, _above, _from_one)


def _below(key: Sequence[MySqlColumn], bound: Key) -> _Condition:
    return _ordered(key, bound, _below_one, _below_one)


_Atom = Callable[[MySqlColumn, str], _Condition]


def _ordered(key: Sequence[MySqlColumn], bound: Key, strictly: _Atom, at_last: _Atom) -> _Condition:
    """``a > x OR a = x AND b > y OR …``: of a comparison of rows, servers make no range of an index."""
    alternatives = []
    for last, column in enumerate(key):
        equal = [_equal(*pair) for pair in zip(key[:last], bound[:last], strict=True)]
        atom = at_last if last == len(key) - 1 else strictly
        alternatives.append(_all([*equal, atom(column, bound[last])]))
    text = " OR ".join(text for text, _ in alternatives)
    return f"({text})", [value for _, values in alternatives for value in values]


def _all(conditions: Any) -> _Condition:
    found = list(conditions)
    return " AND ".join(text for text, _ in found), [value for _, values in found for value in values]


def _above(column: MySqlColumn, text: str) -> _Condition:
    return _compared(column, ">", text)


def _from_one(column: MySqlColumn, text: str) -> _Condition:
    return _compared(column, ">=", text)


def _below_one(column: MySqlColumn, text: str) -> _Condition:
    return _compared(column, "<", text)


def _equal(column: MySqlColumn, text: str) -> _Condition:
    condition, values = _compared(column, "=", text)
    if column.form is Form.TEXT:  # texts that are equal by their bytes are so in any collation, which an index knows
        return f"{quoted(column.name)} = %s AND {condition}", [text, *values]
    return condition, values


def _compared(column: MySqlColumn, operator: str, text: str) -> _Condition:
    condition, values = f"{ordered(column)} {operator} %s", [_parameter(column, text)]
    if column.form is not Form.TEXT or column.collation not in _IN_ORDER:
        return condition, values
    hint = at_least(text) if operator.startswith(">") else at_most(text) if operator == "<" else None
    if hint is None:
        return condition, values
    sign = ">=" if operator.startswith(">") else "<="
    return f"{quoted(column.name)} {sign} %s AND {condition}", [hint, *values]


def at_least(text: str) -> str | None:
    """A text that no text from *text* on, by bytes, comes before in a ``_bin`` collation; None for none.

    Such collations compare texts as if spaces followed them for ever, so ``a`` comes after ``a\\t``. A text from *text* on
    either begins with the result and goes on with a character above the space, or is above it at an earlier character.
    """
    for length in range(len(text) - 1, 0, -1):
        if text[length] > " ":
            return text[:length]
    return None


def at_most(text: str) -> str | None:
    """A text that no text below *text*, by bytes, comes after in a ``_bin`` collation; None for none."""
    return None if any(char < " " for char in text) else text


def ordered(column: MySqlColumn) -> str:
    """What keys are compared by: the column itself if its order is that of ``Range``, which an index then serves."""
    name = quoted(column.name)
    if column.by_bytes and column.form is Form.TEXT:
        return name
    if column.form is Form.TEXT:
        return f"CAST({_utf8(name, column)} AS BINARY)"
    if column.type.base in ("enum", "set", "year"):  # a year compares with 1 to 99 as with years of two digits
        return f"CAST({name} AS UNSIGNED)"
    return name


def _parameter(column: MySqlColumn, text: str) -> Any:
    match column.form:
        case Form.INTEGER:
            return int(text)
        case Form.DECIMAL:
            return Decimal(text)
        case Form.FLOAT | Form.BITS:
            return float(text)
        case Form.BYTES:
            return bytes.fromhex(text)
        case Form.TEXT if not column.by_bytes:
            return text.encode()
        case _:
            return text


def key_text(column: MySqlColumn) -> str:
    """The canonical text of a key's column, whole; of a float all its digits."""
    name = quoted(column.name)
    if column.form is Form.BYTES:
        return f"LOWER(HEX({name}))"
    return _value(column) if column.form in forms.FLOATS else _text(name, column)


def _value(column: MySqlColumn) -> str:
    name = quoted(column.name)
    # As double: MySQL prints six digits of a float.
    return f"{name} * 1e0" if column.form in forms.FLOATS else _text(name, column)


def _cell(column: MySqlColumn) -> str:
    text = _text(quoted(column.name), column)
    return f"MD5({text})" if forms.is_hashed(column.form, column.type) else text


def _in_row(column: MySqlColumn) -> str:
    """The cell among the arguments of CONCAT_WS, which leaves out a NULL. A text stands after its length in bytes."""
    text = _cell(column)
    if column.form is Form.TEXT and forms.is_short(column.type):
        length = f"LENGTH({text})"
        return f"IFNULL({length}, {forms.NO_LENGTH}), {text}" if column.nullable else f"{length}, {text}"
    return f"IFNULL({text}, '{forms.NULL}')" if column.nullable else text


def _text(name: str, column: MySqlColumn) -> str:
    """The canonical text of a cell, of bytes the bytes."""
    match column.form:
        case Form.INTEGER:
            signed = column.type.base not in ("bit", "enum", "set", "year") and not column.type.unsigned
            return name if signed else f"CAST({name} AS UNSIGNED)"  # without the zeros of ZEROFILL
        case Form.DECIMAL:
            scale = column.type.scale or 0
            zero = f"0.{'0' * scale}" if scale else "0"
            number = name
            if column.own_scale not in (
                None,
                scale,
            ):  # without more digits than the source has, where no value needs them
                number = f"CAST({name} AS DECIMAL(65,{scale}))"
                return f"IF({name} = 0, '{zero}', IF({number} = {name}, {number}, {name}))"
            if column.type.unsigned:
                number = f"CAST({name} AS DECIMAL({column.type.length or 10},{scale}))"
            return f"IF({name} = 0, '{zero}', {number})"
        case Form.FLOAT:
            return float_text(name)
        case Form.BITS:
            return bits_text(name)
        case Form.MOMENT | Form.INSTANT if column.type.scale:  # a third of the time where there is no fraction
            return f"IF(MICROSECOND({name}) > 0, TRIM(TRAILING '0' FROM {name}), LEFT({name}, {_WHOLE_SECONDS}))"
        case Form.SPAN if column.type.scale:
            return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {name}))"
        case Form.TEXT | Form.JSON:
            return _utf8(name, column)
        case _:
            return name


def _utf8(name: str, column: MySqlColumn) -> str:
    if column.is_utf8:
        return name
    return f"CONVERT({name} USING utf8mb4)" if forms.is_character(column.type) else f"CAST({name} AS CHAR)"


def float_text(name: str) -> str:
    """The text of the float or double *name*, which every server prints in another way where it is large or small.

    TiDB prints doubles, and makes decimals of them, with the fewest digits, as MySQL does: ``builtinCastRealAsStringSig`` and
    ``MyDecimal.FromFloat64`` in pingcap/tidb, ``pkg/expression/builtin_cast*.go`` and ``pkg/types/mydecimal.go``.
    """
    number = f"{name} * 1e0"  # DOUBLE(M,D) would have D digits, and FLOAT six
    low, high = _double(forms.PLAIN_FROM), _double(forms.PLAIN_TO)
    branches = [
        f"WHEN ABS({name}) BETWEEN {low} AND {high} THEN {number}",
        f"WHEN ABS({name}) >= {_double(forms.LEAST)} AND ABS({name}) < {_double(forms.MOST)} THEN {_decimal(number)}",
        f"WHEN {name} = 0 THEN '0'",
    ]
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_DOWN, 1)]):
        scaled = _decimal(" * ".join([name, *map(_double, factors)]))
        branches.append(f"WHEN ABS({name}) >= {_double(bound)} THEN CONCAT('-{place}:', {scaled})")
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_UP, 1)]):
        scaled = _decimal(" * ".join([name, *map(_double, factors)]))
        branches.append(f"WHEN ABS({name}) < {_double(bound)} THEN CONCAT('{place}:', {scaled})")
    return f"CASE {' '.join(branches)} END"


def bits_text(name: str) -> str:
    """The text of the float or double *name* in the form ``bits``, which needs no digits that a server finds."""
    number = f"{name} * 1e0"
    positive = f"ABS({number})"
    branches = [
        f"WHEN {positive} >= {_double(forms.LEAST)} AND {positive} < {_double(forms.MOST)} THEN CONCAT({_limbs(positive)})",
        f"WHEN {name} = 0 THEN '0'",
    ]
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_DOWN, 1)]):
        scaled = " * ".join([positive, *map(_double, factors)])
        branches.append(f"WHEN {positive} >= {_double(bound)} THEN CONCAT('-{place}:', {_limbs(scaled)})")
    for place, (bound, factors) in reversed([*enumerate(forms.TIMES_UP, 1)]):
        scaled = " * ".join([positive, *map(_double, factors)])
        branches.append(f"WHEN {positive} < {_double(bound)} THEN CONCAT('{place}:', {_limbs(scaled)})")
    return f"CONCAT(IF({name} < 0, '-', ''), CASE {' '.join(branches)} END)"


def _limbs(number: str) -> str:
    """The arguments of CONCAT that write the positive *number* as ``forms.LIMBS`` says."""
    parts, rest = [], number
    for _ in range(forms.LIMBS):
        parts.append(f"CAST(FLOOR({rest}) AS SIGNED), '.'")
        rest = f"({rest} - FLOOR({rest})) * {_double(2.0**forms.LIMB_BITS)}"
    return ", ".join([*parts, f"CAST(FLOOR({rest}) AS SIGNED)"])


def _decimal(number: str) -> str:
    return f"CAST({number} AS DECIMAL(65,30))"


def _double(number: float) -> str:
    """The literal of a double: without an exponent it would be that of a decimal."""
    text = repr(number)
    return text if "e" in text else f"{text}e0"
