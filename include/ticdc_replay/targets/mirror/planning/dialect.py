"""The names and types of one kind of database: all that is known without a connection."""

from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_replay.domain.column_types import ColumnType

Check = Callable[[pa.Array], pa.Array]
"""Cells → per cell whether the target can't hold it; null where the cell is null."""


class TypeOf(Protocol):
    """The type of a column in a mirror; *in_key* where it identifies rows."""

    def __call__(self, column_type: ColumnType, *, in_key: bool = False) -> str: ...


def takes_no_exact(type_name: str, text: bytes) -> bool:
    """For a database that holds no value for which there is no typed cell."""
    return False


def unchanged(type_name: str) -> str:
    """*type_name*."""
    return type_name


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a mirror asks of a kind of database. Workers get it pickled, so its functions are module-level. Types are
    spelled as in the database's catalogue; a 64-bit integer, as versions are, is ``bigint``."""

    database: str
    """What people call the kind of database."""
    max_columns: int
    """Of a mirror table, without those that it and its staging add."""
    max_index_bytes: int
    """Of an index entry for a secondary unique key; without an index where longer values are possible."""
    max_key_bytes: int
    """Of an entry of the primary key, as ``entry_bytes`` counts."""
    fit: Callable[[str], str]
    """A name as the database can have it: the same for every load, and no two long names become one."""
    fit_column: Callable[[str], str]
    """The same for the name of a column."""
    type_of: TypeOf
    """The type of a column in a mirror. It holds every value that passes ``checks_of``."""
    holds: Callable[[str, str], bool]
    """Whether a column of the first type holds every value of the second unaltered, and reads as the upstream does."""
    narrows: bool
    """Whether a column can get a narrower type back, if no row needs the wider one."""
    type_words: Callable[[str], str]
    """The type in a column definition."""
    literal: Callable[[str, ColumnType, pa.Array, str], str]
    """The SQL literal of a default that passed ``checks_of``, from its neutral text (``schemas.changes.ColumnAdded``),
    its type, an array with it as a typed cell, and the mirror column's type."""
    checks_of: Callable[[str, pa.DataType], list[tuple[Check, str]]]
    """Checks of changelog cells of an Arrow type before they are staged as a type, each with its reason."""
    entry_bytes: Callable[[str, pa.Array], npt.NDArray[np.int64]]
    """How many of ``max_key_bytes`` each cell of a type takes in an index at most."""
    staged_arrow_type: Callable[[str], pa.DataType]
    """The Arrow type in which cells of a type are staged."""
    staged_cells: Callable[[pa.Array, str], pa.Array]
    """Cells of the changelog, which passed ``checks_of``, as the ``staged_arrow_type`` of a type."""
    takes_exact: Callable[[str, bytes], bool] = takes_no_exact
    """Whether a column of a type, whose ``staged_arrow_type`` is text, takes a wire text that no typed cell stands for."""
    stage_type: Callable[[str], str] = unchanged
    """The type that a column of a type has in a staging table."""
    boolean: str = "boolean"
    """The type of a column that is true or false."""

    def wider(self, first: str, second: str) -> str | None:
        """The one of the two types that holds the other's values, or None."""
        if self.holds(first, second):
            return first
        return second if self.holds(second, first) else None
