"""The names and literals of MySQL, TiDB and MariaDB; with ``types`` all that a mirror asks of them without a connection."""

import hashlib

import msgspec
import pyarrow as pa

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mysql.section import MysqlTarget
from ticdc_replay.targets.mysql.types import (
    MAX_BYTES,
    checks_of,
    entry_bytes,
    holds,
    mysql_type,
    stage_type,
    staged_arrow_type,
    staged_cells,
    takes_exact,
)

_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "decimal", "float", "double")
MAX_CHARACTERS = 64
"""Of a name; the upstream's have no more, but names that are made out of them may."""


def fit(name: str) -> str:
    """*name*, or the beginning of a too long one with a hash of the whole, the same for every load."""
    if len(name) <= MAX_CHARACTERS:
        return name
    suffix = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return name[: MAX_CHARACTERS - len(suffix)] + suffix


def fit_folded(name: str) -> str:
    """``fit`` where the server takes table names that differ in letter case as equal."""
    return fit(name).lower()


def type_words(type_name: str) -> str:
    """The type in a column definition."""
    return type_name


def literal(text: str, column_type: ColumnType, cells: pa.Array, type_name: str) -> str:
    """The literal of a default; see ``Dialect.literal``."""
    cell: str | bytes | None = staged_cells(cells, mysql_type(column_type))[0].as_py()
    if cell is None:  # a date that no typed cell stands for
        cell = text
    return literal_of(cell, type_name)


def literal_of(cell: str | bytes, type_name: str) -> str:
    """The SQL literal of a staged *cell* of the type *type_name*."""
    if isinstance(cell, bytes):
        return "x'" + cell.hex() + "'"
    if type_name.startswith(_NUMBERS):
        return cell
    return "'" + cell.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


DIALECT = Dialect(
    database=MysqlTarget.database,
    max_columns=1013,  # 1,017 of InnoDB less those that a mirror and its staging add
    max_index_bytes=MAX_BYTES,
    max_key_bytes=MAX_BYTES,
    fit=fit,
    fit_column=fit,
    type_of=mysql_type,
    holds=holds,
    narrows=True,
    type_words=type_words,
    literal=literal,
    checks_of=checks_of,
    entry_bytes=entry_bytes,
    stage_type=stage_type,
    staged_arrow_type=staged_arrow_type,
    staged_cells=staged_cells,
    takes_exact=takes_exact,
    boolean="tinyint",
)
FOLDING_DIALECT = msgspec.structs.replace(DIALECT, fit=fit_folded)
"""For a server that takes table names that differ in letter case as equal."""
