"""The contract of one table of a history, for an attempt that holds it: nobody else writes to it meanwhile.

The slice of a window are the rows whose commitTs is in it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.schemas.changes import TableChanges, kind_of
from ticdc_replay.targets.base import TableReport
from ticdc_replay.targets.ddl import words_of
from ticdc_replay.targets.mirror.planning.tables import Relation

Rows = TypeVar("Rows")
"""What the rows of one changelog for one table are until they are in it."""


class DdlRow(NamedTuple):
    """A DDL as a row: ``_op``, commitTs (TSO), and what it did. ``empty``: no older row is left after it."""

    op: str
    commit_ts: int
    text: str


def ddl_rows(changes: Sequence[TableChanges]) -> list[DdlRow]:
    """The DDL in *changes* as rows."""
    return [
        DdlRow(
            "empty" if entry.ends_rows else "ddl",
            entry.commit_ts,
            "; ".join(f"{kind_of(change)}: {words_of(change)}" for change in entry.changes),
        )
        for entry in changes
    ]


class HistoryTable(ABC, Generic[Rows]):
    """One table."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the table exists. Raises TargetMismatchError if it is no history."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, str]:
        """Its columns, with their types, in its order."""

    @abstractmethod
    def make(self, schemas: Sequence[TableSchema], key: Sequence[str]) -> None:
        """Make the table for rows of *schemas*, identified by *key*, if there is one."""

    @abstractmethod
    def fit(self, schemas: Sequence[TableSchema]) -> list[str]:
        """Bring the table to what ``columns.steps_to`` plans; what was done."""

    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """The columns, as the upstream calls them, that identify its rows, as ``make`` or ``note_key`` has noted them."""

    @abstractmethod
    def note_key(self, key: Sequence[str]) -> None:
        """Note the *key* of rows, of which none was known before."""

    @abstractmethod
    def note_emptied(self, ddl: Sequence[DdlRow]) -> None:
        """Add those of *ddl*, which emptied the table outside of the load's window, that the table has not."""

    @abstractmethod
    def rows_of(self, run: str) -> Rows:
        """The rows that the re-drive *run*, which the slice has, has added."""

    @abstractmethod
    def replace(self, parts: Sequence[Rows], ddl: Sequence[DdlRow], *, empty: bool) -> str:
        """Make the rows of *parts*, of which later ones replace equal versions of earlier ones, and *ddl* the slice of the
        load's window. *empty*: no load can have brought, or can still bring, a row of it. The snapshot or version with it,
        or "".
        """

    @abstractmethod
    def add(self, rows: Rows, ddl: Sequence[DdlRow]) -> str:
        """Add *rows* and *ddl* to the slice, in place of equal versions; see ``replace``."""

    @abstractmethod
    def drop_view(self, view: Relation) -> None:
        """Drop *view* where it exists: rows of an earlier table of the name may have had another key (``scd2``)."""

    @abstractmethod
    def fit_view(self, view: Relation, key: Sequence[str]) -> None:
        """Make *view*, the intervals of rows identified by *key*, where it is not there or lacks a column (``scd2``)."""

    @abstractmethod
    def end(self, report: TableReport) -> None:
        """Keep the *report* of the load in the ledger: its slice is in the table."""
