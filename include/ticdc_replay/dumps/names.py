"""What a file of a dump is, by its name: Dumpling's default template.

Source: dumpling/export/prepare.go (``defaultOutputFileTemplateBase``, ``filenameEscapeRegexp``), writer.go
(``outputFileNamer``), and the suffixes of pkg/objstore/compressedio.
"""

import re
from typing import Literal
from urllib.parse import unquote

import msgspec

from ticdc_replay.domain.tables import TableName

Compression = Literal["", "gzip", "zstd", "snappy"]
Format = Literal["csv", "sql", "parquet"]
Kind = Literal["metadata", "definition", "view", "data", "other"]
"""``other``: databases, sequences, triggers, placement policies, and what Dumpling never writes."""

METADATA = "metadata"
_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".snappy": "snappy"}
_DEFINITION, _VIEW = "-schema.sql", "-schema-view.sql"
_OTHERS = (
    "-schema-create.sql",
    "-schema-sequence.sql",
    "-schema-triggers.sql",
    "-schema-post.sql",
    "-placement-policy-create.sql",
)
_DATA = re.compile(r"(?P<database>[^.]+)\.(?P<table>[^.]+)(?:\.(?P<chunk>\d+))?\.(?P<format>csv|sql|parquet)")
_FORMATS: dict[str, Format] = {"csv": "csv", "sql": "sql", "parquet": "parquet"}
_TABLE = re.compile(r"(?P<database>[^.]+)\.(?P<table>[^.]+)")


class DumpName(msgspec.Struct, frozen=True):
    """A file name that was read. ``table`` is None unless the kind is a table's."""

    kind: Kind
    table: TableName | None = None
    format: Format | None = None
    """Of files of rows."""
    compression: Compression = ""


def file_prefix(definition: str) -> str:
    """How the names of all files of a table begin, by that of its *definition*."""
    return definition.partition(_DEFINITION)[0] + "."


def is_other(name: str) -> bool:
    """Whether Dumpling writes the file *name*, and it has neither rows nor the definition of a table."""
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix).endswith(_OTHERS)


def is_of_rows(name: str) -> bool:
    """Whether the file *name*, without folders, ends as those with rows do."""
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    return not is_other(name) and name.removesuffix(suffix).endswith(tuple(f".{format}" for format in _FORMATS))


def read_name(name: str) -> DumpName:
    """What the file *name*, without folders, is."""
    if name == METADATA:
        return DumpName("metadata")
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    compression = _SUFFIXES.get(suffix, "")
    plain = name.removesuffix(suffix)
    if plain.endswith(_OTHERS):
        return DumpName("other")
    for ending, kind in ((_DEFINITION, "definition"), (_VIEW, "view")):
        match = _TABLE.fullmatch(plain.removesuffix(ending)) if plain.endswith(ending) else None
        if match is not None:
            return DumpName("definition" if kind == "definition" else "view", _table(match), None, compression)
    match = _DATA.fullmatch(plain)
    if match is None:
        return DumpName("other")
    return DumpName("data", _table(match), _FORMATS[match["format"]], compression)


def _table(match: re.Match[str]) -> TableName:
    """Dumpling escapes characters as a percent sign and two hex digits, and so the hyphen of ``-schema``."""
    return TableName(unquote(match["database"]), unquote(match["table"]))
