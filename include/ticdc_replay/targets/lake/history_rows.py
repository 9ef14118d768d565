"""A worker's part of a history: which row versions it can't hold, and the others as rows of the table.

Rows go from the changelog's files into the statement; nothing is staged. So what is refused is found by a round of
tasks before: it reads only footers of files in which every cell has a typed value.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.parts import batch_rows, batches_of, counted
from ticdc_replay.domain.errors import UnrepresentableValueError
from ticdc_replay.domain.tso import LOGICAL_BITS
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.history.rows import (
    ABSENT,
    COMMIT_TIME,
    DDL,
    OP,
    PLACE_SOURCES,
    READ,
    VersionFile,
    require_whole,
    side_of,
)
from ticdc_replay.targets.lake.stage import WAY_ON
from ticdc_replay.targets.lake.types import staged_arrow_type, staged_cells
from ticdc_replay.targets.refused_rows import Refused, ValueQuarantine, describe

_VIEW_ROWS = 20_000
"""Rows of a batch that go to the JVM: larger ones are no faster."""
_PLACE_TYPES = {
    "_kafka_topic": "string",
    "_kafka_partition": "int",
    "_kafka_offset": "bigint",
    "_kafka_index": "int",
}

OWN_TYPES = {OP: "string", COMMIT_TIME: "timestamp", **_PLACE_TYPES, ABSENT: "array<string>", DDL: "string"}
"""The columns of a history beside those of the upstream and that of the commitTs, in their order."""


class CheckTask(msgspec.Struct, frozen=True):
    """Files whose rows are checked."""

    units: ClassVar[str] = "files"

    files: tuple[VersionFile, ...]
    quarantine: str | None
    """Name, below the artefacts, of the file for rows that a history can't hold; None where such a row stops the load."""

    @property
    def size(self) -> int:
        """How many files it reads."""
        return len(self.files)


class Checked(msgspec.Struct, frozen=True):
    """What one task found: per file, the positions (int64, ascending) of the rows that are left out."""

    left_out: tuple[bytes, ...]
    quarantine: str | None


def check(task: CheckTask) -> Checked:
    """Find the rows with a value that no typed column holds. May run twice.

    Raises UnrepresentableValueError for one if policy stops; PermanentError for a put that lacks columns; TransientError
    if the store is away.
    """
    filesystem, root = task.files[0].artifacts.open().arrow_filesystem()
    quarantine = None if task.quarantine is None else ValueQuarantine(filesystem, root, task.quarantine)
    left_out = []
    for file in task.files:
        going: list[int] = []
        with (
            file_errors(f"read {file.name}"),
            pq.ParquetFile(f"{root}/{file.name}", filesystem=filesystem) as opened,
        ):
            typed = _is_empty(opened.metadata, "_exact")
            if not typed or not _is_empty(opened.metadata, "_absent"):
                wanted = [OP, "_commit_ts", *PLACE_SOURCES, "_absent"] if typed else READ
                for start, batch in batches_of(opened, file.only, wanted, batch_rows(opened.metadata)):
                    require_whole(batch, file)
                    refused = [] if typed else _refused(batch, file)
                    if refused and quarantine is None:
                        raise UnrepresentableValueError(
                            f"{describe(file.table, file.handle_key, batch, refused)}\n{WAY_ON}"
                        )
                    if refused and quarantine is not None:
                        quarantine.add(file.table, file.handle_key, file.name, batch, refused)
                    going += sorted({start + entry.position for entry in refused})
        left_out.append(np.array(going, np.int64).tobytes())
    return Checked(tuple(left_out), quarantine.close() if quarantine is not None else None)


def _is_empty(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether the statistics show that no row has anything in the column *name*."""
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    number = next(at for at, path in enumerate(paths) if path.split(".")[0] == name)
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(number)
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count < column.num_values:
            return False
    return True


def _refused(batch: pa.RecordBatch, file: VersionFile) -> list[Refused]:
    """Cells without typed value that a row of the history needs: of a delete, those that say which row it ended."""
    inside = counted(batch, file.only)
    needed = {f"after.{source}" for source, _, _ in file.columns} | {f"before.{name}" for name in file.identity}
    return [
        Refused(at, name.partition(".")[2], f"the value {text.decode(errors='backslashreplace')[:200]!r}")
        for at, cells in enumerate(batch["_exact"].to_pylist())
        for name, text in cells or ()
        if name in needed and name.startswith(side_of(batch, at)) and (inside is None or inside[at].as_py())
    ]


class VersionsTask(msgspec.Struct, frozen=True):
    """A file whose rows a view has, without those at the positions *left_out*."""

    file: VersionFile
    left_out: bytes
    commit_ts: str
    """Name of the column of the commitTs."""


def layout_of(file: VersionFile, commit_ts: str) -> dict[str, str]:
    """The columns that ``read_versions`` gives, with the types as Spark spells them."""
    columns = {name: type_name for _, name, type_name in file.columns}
    return {**columns, commit_ts: "bigint", **{name: OWN_TYPES[name] for name in OWN_TYPES if name != DDL}}


def read_versions(task: VersionsTask) -> Iterator[pa.RecordBatch]:
    """The row versions of the file of *task*: of a delete the image before it, of others the one after."""
    file = task.file
    filesystem, root = file.artifacts.open().arrow_filesystem()
    left_out = np.frombuffer(task.left_out, np.int64)
    with file_errors(f"read {file.name}"), pq.ParquetFile(f"{root}/{file.name}", filesystem=filesystem) as opened:
        rows = min(_VIEW_ROWS, batch_rows(opened.metadata))
        for start, batch in batches_of(opened, file.only, READ, rows):
            inside = counted(batch, file.only)
            if len(left_out):
                stays = ~np.isin(np.arange(start, start + batch.num_rows), left_out)
                inside = pa.array(stays) if inside is None else pc.and_(inside, pa.array(stays))
            kept = batch if inside is None else batch.filter(inside)
            if kept.num_rows:
                yield _rows(kept, file, task.commit_ts)


def _rows(batch: pa.RecordBatch, file: VersionFile, commit_ts: str) -> pa.RecordBatch:
    gone = pc.equal(batch[OP], "delete")
    deletes = pc.sum(gone).as_py()

    def cells(source: str) -> pa.Array:
        if not deletes:
            return pc.struct_field(batch["after"], [source])
        before = pc.struct_field(batch["before"], [source])
        return (
            before if deletes == batch.num_rows else pc.if_else(gone, before, pc.struct_field(batch["after"], [source]))
        )

    arrays = [staged_cells(cells(source), type_name) for source, _, type_name in file.columns]
    times = pc.shift_right(batch["_commit_ts"], LOGICAL_BITS).cast(pa.timestamp("ms", "UTC"))
    place = [
        batch[name].cast(staged_arrow_type(type_name))
        for name, type_name in zip(PLACE_SOURCES, _PLACE_TYPES.values(), strict=True)
    ]
    arrays += [batch["_commit_ts"], batch[OP], times.cast(pa.timestamp("us", "UTC")), *place, _absent(batch, file)]
    return pa.RecordBatch.from_arrays(arrays, names=list(layout_of(file, commit_ts)))


def _absent(batch: pa.RecordBatch, file: VersionFile) -> pa.Array:
    """Per row the columns that are NULL because its event, or the typed value, is missing; NULL where none is."""
    absent, exact = batch["_absent"], batch["_exact"]
    if absent.null_count == batch.num_rows and exact.null_count == batch.num_rows:
        return pa.nulls(batch.num_rows, pa.list_(pa.string()))
    known = {source: name for source, name, _ in file.columns}
    found: list[Sequence[str] | None] = []
    for at, (names, cells) in enumerate(zip(absent.to_pylist(), exact.to_pylist(), strict=True)):
        side = side_of(batch, at)
        lacking = {name.removeprefix(side) for name in names or () if name.startswith(side)}
        lacking |= {name.removeprefix(side) for name, _ in cells or () if name.startswith(side)}
        found.append(sorted(known[name] for name in lacking if name in known) or None)
    return pa.array(found, pa.list_(pa.string()))
