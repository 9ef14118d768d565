"""Data files by the version of the schema that their rows have: what splits leave, and the index lists by table."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ticdc_replay.changelog.files.index import DataFile, TableVersion
from ticdc_replay.domain.tables import TableName, TableSchema


class VersionFile(msgspec.Struct, frozen=True):
    """A data file with the schema of its rows; ``version`` and ``declared`` as ``TableVersion`` has them."""

    schema: TableSchema
    version: str
    declared: bool
    file: DataFile

    def __reduce__(self) -> tuple[Any, ...]:
        return _version_file, (self.schema, self.version, self.declared, self.file)


_schemas: dict[tuple[TableName, str], TableSchema] = {}


def _version_file(schema: TableSchema, version: str, declared: bool, file: DataFile) -> VersionFile:
    """A ``VersionFile`` from another process. The driver gets one for each table of each split, and keeps each schema once."""
    known = _schemas.setdefault((schema.name, version), schema)
    return VersionFile(known if known == schema else schema, version, declared, file)


def table_versions(
    written: Iterable[tuple[VersionFile, DataFile | None]], order: Callable[[DataFile], Any]
) -> tuple[TableVersion, ...]:
    """The versions of all tables, with their files by *order*: of each file that was *written* what is left, None for nothing."""
    groups: defaultdict[tuple[str, str, str], list[tuple[VersionFile, DataFile | None]]] = defaultdict(list)
    for found, left in written:
        groups[found.schema.name.schema, found.schema.name.table, found.version].append((found, left))
    versions = []
    for (_, _, version), members in sorted(groups.items(), key=lambda group: group[0]):
        files = sorted((left for _, left in members if left is not None), key=order)
        if files:
            # Rows of one version may have been typed by schemas that differ only in their moment: the oldest names it.
            schema = min((found.schema for found, _ in members), key=lambda schema: schema.valid_from)
            declared = all(found.declared for found, _ in members)
            versions.append(TableVersion(schema, version, declared, tuple(files), sum(file.rows for file in files)))
    return tuple(versions)
