"""What the readers of CSV and SQL files share: whole rows out of a stream of blocks, and Arrow's parser made exact.

Each format has two readers that give the same. The fast one lets Arrow split whole blocks, and gives up on what it would not
read exactly. The exact one takes row by row with regular expressions, and says where a row is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.dumps.letters import Letters, Numbers, all_match, are_numbers, content, count

MOST_ROW_BYTES = 512 * 1024 * 1024
"""Of one row with what was read around it. TiDB's largest row, txn-entry-size-limit, has 120 MiB."""


class Rows(NamedTuple):
    """Rows that follow each other in a file: for each column the texts (binary; NULL for NULL)."""

    names: tuple[str, ...] | None
    """The columns' names; None where the file does not say them: they are those of the table."""
    first: int
    """Number of the first of the rows in the file, from 0."""
    line: int
    """The line in which they begin, from 1."""
    columns: tuple[pa.Array, ...]

    @property
    def size(self) -> int:
        """How many."""
        return len(self.columns[0])


class WrongRowError(ConfigError):
    """A row that can't be read; the message names the file and the line."""


class Buffered:
    """The blocks of a file, from which readers take whole rows; ``line`` is the one that ``left`` begins in."""

    def __init__(self, parts: Iterator[bytes], uri: str) -> None:
        self._parts = parts
        self.uri = uri
        self.left = b""
        self.line = 1

    def more(self) -> bool:
        """Append the next block to ``left``; False at the end of the file."""
        if len(self.left) > MOST_ROW_BYTES:
            raise self.wrong(f"no row ends within {MOST_ROW_BYTES} bytes. Was the dump taken with other options?")
        part = next(self._parts, None)
        if part is not None:
            self.left += part
        return part is not None

    def take(self, size: int) -> bytes:
        """The first *size* bytes of ``left``, which leave it."""
        taken, self.left = self.left[:size], self.left[size:]
        self.line += taken.count(b"\n")
        return taken

    def wrong(self, why: str, line: int | None = None) -> WrongRowError:
        """The error of a row in *line*, by default the one that ``left`` begins in."""
        return WrongRowError(f"{self.uri}, line {self.line if line is None else line}: {why}")


class Layout(msgspec.Struct, frozen=True):
    """How values stand in a block: one byte ``separator`` between them, one byte ``quote`` around some, or none, and ``end``
    behind the last one of a row."""

    separator: bytes
    quote: bytes
    end: bytes
    null: str
    escapes: Mapping[bytes, bytes]
    """By the byte after a backslash, what the two stand for; empty where quotes are doubled instead."""
    literal: str = ""
    """What values with quotes match that keep them, as ``x'00'``: a regular expression."""
    only_numbers_bare: bool = False
    """Whether each value without quotes is a number or ``null``."""


def split_fast(block: bytes, layout: Layout, width: int) -> tuple[pa.Array, ...] | None:
    """The values of the rows of *block*, one row a line, *width* values each; None where Arrow would not read them exactly.

    What is escaped is hidden while Arrow parses, as bytes that the block lacks.
    """
    if block.startswith(b"\xef\xbb\xbf"):  # Arrow would take it for a mark
        return None
    restored: list[tuple[bytes, bytes]] = []
    if layout.escapes:
        if not _ends_lines(block):  # Arrow would take a carriage return for the end of a line
            return None
        hidden = _hidden(block, layout)
        if hidden is None:
            return None
        block, restored = hidden
    names = [str(number) for number in range(width)]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
            csv.ParseOptions(
                delimiter=layout.separator.decode(),
                quote_char=layout.quote.decode() or False,
                double_quote=not layout.escapes,
                escape_char=False,
                newlines_in_values=not layout.escapes,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[layout.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    columns = [pa.concat_arrays(table[name].chunks) for name in names]
    nulls = sum(column.null_count for column in columns) if "\\" in layout.null else 0
    if layout.escapes and block.count(b"\\") != nulls:
        return None  # something else is escaped
    if not _is_read_exactly(block, layout, columns):
        return None
    return tuple(_restored(column, restored) for column in columns)


def transposed(rows: Sequence[Sequence[bytes | None]]) -> tuple[pa.Array, ...]:
    """*rows*, at least one, as columns."""
    return tuple(pa.array(column, pa.binary()) for column in zip(*rows, strict=True))


def _hidden(block: bytes, layout: Layout) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
    """*block* with a byte that it lacks in place of each escape, and what each such byte stands for. None where too few bytes
    are free: not in text, as UTF-8 has some in no character."""
    if b"\\" not in block:
        return block, []
    free = (letter for letter in map(bytes, zip(range(255, 127, -1))) if letter not in block)
    restored: list[tuple[bytes, bytes]] = []
    # Pairs of backslashes first, from the left: what is left of a run of them escapes the next byte.
    for letter, plain in sorted(layout.escapes.items(), key=lambda escape: escape[0] != b"\\"):
        escape = b"\\" + letter
        if escape in block:
            stand_in = next(free, None)
            if stand_in is None:
                return None
            block = block.replace(escape, stand_in)
            restored.append((stand_in, plain))
    return block, restored


def _restored(column: pa.Array, stand_ins: Sequence[tuple[bytes, bytes]]) -> pa.Array:
    for stand_in, text in stand_ins:
        if count(column, stand_in):
            column = pc.replace_substring(column, pattern=stand_in, replacement=text)
    return column


def _is_read_exactly(block: bytes, layout: Layout, columns: Sequence[pa.Array]) -> bool:
    """Whether *block* has the values of *columns* as *layout* writes them, by the places of all separators and quotes: Arrow
    takes quotes as they come, as where they are doubled in a file that should have backslashes.

    A value within quotes takes two bytes more than itself, and one for each quote in it that is doubled; Arrow drops no others.
    """
    letters = np.frombuffer(block, np.uint8)
    ends = _line_ends(letters, layout)
    if not len(ends) or len(ends) != len(columns[0]) or ends[-1] != len(letters) - 1:
        return False
    at = np.concatenate(([0], ends[:-1] + 1))
    stops = ends + 1 - len(layout.end)
    if not (letters[stops] == layout.end[0]).all():
        return False
    for column in columns:
        bounds = content(column)[1]
        present = pc.is_valid(column).to_numpy(zero_copy_only=False)
        size = np.where(present, np.diff(bounds), len(layout.null.encode()))
        quoted = letters[at] == layout.quote[0] if layout.quote else np.zeros(len(at), np.bool_)
        bare = present & ~quoted
        if (at + size > stops).any() or (quoted & ~present).any():
            return False
        inside = _quotes_inside(column, layout)
        if layout.literal:
            literals = bare & (inside > 0)
            if literals.any() and not all_match(column.filter(pa.array(literals)), layout.literal):
                return False
            bare &= ~literals
            inside = np.where(literals, 0, inside)
        if layout.escapes and inside.any():
            return False
        last = at + size + inside + 2 * quoted
        if (last > stops).any() or (letters[last - 1] != letters[at])[quoted].any():
            return False
        if layout.only_numbers_bare and bare.any():
            others = column if (bare == present).all() else column.filter(pa.array(bare))
            if not are_numbers(others):
                return False
        if column is columns[-1]:
            return bool((last == stops).all())
        if not (letters[last] == layout.separator[0]).all():
            return False
        at = last + 1
    return False


def _line_ends(letters: Letters, layout: Layout) -> Numbers:
    """Where the newlines are that stand outside of values."""
    ends = np.flatnonzero(letters == ord("\n"))
    if layout.escapes or not layout.quote:
        return ends
    before = np.searchsorted(np.flatnonzero(letters == layout.quote[0]), ends)
    outside: Numbers = ends[before % 2 == 0]
    return outside


def _quotes_inside(column: pa.Array, layout: Layout) -> Numbers:
    """How many quotes each value has in itself."""
    if not layout.quote or not count(column, layout.quote):
        return np.zeros(len(column), np.int64)
    found: Numbers = pc.fill_null(pc.count_substring(column, layout.quote), 0).to_numpy().astype(np.int64)
    return found


def _ends_lines(block: bytes) -> bool:
    """Whether each carriage return of *block* stands before a newline. A third of the time that counting both takes."""
    letters = np.frombuffer(block, np.uint8)
    returns = np.flatnonzero(letters == ord("\r"))
    if not len(returns):
        return True
    return bool(returns[-1] + 1 < len(letters) and (letters[returns + 1] == ord("\n")).all())
