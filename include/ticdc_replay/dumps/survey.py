"""A dump as a whole: which tables it has, and in which files their rows are."""

from collections import defaultdict

import msgspec

from ticdc_replay.changefeed.rules import Dispatch, SourceTable
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.dumps.metadata import DumpMetadata, read_metadata
from ticdc_replay.dumps.names import METADATA, Compression, DumpName, Format, file_prefix, is_other, read_name
from ticdc_replay.dumps.streams import read_whole
from ticdc_replay.storage import ObjectStore
from ticdc_replay.storage.base import ObjectInfo


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
    found = [info for info in store.list() if "/" not in info.name]
    if not any(info.name == METADATA for info in found):
        raise ConfigError(
            f"{store.root}: there is no file {METADATA}. Is this the folder that Dumpling wrote to (-o), and has the dump ended?"
        )
    metadata = read_metadata(store.get(METADATA), store.uri(METADATA))
    definitions: dict[TableName, ObjectInfo] = {}
    views: set[TableName] = set()
    data: defaultdict[TableName, list[ObjectInfo]] = defaultdict(list)
    for info in found:
        read = read_name(info.name)
        if read.table is None or not patterns.wants(*dispatch.routed(SourceTable(read.table.schema, read.table.table))):
            continue
        if read.kind == "view":
            views.add(read.table)
        elif read.kind == "definition":
            definitions[read.table] = info
        elif read.kind == "data":
            data[read.table].append(info)
    unknown = sorted(
        info.name
        for info in found
        if read_name(info.name) == DumpName("other")
        and any(info.name.startswith(file_prefix(definition.name)) for definition in definitions.values())
        and not is_other(info.name)
    )
    if unknown:
        raise ConfigError(
            f"{store.root}: {', '.join(unknown[:5])}: of a table that is wanted, and not named as Dumpling does by default, so "
            "its rows would be left out. Dump again without --output-filename-template, or move what is not of the dump away"
        )
    lacking = sorted(data.keys() - definitions.keys())
    if lacking:
        raise ConfigError(
            f"{store.root}: rows of {', '.join(map(str, lacking))}, and no file …-schema.sql with the definition: dump again "
            "without --no-schemas"
        )
    names = sorted(definitions.keys() - views)
    if not names:
        raise ConfigError(f"{store.root}: the dump has none of the tables that are wanted")
    return Dump(store.root, metadata, tuple(_table(store, name, definitions[name], data[name]) for name in names))


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
    try:
        create_table = text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{store.uri(definition.name)}: not UTF-8 ({error})") from None
    files = tuple(
        sorted(
            DumpFile(info.name, info.size, info.etag, read_name(info.name).compression) for info in data if info.size
        )
    )
    return DumpedTable(name, create_table, next(iter(formats)) if files else None, files)
