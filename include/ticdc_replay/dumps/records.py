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

_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
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
    """How values stand in a block: one byte ``separator`` between them, one byte ``quote`` around some, or none."""

    separator: bytes
    quote: bytes
    null: str
    escapes: Mapping[bytes, bytes]
    """By the byte after a backslash, what the two stand for; empty where quotes are doubled instead."""
    prefix: bytes = b""
    """What may stand before the first quote of a value that is not unquoted, as ``x`` of ``x'00'``."""
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
    if layout.quote and not _is_well_quoted(block, layout, sum(_count(column, layout.quote) for column in columns)):
        return None
    if layout.only_numbers_bare and not _are_numbers_bare(block, layout, columns):
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
        if _count(column, stand_in):
            column = pc.replace_substring(column, pattern=stand_in, replacement=text)
    return column


def _is_well_quoted(block: bytes, layout: Layout, inside: int) -> bool:
    """Whether each quote of *block* is the first or last of a value, or one of *inside*, those that are in values. Arrow takes
    others as they come, as where quotes are doubled in a file that should have backslashes."""
    letters = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(letters == layout.quote[0])
    first = quotes[::2]  # outside of values
    before = letters[first - 1]
    before[first == 0] = ord("\n")
    opening = int(np.count_nonzero((before == layout.separator[0]) | (before == ord("\n"))))
    after = letters[np.minimum(quotes[1::2] + 1, len(letters) - 1)]
    closing = (after == layout.separator[0]) | (after == ord("\n")) | (after == ord("\r"))
    if not layout.escapes:
        closing |= after == layout.quote[0]
    if not closing.all():
        return False
    if not layout.escapes:
        return len(quotes) == 2 * (opening + inside)
    prefixed = int(np.count_nonzero(before == layout.prefix[0])) if layout.prefix else 0
    return len(quotes) == 2 * (opening + prefixed) and inside == 2 * prefixed


def _are_numbers_bare(block: bytes, layout: Layout, columns: Sequence[pa.Array]) -> bool:
    """Whether the values of each of *columns*, which *block* has, but for NULL all stand within quotes, or all are numbers."""
    letters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((letters == layout.separator[0]) | (letters == ord("\n")))
    quotes = np.flatnonzero(letters == layout.quote[0])
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]  # outside of values
    if len(ends) != sum(map(len, columns)):  # Arrow has found others
        return False
    starts = np.concatenate(([0], ends[:-1] + 1))
    first = letters[starts]
    is_quoted = first == layout.quote[0]
    if layout.prefix:
        second = letters[np.minimum(starts + 1, len(letters) - 1)]
        is_quoted |= (first == layout.prefix[0]) & (second == layout.quote[0])
    quoted = np.count_nonzero(is_quoted.reshape(-1, len(columns)), axis=0).tolist()
    present = [len(column) - column.null_count for column in columns]  # NULL never stands within quotes
    return all(
        count == size or (not count and pc.all(pc.match_substring_regex(column, _NUMBER)).as_py())
        for column, count, size in zip(columns, quoted, present, strict=True)
    )


def _ends_lines(block: bytes) -> bool:
    """Whether each carriage return of *block* stands before a newline. A third of the time that counting both takes."""
    letters = np.frombuffer(block, np.uint8)
    returns = np.flatnonzero(letters == ord("\r"))
    if not len(returns):
        return True
    return bool(returns[-1] + 1 < len(letters) and (letters[returns + 1] == ord("\n")).all())


def _count(column: pa.Array, letter: bytes) -> int:
    data = column.buffers()[2]
    return 0 if data is None else int(np.count_nonzero(np.frombuffer(data, np.uint8) == letter[0]))
