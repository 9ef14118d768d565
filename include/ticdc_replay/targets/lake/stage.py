"""A worker's part of a load into lake tables: changelog files → Parquet with the last version of each row."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.parts import batch_rows
from ticdc_replay.domain.errors import UnrepresentableValueError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import file_errors, whole_file
from ticdc_replay.targets.lake.key_ranges import KeyRanges
from ticdc_replay.targets.last_versions import LastVersions, winning_rows
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.staged_rows import (
    PUT,
    VERSION,
    StagePiece,
    columns_to_read,
    stage_rows,
    stage_schema,
)
from ticdc_replay.targets.mirror.staging import StagedPiece, StageResult, StageTask
from ticdc_replay.targets.refused_rows import Refused, ValueQuarantine, describe

STAGING = "staging"
"""Folder of staged rows, below the ledger."""
DELETES = "deletes"
"""Folder of the deletes that the ledger remembers, below the ledger."""

DELETED_AT = "_ticdc_replay_version"
"""Column of a file of deletes beside those of the key: the version of the delete. A name that no key has."""

WAY_ON = (
    "no typed column holds these values unaltered. Correct the rows upstream and replay from there, leave the table out, or set "
    "policies.target_value to quarantine"
)
_GROUP_ROWS = 250_000


class LakeDestination(msgspec.Struct, frozen=True):
    """Where workers stage: the ledger's store, and how rows are staged."""

    ledger: StoreAddress
    dialect: Dialect
    soft: bool
    """Whether a deleted row stays, so that it is staged whole."""


class StagedFile(msgspec.Struct, frozen=True):
    """A file of staged rows: its name below the ledger, and the schema version of its rows."""

    name: str
    version: str


class StagedFiles:
    """The staged files of an attempt, below the ledger."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self._store = address.open()

    def of(self, stage: str) -> list[StagedFile]:
        """The files that the tasks of *stage* have left."""
        found = (info.name for info in self._store.list(f"{STAGING}/{stage}/"))
        return [StagedFile(name, name.rpartition("/")[2].removesuffix(".parquet")) for name in found]

    def deletes_of(self, stage: str) -> list[tuple[str, int, int]]:
        """Name, rows and newest version of the files with the deletes of *stage*."""
        filesystem, root = self._store.arrow_filesystem()
        found = []
        for info in self._store.list(f"{DELETES}/{stage}-"):
            with file_errors(f"read {info.name}"):
                metadata = pq.read_metadata(f"{root}/{info.name}", filesystem=filesystem)
            last = max(_largest(metadata, group) for group in range(metadata.num_row_groups))
            found.append((info.name, metadata.num_rows, last))
        return found

    def metadata_of(self, stages: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        """The metadata of the files of *stages* that have rows."""
        filesystem, root = self._store.arrow_filesystem()
        found = []
        for file in chain.from_iterable(map(self.of, stages)):
            with file_errors(f"read {file.name}"):
                metadata = pq.read_metadata(f"{root}/{file.name}", filesystem=filesystem)
            if metadata.num_rows:
                found.append(metadata.metadata)
        return found

    def cells_of(self, stages: Sequence[str], column: str) -> pa.Array:
        """The cells of *column* in the files of *stages*, of which those with rows have it in one type."""
        filesystem, root = self._store.arrow_filesystem()
        found = []
        for file in chain.from_iterable(map(self.of, stages)):
            with file_errors(f"read {file.name}"):
                table = pq.read_table(f"{root}/{file.name}", columns=[column], filesystem=filesystem, partitioning=None)
            if table.num_rows:
                found.append(table)
        return pa.concat_tables(found)[column].combine_chunks()

    def delete(self, stage: str) -> None:
        """Remove the staged rows of *stage*; its deletes stay."""
        for file in self.of(stage):
            self._store.delete(file.name)


def _largest(metadata: pq.FileMetaData, group: int) -> int:
    column = metadata.row_group(group).column(metadata.num_columns - 1)  # the version is the last one
    largest: int = column.statistics.max
    return largest


def stage(task: StageTask) -> StageResult:
    """Write the rows of *task*, and once more the keys of its deletes. May run twice: names and content follow from the task.

    Raises UnrepresentableValueError for a value without typed cell, if policy stops; TransientError if the store is away.
    """
    return _Stager(task).run()


class _Stager:
    """One run of a task."""

    def __init__(self, task: StageTask) -> None:
        assert isinstance(task.destination, LakeDestination), "the destination of a lake"
        self._task = task
        self._to = task.destination
        self._filesystem, self._root = task.artifacts.open().arrow_filesystem()
        self._ledger, self._ledger_root = self._to.ledger.open().arrow_filesystem()
        self._last_versions = LastVersions(self._filesystem, self._root)
        self._quarantine = (
            None if task.quarantine is None else ValueQuarantine(self._filesystem, self._root, task.quarantine)
        )
        self._files = 0

    def run(self) -> StageResult:
        pieces = tuple(map(self._stage, self._task.pieces))
        return StageResult(pieces, self._quarantine.close() if self._quarantine is not None else None)

    def _stage(self, piece: StagePiece) -> StagedPiece:
        staged = quarantined = 0
        deletes: list[pa.RecordBatch] = []
        path = f"{self._ledger_root}/{STAGING}/{piece.stage}/{piece.version}.parquet"
        layout = stage_schema(piece, self._to.dialect)
        keys = [column for column in piece.columns if column.is_key]
        ranges = KeyRanges()
        with (
            file_errors(f"write {path}"),
            whole_file(self._ledger, path) as local,
            pq.ParquetWriter(local, layout, compression="lz4", use_dictionary=False, write_statistics=False) as writer,
        ):
            for rows, refused in self._batches(piece):
                writer.write_batch(rows, row_group_size=_GROUP_ROWS)
                staged += rows.num_rows
                quarantined += refused
                deletes.append(_deletes(rows, piece))
                for column in keys:
                    ranges.add(column.staged, column.type, rows[column.staged])
            writer.add_key_value_metadata(ranges.metadata())
        gone = pa.Table.from_batches(deletes) if deletes else None
        if gone is not None and gone.num_rows and not self._to.soft:
            path = f"{self._ledger_root}/{DELETES}/{piece.stage}-{piece.version}.parquet"
            with file_errors(f"write {path}"), whole_file(self._ledger, path) as local:
                pq.write_table(gone, local, compression="zstd")
        return StagedPiece(table=piece.fold.table, staged=staged, quarantined=quarantined)

    def _batches(self, piece: StagePiece) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Staged rows, and how many were set aside beside them."""
        for number in piece.numbers:
            name = piece.fold.files[number]
            positions = self._last_versions.positions(piece.fold, number)
            with file_errors(f"read {name}"):
                if len(positions):
                    with pq.ParquetFile(f"{self._root}/{name}", filesystem=self._filesystem) as file:
                        wanted = columns_to_read(piece, whole=self._to.soft)
                        for batch in winning_rows(file, positions, batch_rows(file.metadata), wanted):
                            rows, refused = stage_rows(
                                batch, piece, self._to.dialect, check_json=False, whole=self._to.soft
                            )
                            yield rows, self._set_aside(piece, name, batch, refused) if refused else 0
            self._files += 1
            report_done(self._files)

    def _set_aside(self, piece: StagePiece, file: str, batch: pa.RecordBatch, refused: Sequence[Refused]) -> int:
        if self._quarantine is None:
            raise UnrepresentableValueError(
                f"{describe(piece.fold.table, piece.fold.handle_key, batch, refused)}\n{WAY_ON}"
            )
        self._quarantine.add(piece.fold.table, piece.fold.handle_key, file, batch, refused)
        return len({entry.position for entry in refused})


def _deletes(rows: pa.RecordBatch, piece: StagePiece) -> pa.RecordBatch:
    key = {column.staged: column.source for column in piece.columns if column.is_key}
    gone = rows.filter(pc.invert(rows[PUT])).select([*key, VERSION])
    return gone.rename_columns([*key.values(), DELETED_AT])


class ReadTask(msgspec.Struct, frozen=True):
    """A file of staged rows or deletes, read for a view: its columns by their names in the view, in this order."""

    store: StoreAddress
    name: str
    columns: tuple[tuple[str, str], ...]
    """Name in the file, and the type in the view as the dialect spells it."""
    dialect: Dialect


def read_staged(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of the file of *task*."""
    filesystem, root = task.store.open().arrow_filesystem()
    names = [name for name, _ in task.columns]
    schema = pa.schema(
        [
            pa.field(name, pa.bool_() if type_name == "boolean" else task.dialect.staged_arrow_type(type_name))
            for name, type_name in task.columns
        ]
    )
    with file_errors(f"read {task.name}"), pq.ParquetFile(f"{root}/{task.name}", filesystem=filesystem) as file:
        for batch in file.iter_batches(_VIEW_ROWS, columns=names):
            yield batch.select(names).cast(schema)


_VIEW_ROWS = 20_000
"""Rows of a batch that go to the JVM: larger ones are no faster."""
