"""Reads a column definition: type, charset, options."""

import operator

from ticdc_replay.domain.column_types import BaseType, ColumnType
from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, Index
from ticdc_replay.domain.limits import refused_type
from ticdc_replay.schemas.ddl import literals
from ticdc_replay.schemas.ddl.statements import ColumnSpec
from ticdc_replay.schemas.ddl.tokens import Cursor, DdlSyntaxError

_INTEGERS: dict[str, BaseType] = {
    "TINYINT": "tinyint", "INT1": "tinyint",
    "SMALLINT": "smallint", "INT2": "smallint",
    "MEDIUMINT": "mediumint", "INT3": "mediumint", "MIDDLEINT": "mediumint",
    "INT": "int", "INTEGER": "int", "INT4": "int",
    "BIGINT": "bigint", "INT8": "bigint",
}  # fmt: skip
_TEMPORALS: dict[str, BaseType] = {"TIME": "time", "DATETIME": "datetime", "TIMESTAMP": "timestamp"}
_LARGE: dict[str, tuple[BaseType, BaseType]] = {
    "TINYTEXT": ("tinytext", "tinyblob"), "TINYBLOB": ("tinyblob", "tinyblob"),
    "TEXT": ("text", "blob"), "BLOB": ("blob", "blob"),
    "MEDIUMTEXT": ("mediumtext", "mediumblob"), "MEDIUMBLOB": ("mediumblob", "mediumblob"),
    "LONGTEXT": ("longtext", "longblob"), "LONGBLOB": ("longblob", "longblob"),
}  # fmt: skip
_AS_BYTES: dict[str, BaseType] = {
    "char": "binary", "varchar": "varbinary",
    "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob", "longtext": "longblob",
}  # fmt: skip
_CHARACTER_WORDS = frozenset(
    ["CHAR", "CHARACTER", "NCHAR", "NATIONAL", "NVARCHAR", "VARCHAR", "VARCHARACTER", "LONG", "BINARY", "VARBINARY"]
)
_CHARACTER_BASES: dict[bool, tuple[BaseType, BaseType]] = {
    False: ("char", "varchar"),
    True: ("binary", "varbinary"),
}
_OPTIONS_WITH_VALUE = ("COMMENT", "COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")
_OPTIONS_ALONE = ("CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "VISIBLE", "INVISIBLE", "ENFORCED")


def as_bytes(column_type: ColumnType) -> ColumnType:
    """The type that a character type with the charset binary is; other types as they are."""
    base = _AS_BYTES.get(column_type.base)
    if base is None:
        return column_type
    return ColumnType(base, length=column_type.length, declared=True)


def read_column(cursor: Cursor) -> ColumnSpec:
    """Reads ``name type [options]``, up to a comma, a closing parenthesis, FIRST, AFTER or the end.

    Raises DdlSyntaxError, also for a type that TiDB makes no column of.
    """
    name = cursor.name()
    serial = cursor.take("SERIAL")
    column_type = ColumnType("bigint", unsigned=True, declared=True) if serial else read_type(cursor)
    charset = _Charset()
    charset.read(cursor)
    unsigned, attributes = column_type.unsigned, True
    while attributes:
        if cursor.take("UNSIGNED") or cursor.take("ZEROFILL"):
            unsigned = True
        elif not cursor.take("SIGNED"):
            attributes = False
    options = _Options(nullable=not serial, computed=serial)
    if serial:
        options.indexes.append(Index("", (name,), unique=True))
    while options.read(cursor, name, charset):
        pass
    length, scale = column_type.length, column_type.scale
    digits: tuple[int, int] | None = None
    if column_type.base in ("float", "double") and length is not None and scale is not None:
        digits = length, scale
        length = scale = None
    column_type = ColumnType(column_type.base, unsigned, length, scale, column_type.elements, declared=True)
    if charset.binary:
        column_type = as_bytes(column_type)
    refusal = refused_type(column_type)
    if refusal is not None:
        raise DdlSyntaxError(f"column {name}: {refusal}")
    column = DefinedColumn(name, column_type, options.nullable, generated=options.generated, digits=digits)
    column = literals.with_default(column, options.default, options.computed)
    return ColumnSpec(column, charset.given, tuple(options.indexes))


def read_type(cursor: Cursor) -> ColumnType:
    """Reads a type with its length, scale or elements; attributes and charset are left for later.

    FLOAT(M,D) and DOUBLE(M,D) come with M and D as length and scale, which are no part of a column's type.
    """
    word = cursor.next().text.upper()
    if word in _INTEGERS:
        _lengths(cursor)  # a display width
        return ColumnType(_INTEGERS[word], declared=True)
    if word in ("BOOL", "BOOLEAN"):
        return ColumnType("tinyint", declared=True)
    if word in ("FLOAT", "FLOAT4", "DOUBLE", "FLOAT8", "REAL"):
        cursor.take("PRECISION")
        lengths = _lengths(cursor, 255, 30)
        wide = word in ("DOUBLE", "FLOAT8", "REAL") or (len(lengths) == 1 and lengths[0] > 24)
        length, scale = lengths if len(lengths) == 2 else (None, None)
        if length is not None and scale is not None and scale > length:
            raise DdlSyntaxError(f"{word}({length},{scale}) has more digits after the point than digits")
        return ColumnType("double" if wide else "float", length=length, scale=scale, declared=True)
    if word in ("DECIMAL", "DEC", "NUMERIC", "FIXED"):
        lengths = [*_lengths(cursor, 65, 30)] or [10]
        return ColumnType(
            "decimal", length=lengths[0] or 10, scale=lengths[1] if len(lengths) > 1 else 0, declared=True
        )
    if word == "BIT":
        return ColumnType("bit", length=(_lengths(cursor, 64) or [1])[0], declared=True)
    if word == "YEAR":
        _lengths(cursor)
        return ColumnType("year", declared=True)
    if word == "DATE":
        return ColumnType("date", declared=True)
    if word in _TEMPORALS:
        return ColumnType(_TEMPORALS[word], scale=(_lengths(cursor, 6) or [0])[0], declared=True)
    if word in ("ENUM", "SET"):
        return ColumnType("enum" if word == "ENUM" else "set", elements=_elements(cursor), declared=True)
    if word == "JSON":
        return ColumnType("json", declared=True)
    if word == "VECTOR":
        if cursor.take("<"):
            cursor.expect("FLOAT", ">")
        return ColumnType("vector", length=next(iter(_lengths(cursor)), None), declared=True)
    if word in _LARGE:
        return _large(word, _lengths(cursor))
    if word in _CHARACTER_WORDS:
        return _characters(word, cursor)
    raise DdlSyntaxError(f"unknown column type {word}")


def _characters(word: str, cursor: Cursor) -> ColumnType:
    if word == "LONG":
        if cursor.take("VARBINARY"):
            return ColumnType("mediumblob", declared=True)
        if not cursor.take_any("VARCHAR", "VARCHARACTER"):
            cursor.take("CHAR", "VARYING")
        return ColumnType("mediumtext", declared=True)
    if word == "NATIONAL":
        word = cursor.next().text.upper()
    varying = word in ("VARCHAR", "VARCHARACTER", "NVARCHAR", "VARBINARY")
    if word in ("CHAR", "CHARACTER", "NCHAR") and cursor.take_any("VARYING", "VARCHAR", "VARCHARACTER"):
        varying = True
    length = next(iter(_lengths(cursor)), None)
    narrow, wide = _CHARACTER_BASES[word in ("BINARY", "VARBINARY")]
    base = wide if varying else narrow
    return ColumnType(base, length=length if varying or length is not None else 1, declared=True)


def _large(word: str, lengths: list[int]) -> ColumnType:
    text = word.endswith("TEXT")
    if lengths and word in ("TEXT", "BLOB"):  # the smallest type that holds this many characters or bytes
        size = lengths[0] * (4 if text else 1)
        sizes = (("TINY", 1 << 8), ("", 1 << 16), ("MEDIUM", 1 << 24))
        word = next((prefix for prefix, limit in sizes if size < limit), "LONG") + word
    return ColumnType(_LARGE[word][0], declared=True)


def _lengths(cursor: Cursor, *limits: int) -> list[int]:
    """Reads ``(n, …)`` if it is next; *limits* are the largest numbers MySQL allows, where more would mean a misreading."""
    numbers = cursor.in_parentheses(cursor.number) if cursor.sees("(") else []
    if limits and (len(numbers) > len(limits) or any(map(operator.gt, numbers, limits))):
        raise DdlSyntaxError(f"lengths {numbers} are beyond MySQL's {list(limits)}")
    return numbers


def _elements(cursor: Cursor) -> tuple[str, ...]:
    elements = cursor.in_parentheses(lambda: _element(cursor))
    return tuple(element.rstrip(" ") for element in elements)  # MySQL drops trailing spaces of elements


def _element(cursor: Cursor) -> str:
    """An element may be a literal of bytes: of ASCII, they are the same text in each charset."""
    if cursor.peek().kind not in ("bits", "hex"):
        return cursor.string()
    content = literals.bytes_of(literals.digits_of(cursor.next()))
    if not content.isascii():
        raise DdlSyntaxError(f"an element of the bytes {content.hex()}, whose text depends on the charset")
    return content.decode("ascii")


class _Charset:
    """The charset and collation of one column, as far as it matters: whether it is binary."""

    def __init__(self) -> None:
        self.binary = False
        self.given = False

    def read(self, cursor: Cursor) -> bool:
        """Reads any charset clauses that are next; True when there were some."""
        found = False
        while True:
            if cursor.take("CHARACTER", "SET") or cursor.take("CHARSET") or cursor.take("CHAR", "SET"):
                name: str | None = read_charset_name(cursor)
            elif cursor.take("COLLATE"):
                name = read_charset_name(cursor)
            elif cursor.take("BYTE"):
                name = "binary"
            elif cursor.take("BINARY") or cursor.take("ASCII") or cursor.take("UNICODE"):
                name = None  # a _bin collation, or another text charset: still text
            else:
                return found
            found = True
            if name is not None:
                self.given = True
                self.binary = self.binary or name == "binary"


def read_charset_name(cursor: Cursor) -> str:
    """Reads the name of a charset or collation, quoted or not, in lower case."""
    cursor.take("=")
    return cursor.next().text.lower()


class _Options:
    """What the options of a column say."""

    def __init__(self, nullable: bool, computed: bool) -> None:
        self.nullable = nullable
        self.computed = computed
        self.default: literals.Literal | None = None
        self.generated: literals.Generated = None
        self.indexes: list[Index] = []

    def read(self, cursor: Cursor, name: str, charset: _Charset) -> bool:
        """Reads one option; False where the definition ends."""
        if cursor.at_end or any(cursor.sees(word) for word in (",", ")", "FIRST", "AFTER")):
            return False
        if cursor.take("NOT", "NULL"):
            self.nullable = False
        elif cursor.take("NULL"):
            self.nullable = True
        elif cursor.take("DEFAULT"):
            self.default = literals.read_default(cursor)
            self.computed = self.computed or self.default is None
        elif cursor.take("SERIAL", "DEFAULT", "VALUE"):
            self.nullable, self.computed = False, True
            self.indexes.append(Index("", (name,), unique=True))
        elif cursor.take("ON", "UPDATE"):
            literals.read_default(cursor)
        elif cursor.take("AUTO_INCREMENT") or cursor.take("AUTO_RANDOM"):
            self.computed = True
            if cursor.sees("("):
                cursor.skip_parentheses()
        elif cursor.take("UNIQUE"):
            cursor.take("KEY")
            self.indexes.append(Index("", (name,), unique=True))
        elif cursor.take("PRIMARY", "KEY") or cursor.take("PRIMARY") or cursor.take("KEY"):
            self.nullable = False
            self.indexes.append(Index(PRIMARY, (name,), unique=True))
        elif cursor.take("GENERATED", "ALWAYS", "AS") or cursor.take("AS"):
            cursor.skip_parentheses()
            self.generated = "stored" if cursor.take_any("STORED", "PERSISTENT") else "virtual"
            cursor.take("VIRTUAL")
        elif cursor.take("REFERENCES"):
            _skip_reference(cursor)
        elif cursor.take("CONSTRAINT"):
            if not cursor.sees("CHECK"):
                cursor.name()
        elif cursor.take("CHECK"):
            cursor.skip_parentheses()
        elif cursor.take_any(*_OPTIONS_WITH_VALUE):
            cursor.take("=")
            cursor.next()
        elif not (cursor.take_any(*_OPTIONS_ALONE) or cursor.take("NOT", "ENFORCED") or charset.read(cursor)):
            raise DdlSyntaxError(f"unknown column option {cursor.peek().text!r} of column {name}")
        return True


def _skip_reference(cursor: Cursor) -> None:
    cursor.dotted_name()
    if cursor.sees("("):
        cursor.skip_parentheses()
    if cursor.take("MATCH"):
        cursor.next()
    while cursor.take("ON", "DELETE") or cursor.take("ON", "UPDATE"):
        if not (cursor.take("SET", "NULL") or cursor.take("SET", "DEFAULT") or cursor.take("NO", "ACTION")):
            cursor.next()
