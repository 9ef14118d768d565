"""Rows of CSV files as Dumpling writes them.

Source: dumpling/export/sql_type.go (``escapeBackslashCSV``, ``escapeCSV``, ``SQLTypeString.WriteToBufferInCsv``) and
pkg/dumpformat/csvfile/csv.go: numbers and NULL stand bare, all else is enclosed by the delimiter. With backslashes, NUL is
``\\0``, CR ``\\r``, LF ``\\n``; the backslash is escaped, and the first byte of the delimiter, or of the separator where there
is no delimiter. So no line ends within a value.
"""

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ticdc_replay.domain.withheld import withheld
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.letters import NUMBER
from ticdc_replay.dumps.records import Buffered, Layout, Rows, split_fast, transposed

_ESCAPES = {b"\\": b"\\", b"0": b"\0", b"r": b"\r", b"n": b"\n"}
_NUMBER = re.compile(NUMBER.encode())
_NO_ESCAPE = "a value has a backslash before a character that Dumpling does not escape"
_OTHER_OPTIONS = "Was the dump taken with other --csv-… options or --escape-backslash?"


def csv_rows(parts: Iterator[bytes], uri: str, dialect: Dialect) -> Iterator[Rows]:
    """The rows of a CSV file with the content *parts*, in bounded memory. Raises WrongRowError, which names *uri* and line."""
    return _Reader(Buffered(parts, uri), dialect).rows()


class _Reader:
    """Reads one file."""

    def __init__(self, source: Buffered, dialect: Dialect) -> None:
        self._source = source
        self._dialect = dialect
        self._separator = dialect.separator.encode()
        self._delimiter = dialect.delimiter.encode()
        self._end = dialect.line_terminator.encode()
        self._null = dialect.null_value.encode()
        special = (self._delimiter or self._separator)[:1]
        self._escapes = {**_ESCAPES, special: special} if dialect.escape_backslash else {}
        self._value = self._value_pattern()
        self._width = 0

    def rows(self) -> Iterator[Rows]:
        """All rows, by blocks."""
        source, names, read = self._source, None, 0
        if self._dialect.header:
            names = self._header()
            if names is None:
                return
            self._width = len(names)
            # To be checked also if no row follows: without a header, they are the file's only row.
            yield Rows(names, 0, source.line, tuple(pa.array([], pa.binary()) for _ in names))
        has_more = True
        while has_more:
            has_more = source.more()
            end = self._whole_rows()
            if end:
                line = source.line
                columns = self._columns(source.take(end), line)
                yield Rows(names, read, line, columns)
                read += len(columns[0])
        if source.left:
            raise source.wrong(
                f"the file ends within a row, or its rows do not end with {self._dialect.line_terminator!r}. Was the dump cut "
                "off, or taken with another --csv-line-terminator, --csv-delimiter or --escape-backslash?"
            )

    def _header(self) -> tuple[str, ...] | None:
        """The names in the first line; None for a file without any line."""
        source = self._source
        while (end := source.left.find(self._end)) < 0:
            if not source.more():
                if source.left:
                    raise source.wrong(f"the first line, which names the columns, does not end. {_OTHER_OPTIONS}")
                return None
        (values,) = self._exact(source.take(end + len(self._end)), 1)
        return tuple((value or b"").decode("utf-8", "replace") for value in values)

    def _whole_rows(self) -> int:
        """How many bytes of what is left are whole rows."""
        content = self._source.left
        if self._escapes:
            at = content.rfind(self._end)
            return at + len(self._end) if at >= 0 else 0
        letters = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(letters == ord("\n"))
        if len(self._end) > 1:
            ends = ends[ends > 0]
            ends = ends[letters[ends - 1] == ord("\r")]
        delimiters = np.flatnonzero(letters == self._delimiter[0])
        ends = ends[np.searchsorted(delimiters, ends) % 2 == 0]  # outside of values
        return int(ends[-1]) + 1 if len(ends) else 0

    def _columns(self, block: bytes, line: int) -> tuple[pa.Array, ...]:
        if not self._width:
            self._width = len(self._row(block, 0, line)[0])
        columns = None
        if len(self._separator) == 1 and len(self._delimiter) <= 1:
            layout = Layout(
                *(self._separator, self._delimiter, self._end, self._dialect.null_value, self._escapes),
                only_numbers_bare=bool(self._delimiter),
            )
            columns = split_fast(block, layout, self._width)
        return transposed(self._exact(block, line)) if columns is None else columns

    def _exact(self, block: bytes, line: int) -> list[list[bytes | None]]:
        """The rows of *block*, which begins at *line*."""
        rows: list[list[bytes | None]] = []
        at = 0
        while at < len(block):
            values, end = self._row(block, at, line)
            if len(values) != (self._width or len(values)):
                raise self._source.wrong(f"{len(values)} values, where {self._width} should be. {_OTHER_OPTIONS}", line)
            rows.append(values)
            line += block.count(b"\n", at, end)
            at = end
        return rows

    def _row(self, block: bytes, at: int, line: int) -> tuple[list[bytes | None], int]:
        """The values of the row at *at*, and where the next one begins."""
        values: list[bytes | None] = []
        while True:
            match = self._value.match(block, at)
            assert match is not None, "a value may be empty"
            values.append(self._read_value(match, line))
            at = match.end()
            if block.startswith(self._separator, at):
                at += len(self._separator)
            elif block.startswith(self._end, at):
                return values, at + len(self._end)
            else:
                raise self._source.wrong(
                    f"after value {len(values)} stands neither {self._dialect.separator!r} nor the end of "
                    f"the line. {_OTHER_OPTIONS}",
                    line,
                )

    def _value_pattern(self) -> re.Pattern[bytes]:
        """A value: group 1 is one within delimiters, group 2 a bare one."""
        separator, end, delimiter = map(re.escape, (self._separator, self._end, self._delimiter))
        if not delimiter:
            return re.compile(rb"(?!)()|((?:\\.|(?!%s)[^\\\r\n])*+)" % separator, re.DOTALL)
        inside = (
            rb"(?:\\.|(?!%s)[^\\\r\n])*+" % delimiter
            if self._escapes
            else rb"(?:[^%s]|%s)*+" % (delimiter, delimiter * 2)
        )
        bare = rb"(?:(?!%s|%s|%s).)*+" % (separator, end, delimiter)
        return re.compile(rb"%s(%s)%s|(%s)" % (delimiter, inside, delimiter, bare), re.DOTALL)

    def _read_value(self, match: re.Match[bytes], line: int) -> bytes | None:
        enclosed: bytes | None = match[1]
        text = match[2] if enclosed is None else enclosed
        if enclosed is None and text == self._null:
            return None
        if enclosed is None and self._delimiter and self._width and not _NUMBER.fullmatch(text):
            raise self._source.wrong(
                f"{withheld(bytes(text))} stands without delimiters, as numbers and NULL do, and is neither. Was the dump taken "
                "with another --csv-null-value or --csv-delimiter?",
                line,
            )
        if not self._escapes:
            return bytes(text.replace(self._delimiter * 2, self._delimiter))
        return (
            text
            if b"\\" not in text
            else re.sub(rb"\\(.)", lambda found: self._plain(found, line), text, flags=re.DOTALL)
        )

    def _plain(self, escape: re.Match[bytes], line: int) -> bytes:
        if escape[1] not in self._escapes:
            raise self._source.wrong(f"{_NO_ESCAPE}. {_OTHER_OPTIONS}", line)
        return self._escapes[escape[1]]
