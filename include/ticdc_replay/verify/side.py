"""The contract of one table in one engine, whose rows are compared with those of another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.verify.forms import Form

Key = tuple[str, ...]
"""The canonical texts of a row's key columns, in the order in which ranges compare them (``forms.canonical_key``)."""


class ComparedColumn(msgspec.Struct, frozen=True):
    """A column that both sides have."""

    name: str
    """At the source."""
    mirror: str
    """In the mirror."""
    type: ColumnType
    """At the source."""
    nullable: bool
    form: Form


class Range(NamedTuple):
    """Keys from ``lower`` (inclusive) to ``upper`` (exclusive); None for no bound. Texts and bytes compare by their bytes
    (UTF-8), other columns by their values: the same keys in every engine."""

    lower: Key | None = None
    upper: Key | None = None


class Digest(NamedTuple):
    """How many rows a range has, and the exclusive or of 64 bits of the MD5 of each row's text. Their order does not matter.

    Keys are unique at the source, so none of its rows cancels another. If a mirror has as many rows, and each of the source's
    an odd number of times, it has each once. So two different sets of equally many rows have one digest with a probability of
    2^-64."""

    rows: int
    bits: int


class FoundRow(NamedTuple):
    """One row: its key, the MD5 of its text in hex, and its version (TSO; 0 at a source, which shows none)."""

    key: Key
    md5: str
    version: int


class Side(ABC):
    """Statements about one table, one at a time. Raises errors of the library: TransientError if the engine is away, also
    after further tries."""

    steps_by_index: bool
    """Whether ``step`` reads an index, and does not sort the range."""

    @abstractmethod
    def digest(self, part: Range) -> Digest:
        """The digest of *part*, computed by the engine."""

    @abstractmethod
    def step(self, part: Range, rows: int) -> Key | None:
        """The key of the row that has *rows* rows of *part* before it; None if *part* has no more than *rows*."""

    @abstractmethod
    def rows(self, part: Range) -> list[FoundRow]:
        """The rows of *part*."""

    @abstractmethod
    def cells(self, key: Key) -> list[str | None] | None:
        """The canonical text of each compared column of the row with *key*, of a long one its MD5; None without such a row."""

    @abstractmethod
    def value(self, key: Key, column: int) -> str | None:
        """The text of one cell, in which floats have all their digits; None for NULL, and without such a row."""


class ScannedSide(ABC):
    """The table of a mirror without an index: a statement reads all of it, so each is about many ranges or rows.

    It enforces no key: several rows may have one, and columns of the key may be NULL, which comes before all values. Ranges do
    not overlap, and are in the order of their keys. Raises errors of the library: TransientError if the engine is away.
    """

    @abstractmethod
    def digests(self, parts: Sequence[Range]) -> list[Digest]:
        """The digest of each of *parts*, computed by the engine in one statement."""

    @abstractmethod
    def cuts(self, parts: Sequence[Range], ratios: Sequence[int]) -> list[list[Key]]:
        """For each of *parts* the keys of about one of so many of its rows (*ratios*), sorted: the same rows each time. None
        is of a row with a NULL in its key."""

    @abstractmethod
    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
        """The rows of each of *parts*."""

    @abstractmethod
    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]:
        """Of each of *keys* that a row has, the canonical text of each compared column, of every text its MD5."""

    @abstractmethod
    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]:
        """Of each of *keys* that a row has, the text of one cell."""

    @abstractmethod
    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        """The version (TSO) of the delete of each of *keys* that the mirror remembers as deleted."""


class MirrorSide(Side):
    """The table of a mirror, which knows the versions of its rows, also of deleted ones."""

    @abstractmethod
    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        """The version (TSO) of the delete of each of *keys* that the mirror remembers as deleted."""
