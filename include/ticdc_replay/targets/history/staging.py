"""What workers stage of a history in a database: every row of the files that they share, each in the staging table of its table
and run."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, TableVersion
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import Column
from ticdc_replay.targets.base import Load, StoreAddress
from ticdc_replay.targets.history.columns import needed
from ticdc_replay.targets.history.rows import VersionFile, version_files
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.tables import ColumnDefinition, Relation
from ticdc_replay.targets.mirror.staging import MIN_TASK_BYTES

OP, TOPIC, PARTITION, OFFSET, INDEX, ABSENT = "op", "topic", "kafka_partition", "kafka_offset", "kafka_index", "absent"
OWN_TYPES = {
    OP: ColumnType("varchar", length=10),
    TOPIC: ColumnType("varchar", length=255),
    PARTITION: ColumnType("int"),
    OFFSET: ColumnType("bigint"),
    INDEX: ColumnType("int"),
    ABSENT: ColumnType("text"),
}
"""The columns of a staging table beside those of the upstream's row, and those that every staging table has. ``absent`` is a list
as JSON."""


class StagedColumn(msgspec.Struct, frozen=True):
    """A column of the upstream: its name in the history, its name in staging, and its type there."""

    name: str
    staged: str
    type: str


class VersionSet(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that one changelog has of one table."""

    number: int
    """Unlike those of other sets of the load."""
    target: Relation
    columns: tuple[StagedColumn, ...]
    key: tuple[StagedColumn, ...]
    """The columns that identify rows of any of the definitions; empty if one of these has no key."""
    files: tuple[tuple[VersionFile, int], ...]
    """With their size (bytes)."""

    def staging_columns(self, dialect: Dialect) -> list[ColumnDefinition]:
        """The columns of its staging tables beside those that every one has."""
        own = [ColumnDefinition(name, dialect.type_of(type_)) for name, type_ in OWN_TYPES.items()]
        return [*(ColumnDefinition(column.staged, column.type) for column in self.columns), *own]


def version_set(
    load: Load,
    index: ChangelogIndex,
    versions: Sequence[TableVersion],
    number: int,
    target: Relation,
    dialect: Dialect,
) -> VersionSet:
    """The rows of *versions* of one table in the changelog *index*. Raises TargetMismatchError where no type holds all values of
    a column."""
    wanted = needed(dialect, target, [version.schema for version in versions])
    columns = {
        lower: StagedColumn(column.name, f"c{at:04d}", column.type) for at, (lower, column) in enumerate(wanted.items())
    }

    def staged(name: str) -> StagedColumn:
        return columns[dialect.fit_column(name).lower()]

    def column_of(column: Column) -> tuple[str, str]:
        found = staged(column.name)
        return found.staged, found.type

    keys = [version.schema.handle_key for version in versions]
    sizes = [file.bytes for version in versions for file in version.files]
    return VersionSet(
        number=number,
        target=target,
        columns=tuple(columns.values()),
        key=tuple(dict.fromkeys(staged(name) for key in keys for name in key)) if all(keys) else (),
        files=tuple(zip(version_files(load, index, versions, column_of), sizes, strict=True)),
    )


class VersionPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one set and one definition, and the staging table that their rows go to."""

    number: int
    """Of the set."""
    stage: str
    files: tuple[VersionFile, ...]

    @property
    def columns(self) -> tuple[tuple[str, str, str], ...]:
        """As ``VersionFile.columns``, the same for all."""
        return self.files[0].columns


class VersionTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker stages, all or nothing, into staging tables of its own."""

    units: ClassVar[str] = "files"

    attempt: str
    """As ``StageTask.attempt``."""
    number: int
    destination: object
    """As ``StageTask.destination``."""
    artifacts: StoreAddress
    quarantine: str | None
    """Name, below the artefacts, of the file for rows that the target can't hold; None where such a row stops the load."""
    pieces: tuple[VersionPiece, ...]

    @property
    def own_stages(self) -> list[str]:
        """The staging tables that no other task fills."""
        return sorted({piece.stage for piece in self.pieces})

    @property
    def size(self) -> int:
        """How many files it reads."""
        return sum(len(piece.files) for piece in self.pieces)


def version_tasks(load: Load, destination: object, sets: Sequence[VersionSet], writers: int) -> list[VersionTask]:
    """Tasks that stage the rows of *sets*, about equally large."""
    files = [(size, each.number, file) for each in sets for file, size in each.files]
    total = sum(size for size, _, _ in files)
    count = max(1, min(writers, load.parallelism, len(files), 1 + total // MIN_TASK_BYTES))
    shares: list[list[tuple[int, VersionFile]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for size, number, file in sorted(files, key=lambda entry: (-entry[0], entry[1], entry[2].name)):
        smallest = min(range(count), key=sizes.__getitem__)
        shares[smallest].append((number, file))
        sizes[smallest] += size
    return [
        VersionTask(
            attempt=load.attempt,
            number=number,
            destination=destination,
            artifacts=load.artifacts,
            quarantine=f"{load.folder}/quarantine/{number:03d}.parquet" if load.quarantine_values else None,
            pieces=_pieces(load, share, number),
        )
        for number, share in enumerate(shares)
        if share
    ]


def _pieces(load: Load, share: Sequence[tuple[int, VersionFile]], task: int) -> tuple[VersionPiece, ...]:
    groups: dict[tuple[int, tuple[tuple[str, str, str], ...], tuple[str, ...]], list[VersionFile]] = {}
    for number, file in sorted(share, key=lambda entry: (entry[0], entry[1].name)):
        groups.setdefault((number, file.columns, file.handle_key), []).append(file)
    return tuple(
        VersionPiece(number=number, stage=f"stage_{load.attempt}_h{number}_{task}", files=tuple(group))
        for (number, _, _), group in groups.items()
    )
