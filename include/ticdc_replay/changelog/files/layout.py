"""Where the files of a changelog lie, relative to its root ``runs/<run_hash>``."""

from string import ascii_letters, digits

from ticdc_replay.domain.limits import NAME_TOO_LONG, Refusal, refused_schema
from ticdc_replay.domain.tables import TableName, TableSchema

INDEX = "index.json"


def changelog_root(run_hash: str) -> str:
    """The folder of the changelog of *run_hash*, below the pipeline's artefacts."""
    return f"runs/{run_hash}"


def used_folder(input_hash: str) -> str:
    """The folder of the records of claim-check objects that runs of *input_hash* used, below the pipeline's artefacts."""
    return f"used/{input_hash}"


def used_schema(input_hash: str, schema_id: str) -> str:
    """The name of the SHA-256 of a registry schema that runs of *input_hash* used, below the pipeline's artefacts."""
    return f"used_schemas/{input_hash}/{schema_id}"


def sought_versions(input_hash: str) -> str:
    """The name of the table versions that were found after the ranges of *input_hash*, below the pipeline's artefacts."""
    return f"used_schemas/{input_hash}/table_versions.json"


def source_rows_folder(input_hash: str) -> str:
    """The folder of what runs of *input_hash* read again from the source, below the pipeline's artefacts."""
    return f"used_rows/{input_hash}"


def escape(name: str) -> str:
    """*name* as one part of a path, safe for any name; ``urllib.parse.unquote``, Hive, Spark and DuckDB give the name back.

    ASCII characters other than letters, digits, ``_`` and ``-`` are percent-encoded. All others stand as they are: Spark takes
    ``%C3%A9`` for two characters, DuckDB for one.
    """
    return "".join(char if char in _PLAIN or not char.isascii() else f"%{ord(char):02X}" for char in name)


_LONGEST_PART = 255
"""Bytes of one part of a path in most file systems. Every name that MySQL takes, 64 characters, is shorter when escaped."""
_PLAIN = frozenset(f"{ascii_letters}{digits}_-")


def quarantine_file(stem: str) -> str:
    """The name of a file of messages that can't be used."""
    return f"quarantine/{stem}.parquet"


def in_quarantine(name: str) -> bool:
    """Whether *name*, relative to the changelog's root, is that of such a file."""
    return name.startswith("quarantine/")


def refused(schema: TableSchema) -> Refusal | None:
    """Why there can be no files of rows of *schema*: no table is so (``domain.limits``), or none can have a folder.

    The latter are names of characters that UTF-8 has four bytes for, which MySQL does not take.
    """
    return refused_schema(schema) or _without_folder(schema.name)


def _without_folder(table: TableName) -> Refusal | None:
    for name, part in ((table.schema, "schema={}"), (table.table, "table={}")):
        size = len(part.format(escape(name)).encode())
        if size > _LONGEST_PART:
            return (
                NAME_TOO_LONG,
                f"{name!r} takes {size} bytes as a folder, and no folder's name has more than {_LONGEST_PART}",
            )
    return None


def data_folder(table: TableName, version: str) -> str:
    """Folder of the rows of *table* with the schema *version*: Hive's layout, so that any engine finds the columns."""
    return f"data/schema={escape(table.schema)}/table={escape(table.table)}/version={version}"
