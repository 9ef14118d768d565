"""The row versions of a changelog as a history has them: its own columns, and which versions no history can hold."""

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from ticdc_replay.changelog.copies.fold import place_of
from ticdc_replay.changelog.files.index import ChangelogIndex, TableVersion
from ticdc_replay.changelog.files.parts import counted
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import Column, TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load, StoreAddress

OP, COMMIT_TIME, ABSENT, DDL = "_op", "_commit_time", "_absent", "_ddl"
PLACE_SOURCES = {
    "_topic": "_kafka_topic",
    "_partition": "_kafka_partition",
    "_offset": "_kafka_offset",
    "_index": "_kafka_index",
}
"""Where a row was in Kafka: column of the changelog, and of the history. Iceberg has a ``_partition`` itself."""
PLACE = tuple(PLACE_SOURCES.values())
OWN = (OP, COMMIT_TIME, *PLACE, ABSENT, DDL)
"""The columns of a history beside those of the upstream and that of the commitTs, in their order."""
READ = [OP, "_commit_ts", *PLACE_SOURCES, "before", "after", "_absent", "_exact"]
"""What a history reads of a changelog file."""


class VersionFile(msgspec.Struct, frozen=True, kw_only=True):
    """A changelog file of one table and schema version."""

    artifacts: StoreAddress
    table: TableName
    name: str
    only: Window | None
    columns: tuple[tuple[str, str, str], ...]
    """Name in the changelog, name where rows are brought to, and type there as the history's database spells it."""
    handle_key: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that a delete must have to say which row it ended."""
        return self.handle_key or tuple(source for source, _, _ in self.columns)


def version_files(
    load: Load, index: ChangelogIndex, versions: Sequence[TableVersion], column_of: Callable[[Column], tuple[str, str]]
) -> tuple[VersionFile, ...]:
    """The files of *versions* of one table, in the changelog *index*. *column_of* gives name and type of a column where its
    cells are brought to."""
    return tuple(
        VersionFile(
            artifacts=load.artifacts,
            table=version.schema.name,
            name=load.file_name(file, index, table=version.schema.name),
            only=file.only,
            columns=tuple((column.name, *column_of(column)) for column in version.schema.columns),
            handle_key=version.schema.handle_key,
        )
        for version in versions
        for file in version.files
    )


def require_whole(batch: pa.RecordBatch, file: VersionFile) -> None:
    """Raise PermanentError for a put, of *batch* out of *file*, that lacks columns."""
    inside = counted(batch, file.only)
    for at, names in enumerate(batch["_absent"].to_pylist() if batch["_absent"].null_count < batch.num_rows else ()):
        missing = [name.removeprefix("after.") for name in names or () if name.startswith("after.")]
        if missing and side_of(batch, at) == "after." and (inside is None or inside[at].as_py()):
            raise PermanentError(
                f"{place_of(batch, at)}: the row of {file.table} came without {', '.join(missing)}, which its definition has; "
                "a column that the changefeed's column-selectors drop must be left out of the definition"
            )


def side_of(batch: pa.RecordBatch, at: int) -> str:
    """The image of the row at the position *at* that a history has: of a delete the one before it."""
    return "before." if batch[OP][at].as_py() == "delete" else "after."
