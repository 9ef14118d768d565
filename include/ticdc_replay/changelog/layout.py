"""Where the files of a changelog lie, relative to its root ``runs/<run_hash>``."""

from string import ascii_letters, digits
from urllib.parse import unquote

from ticdc_replay.domain.tables import TableName

INDEX = "index.json"


def changelog_root(run_hash: str) -> str:
    """The folder of the changelog of *run_hash*, below the pipeline's artefacts."""
    return f"runs/{run_hash}"


def used_folder(input_hash: str) -> str:
    """The folder of the records of claim-check objects that runs of *input_hash* used, below the pipeline's artefacts."""
    return f"used/{input_hash}"


def used_schema(input_hash: str, schema_id: str) -> str:
    """Where the SHA-256 of a registry's schema stands that runs of *input_hash* used, below the pipeline's artefacts."""
    return f"used_schemas/{input_hash}/{schema_id}"


def sought_versions(input_hash: str) -> str:
    """Where the table versions stand that were sought behind the ranges of *input_hash*, below the pipeline's artefacts."""
    return f"used_schemas/{input_hash}/table_versions.json"


def source_rows_folder(input_hash: str) -> str:
    """The folder of what runs of *input_hash* read again from the source, below the pipeline's artefacts."""
    return f"used_rows/{input_hash}"


def escape(name: str) -> str:
    """*name* as one part of a path: any name of a table is safe in it and can be told back, by Hive, Spark and DuckDB, too.

    ASCII characters other than letters, digits, ``_`` and ``-`` are percent-encoded. All others stand as they are: Spark takes
    ``%C3%A9`` for two characters, DuckDB for one.
    """
    return "".join(char if char in _PLAIN or not char.isascii() else f"%{ord(char):02X}" for char in name)


def unescape(part: str) -> str:
    """The name that ``escape`` made *part* from."""
    return unquote(part)


_LONGEST_PART = 255
"""Bytes of one part of a path in most file systems. Every name that MySQL takes, 64 characters, is shorter when escaped."""
_PLAIN = frozenset(f"{ascii_letters}{digits}_-")


def quarantine_file(stem: str) -> str:
    """The name of a file of messages that can't be used."""
    return f"quarantine/{stem}.parquet"


def in_quarantine(name: str) -> bool:
    """Whether *name*, relative to the changelog's root, is that of such a file."""
    return name.startswith("quarantine/")


def has_folder(table: TableName) -> bool:
    """Whether the names of *table* are short enough for ``data_folder``."""
    parts = (f"schema={escape(table.schema)}", f"table={escape(table.table)}")
    return all(len(part.encode()) <= _LONGEST_PART for part in parts)


def data_folder(table: TableName, version: str) -> str:
    """Folder of the rows of *table* with the schema *version*: Hive's layout, so that any engine finds the columns."""
    return f"data/schema={escape(table.schema)}/table={escape(table.table)}/version={version}"
