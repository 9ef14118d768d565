"""PostgreSQL's names and literals; with ``types`` all that a mirror asks of PostgreSQL without a connection. Names have
at most 63 bytes, where MySQL allows 64 characters."""

import hashlib

import pyarrow as pa
from psycopg import sql

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.types import (
    MAX_ENTRY_BYTES,
    checks_of,
    entry_bytes,
    holds,
    pg_type,
    stage_type,
    staged_arrow_type,
    staged_cells,
)

MAX_BYTES = 63


def fit(name: str) -> str:
    """*name*, or the beginning of a too long one with a hash of the whole, the same for every load. PostgreSQL itself
    would cut it silently, and two long names might become one."""
    return name if len(name.encode()) <= MAX_BYTES else _with_hash(name)


def fit_column(name: str) -> str:
    """*name* as ``fit`` has it; one that PostgreSQL has in every table, such as ``xmin``, gets the hash, too."""
    return _with_hash(name) if name in PostgresTarget.system_columns else fit(name)


def type_words(type_name: str) -> str:
    """The type in a column definition: texts compare by their bytes, as keys of a changefeed do."""
    return 'text COLLATE "C"' if type_name == "text" else type_name


def literal(text: str, column_type: ColumnType, cells: pa.Array, type_name: str) -> str:
    """The literal of a default; see ``Dialect.literal``."""
    declared = pg_type(column_type)
    if declared == "bytea":
        text = "\\x" + text.encode("latin-1").hex()
    elif column_type.base in ("float", "double"):  # PostgreSQL reads no number that is nearer to 0 than its type holds
        text = cells.cast(pa.string())[0].as_py()
    quoted = f"{sql.Literal(text).as_string()}::{declared}"
    # A number of 32 bits is another one if it is read with 64 at once.
    return quoted if declared == type_name else f"{quoted}::{type_name}"


def _with_hash(name: str) -> str:
    encoded = name.encode()
    suffix = "_" + hashlib.sha256(encoded).hexdigest()[:8]
    return encoded[: MAX_BYTES - len(suffix)].decode(errors="ignore") + suffix


DIALECT = Dialect(
    database=PostgresTarget.database,
    max_columns=1598,  # 1,600 less those that a mirror and its staging add
    max_index_bytes=2600,  # larger entries are refused (2,704 bytes with their header); see ``indexes``
    max_key_bytes=MAX_ENTRY_BYTES,
    fit=fit,
    fit_column=fit_column,
    type_of=pg_type,
    holds=holds,
    narrows=True,
    type_words=type_words,
    literal=literal,
    checks_of=checks_of,
    entry_bytes=entry_bytes,
    stage_type=stage_type,
    staged_arrow_type=staged_arrow_type,
    staged_cells=staged_cells,
)
