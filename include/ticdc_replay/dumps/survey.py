"""A dump as a whole: which tables it has, and in which files their rows are."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from ticdc_replay.changefeed.rules import Dispatch, SourceTable
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.dumps.metadata import DumpMetadata, read_metadata
from ticdc_replay.dumps.names import (
    METADATA,
    Compression,
    DumpName,
    Format,
    file_prefix,
    is_of_rows,
    is_other,
    read_name,
)
from ticdc_replay.dumps.streams import read_whole
from ticdc_replay.storage import ObjectStore
from ticdc_replay.storage.base import ObjectInfo

log = logging.getLogger(__name__)


class DumpFile(msgspec.Struct, frozen=True, order=True):
    """A file of rows. ``name`` is relative to the dump's folder; ``size`` in bytes, as stored; ``etag`` as the store gives it."""

    name: str
    size: int
    etag: str
    compression: Compression = ""


class DumpedTable(msgspec.Struct, frozen=True):
    """A table of a dump: its CREATE TABLE, and its rows; none for an empty table."""

    name: TableName
    create_table: str
    format: Format | None
    """None without files."""
    files: tuple[DumpFile, ...]


class Dump(msgspec.Struct, frozen=True):
    """What a folder holds of a dump, as far as tables are wanted."""

    uri: str
    metadata: DumpMetadata
    tables: tuple[DumpedTable, ...]
    """Sorted by name."""


def survey(store: ObjectStore, patterns: TablePatterns, dispatch: Dispatch) -> Dump:
    """The dump at the root of *store*, of its tables those whose events have by *dispatch* a name that *patterns* want. Reads
    names and definitions, no rows.

    Raises ConfigError for a folder that holds no complete dump of a snapshot of TiDB.
    """
    found = list(store.list())
    if not any(info.name == METADATA for info in found):
        raise ConfigError(
            f"{store.root}: there is no file {METADATA}. Is this the folder that Dumpling wrote to (-o), and has the dump ended?"
        )
    metadata = read_metadata(store.get(METADATA), store.uri(METADATA))
    definitions: dict[TableName, ObjectInfo] = {}
    defined: set[TableName] = set()
    views: set[TableName] = set()
    data: defaultdict[TableName, list[ObjectInfo]] = defaultdict(list)
    for info in found:
        read = read_name(info.name)
        if read.table is None:
            continue
        is_wanted = patterns.wants(*dispatch.routed(SourceTable(read.table.schema, read.table.table)))
        if read.kind == "data":  # by another template a table that is wanted may look like one that is not
            data[read.table].append(info)
        elif read.kind == "definition":
            defined.add(read.table)
            if is_wanted:
                definitions[read.table] = info
        elif is_wanted:
            views.add(read.table)
    unknown = sorted(info.name for info in found if _may_have_rows(info.name, definitions.values()))
    if unknown:
        raise ConfigError(
            f"{store.root}: {_some(unknown)}: not named as Dumpling does by default, so its rows would be left out. Dump again "
            "without --output-filename-template, or move what is not of the dump away"
        )
    lacking = sorted(data.keys() - defined)
    if lacking:
        raise ConfigError(
            f"{store.root}: rows of {_some(lacking)}, and no file …-schema.sql with the definition: dump again without "
            "--no-schemas and --output-filename-template"
        )
    both = sorted(data.keys() & views)
    if both:
        raise ConfigError(
            f"{store.root}: {_some(both)} has rows and is a view: the folder holds more than one dump. Dump again into an empty "
            "folder"
        )
    names = sorted(definitions.keys() - views)
    if not names:
        raise ConfigError(f"{store.root}: the dump has none of the tables that are wanted")
    empty = [name for name in names if not data[name]]
    if empty:
        log.warning("%s: no file has rows of %s: no row of them was dumped", store.root, _some(empty))
    return Dump(store.root, metadata, tuple(_table(store, name, definitions[name], data[name]) for name in names))


def _may_have_rows(name: str, definitions: Iterable[ObjectInfo]) -> bool:
    """Whether a reader that knows Dumpling's default names would leave out rows in the file *name*, of these *definitions*."""
    folder, _, own = name.rpartition("/")
    if is_other(own) or (not folder and read_name(own) != DumpName("other")):
        return False
    return is_of_rows(own) or any(own.startswith(file_prefix(definition.name)) for definition in definitions)


def _some(names: Sequence[object]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(str, names[:5])) + more


def _table(store: ObjectStore, name: TableName, definition: ObjectInfo, data: list[ObjectInfo]) -> DumpedTable:
    text = read_whole(store, definition.name, read_name(definition.name).compression)
    formats = {read.format for read in map(read_name, (info.name for info in data)) if read.format is not None}
    if len(formats) > 1:
        raise ConfigError(
            f"{store.root}: {name} has rows in files of several formats ({', '.join(sorted(formats))}): the folder holds more "
            "than one dump. Dump again into an empty folder"
        )
    if "parquet" in formats and any(read_name(info.name).compression for info in data):
        raise ConfigError(
            f"{store.root}: files of {name} are Parquet and compressed as a whole, which no Dumpling writes: unpack them"
        )
    cut = sorted(info.name for info in data if not info.size)
    if cut:
        raise ConfigError(
            f"{store.root}: {_some(cut)} is empty, and Dumpling writes no empty files: a copy has failed. Copy the dump again"
        )
    try:
        create_table = text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{store.uri(definition.name)}: not UTF-8 ({error})") from None
    files = tuple(sorted(DumpFile(info.name, info.size, info.etag, read_name(info.name).compression) for info in data))
    return DumpedTable(name, create_table, next(iter(formats)) if files else None, files)
