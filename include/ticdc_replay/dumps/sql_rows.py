"""Rows of SQL files as Dumpling writes them.

Source: dumpling/export/writer_util.go (``WriteInsert``), ir_impl.go (``serverSpecialComments``), sql_type.go
(``escapeBackslashSQL``, ``SQLTypeBytes``) and pkg/dumpformat/sqlfile: after special comments, statements of a line
``INSERT INTO `t` VALUES`` or ``INSERT INTO `t` (`a`,`b`) VALUES``, and a line for each row: ``(1,'a',x'00',NULL),``, the last
with ``;``. Numbers stand bare, binary columns as ``x'…'``. With backslashes no line ends within a value.
"""

import re
from collections.abc import Iterator

import pyarrow as pa

from ticdc_replay.dumps.letters import NUMBER
from ticdc_replay.dumps.records import Buffered, Layout, Rows, split_fast, transposed

_ESCAPES = {
    b"\\": b"\\",
    b"0": b"\0",
    b"n": b"\n",
    b"r": b"\r",
    b"'": b"'",
    b'"': b'"',
    b"Z": b"\x1a",
}
_HEX = r"x'[0-9a-fA-F]*'"
_FAST = Layout(b",", b"'", b"\n", "NULL", _ESCAPES, literal=_HEX, only_numbers_bare=True)
_NAME = rb"`(?:[^`]|``)*+`"
_INSERT = re.compile(rb"INSERT INTO %s(?: \((?P<columns>%s(?:,%s)*)\))? VALUES\n" % (_NAME, _NAME, _NAME))
_COMMENT = re.compile(rb"(?:/\*[^\n]*\*/;|SET [^\n]*;)?\n")
_SEGMENT = re.compile(rb"(?:\([^\n]*\n)+")
_BARE = rb"NULL|(?>%s|%s)" % (_HEX.encode(), NUMBER.encode())
_OTHER_OPTIONS = "Was the dump taken with another --escape-backslash?"


def sql_rows(parts: Iterator[bytes], uri: str, *, escape_backslash: bool) -> Iterator[Rows]:
    """The rows of an SQL file with the content *parts*, in bounded memory. Values of binary columns are ``x'…'``.

    Raises WrongRowError, which names *uri* and line.
    """
    return _Reader(Buffered(parts, uri), escape_backslash=escape_backslash).rows()


class _Reader:
    """Reads one file."""

    def __init__(self, source: Buffered, *, escape_backslash: bool) -> None:
        self._source = source
        self._escapes = escape_backslash
        quoted = rb"'(?:[^'\\]|\\.)*+'" if escape_backslash else rb"'(?:[^']|'')*+'"
        value = rb"(?:%s|%s)" % (quoted, _BARE)
        self._value = re.compile(value, re.DOTALL)
        self._tuple = re.compile(rb"\((?P<values>%s(?:,%s)*+)\)(?P<end>[,;])\n" % (value, value), re.DOTALL)
        self._names: tuple[str, ...] | None = None
        self._width = 0
        self._read = 0
        self._in_statement = False

    def rows(self) -> Iterator[Rows]:
        """All rows, by blocks."""
        has_more = True
        while has_more:
            has_more = self._source.more()
            yield from self._fast_rows() if self._escapes else self._exact_rows(len(self._source.left))
        if self._source.left.strip() or self._in_statement:
            raise self._source.wrong(
                f"the file ends within a statement, or has what Dumpling does not write. "
                f"Was the dump cut off? {_OTHER_OPTIONS}"
            )

    def _fast_rows(self) -> Iterator[Rows]:
        """The rows in all lines that are left."""
        source = self._source
        while end := source.left.rfind(b"\n") + 1:
            if not source.left.startswith(b"("):
                if not self._other_line():
                    return
                continue
            segment = _SEGMENT.match(source.left, 0, end)
            assert segment is not None, "a line that begins with a parenthesis"
            lines = segment[0]
            columns = self._split(lines) if self._in_statement else None
            if columns is None:
                yield from self._exact_rows(len(lines))
                continue
            line = source.line
            source.take(len(lines))
            self._in_statement = not lines.endswith(b";\n")
            yield self._found(columns, line)

    def _split(self, lines: bytes) -> tuple[pa.Array, ...] | None:
        if not lines.endswith((b"),\n", b");\n")):
            return None
        if not self._width:
            first = self._tuple.match(lines)
            if first is None:
                return None
            self._width = len(self._value.findall(first["values"]))
        block = lines[1:-3].replace(b"),\n(", b"\n") + b"\n"
        if block.count(b"\n") != lines.count(b"\n"):
            return None
        return split_fast(block, _FAST, self._width)

    def _exact_rows(self, until: int) -> Iterator[Rows]:
        """The rows in the first *until* bytes of what is left, as far as they are whole."""
        source = self._source
        stop = len(source.left) - until
        while len(source.left) > stop:
            line, rows = source.line, self._tuples(len(source.left) - stop)
            if rows:
                yield self._found(transposed(rows), line)
            elif self._in_statement and self._escapes:
                raise source.wrong(f"this is no row of an INSERT. {_OTHER_OPTIONS}")
            elif self._in_statement or not self._other_line():
                return

    def _tuples(self, until: int) -> list[list[bytes | None]]:
        """Take the rows of a statement in the first *until* bytes of what is left, as far as they are whole."""
        source, rows, at = self._source, list[list[bytes | None]](), 0
        left = source.left
        while self._in_statement and at < until and (match := self._tuple.match(left, at)) is not None:
            try:
                rows.append(self._values(match["values"]))
            except ValueError as error:
                source.take(at)
                raise source.wrong(f"{error}. {_OTHER_OPTIONS}") from None
            self._in_statement = match["end"] == b","
            at = match.end()
        source.take(at)
        return rows

    def _values(self, texts: bytes) -> list[bytes | None]:
        values = self._value.findall(texts)
        self._width = self._width or len(values)
        if len(values) != self._width:
            raise ValueError(f"{len(values)} values, where {self._width} should be")
        return [self._plain(value) for value in values]

    def _other_line(self) -> bool:
        """Take a line that is no row; False where it is not whole yet."""
        source = self._source
        insert = _INSERT.match(source.left)
        if insert is not None and not self._in_statement:
            columns = insert["columns"]
            names = None if columns is None else tuple(_unquoted(name) for name in re.findall(_NAME, columns))
            if self._read and names != self._names:
                raise source.wrong("an INSERT of other columns than those before it")
            self._names, self._in_statement = names, True
            source.take(insert.end())
            return True
        comment = _COMMENT.match(source.left)
        if comment is not None and not self._in_statement:
            source.take(comment.end())
            return True
        if b"\n" in source.left:
            raise source.wrong(f"Dumpling writes no such line there. {_OTHER_OPTIONS}")
        return False

    def _found(self, columns: tuple[pa.Array, ...], line: int) -> Rows:
        found = Rows(self._names, self._read, line, columns)
        self._read += found.size
        return found

    def _plain(self, value: bytes) -> bytes | None:
        if value == b"NULL":
            return None
        if not value.startswith(b"'"):
            return value
        text = value[1:-1]
        if not self._escapes:
            return text.replace(b"''", b"'")
        return text if b"\\" not in text else re.sub(rb"\\(.)", _unescaped, text, flags=re.DOTALL)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if escape[1] not in _ESCAPES:
        raise ValueError("a value has a backslash before a character that Dumpling does not escape")
    return _ESCAPES[escape[1]]


def _unquoted(name: bytes) -> str:
    return name[1:-1].replace(b"``", b"`").decode("utf-8", "replace")
