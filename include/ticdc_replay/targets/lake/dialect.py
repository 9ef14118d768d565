"""Names and literals of Spark SQL; with ``types`` all that a mirror asks of a lake without a connection."""

import hashlib
from collections.abc import Iterable

import pyarrow as pa

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets.lake.types import (
    checks_of,
    entry_bytes,
    holds,
    spark_type,
    staged_arrow_type,
    staged_cells,
)
from ticdc_replay.targets.mirror.planning.dialect import Dialect

_LONGEST = 120
"""Bytes of a name of a table or schema: the shortest limit of a catalog (Hive's) is 128."""
_NO_PART_OF_A_PATH = frozenset("/\\\0") | frozenset(map(chr, range(32))) | {chr(127)}


def fit(name: str) -> str:
    """*name*, the same for every load. Tables and schemas are folders in most catalogs: where a name can't be one, the
    characters are replaced by ``_``, and a hash is added."""
    safe = "".join("_" if char in _NO_PART_OF_A_PATH else char for char in name)
    if name.startswith("."):
        safe = "_" + safe[1:]
    if safe == name and len(name.encode()) <= _LONGEST:
        return name
    suffix = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return safe.encode()[: _LONGEST - len(suffix)].decode(errors="ignore") + suffix


def fit_column(name: str) -> str:
    """*name*: a lake's columns may have any."""
    return name


def type_words(type_name: str) -> str:
    """The type in a column definition."""
    return type_name


def literal(text: str, column_type: ColumnType, cells: pa.Array, type_name: str) -> str:
    """The literal of a default; see ``Dialect.literal``."""
    if type_name == "binary":
        return f"X'{cells[0].as_py().hex()}'"
    if type_name == "string":
        return string(text if cells.type != pa.string() else cells[0].as_py())
    value = text if pa.types.is_temporal(cells.type) else str(cells[0].as_py())
    return f"CAST({string(value)} AS {type_name})"


def quoted(*names: str) -> str:
    """*names* as one SQL name."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def listed(names: Iterable[str]) -> str:
    """*names* as an SQL list."""
    return ", ".join(map(quoted, names))


def string(text: str) -> str:
    """*text* as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def lake_dialect(database: str) -> Dialect:
    """The dialect of lake tables in *database*, as people call it."""
    return Dialect(
        database=database,
        max_columns=4_096,  # what TiDB has
        max_index_bytes=0,
        max_key_bytes=1,
        fit=fit,
        fit_column=fit_column,
        type_of=spark_type,
        holds=holds,
        narrows=False,
        type_words=type_words,
        literal=literal,
        checks_of=checks_of,
        entry_bytes=entry_bytes,
        staged_arrow_type=staged_arrow_type,
        staged_cells=staged_cells,
    )
