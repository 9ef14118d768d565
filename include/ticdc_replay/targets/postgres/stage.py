"""A worker's part of a mirror load: changelog files → staging tables, by binary COPY of Arrow data."""

import logging
from collections.abc import Iterator
from typing import ClassVar

import adbc_driver_manager
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi

from ticdc_replay.changelog.parts import batch_rows
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import PermanentError, UnrepresentableValueError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import StoreAddress
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.last_versions import LastVersions, winning_rows
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.staged_rows import StagePiece, columns_to_read, stage_rows, stage_schema
from ticdc_replay.targets.quarantine import Refused, ValueQuarantine, describe

log = logging.getLogger(__name__)

_SMALL_SAMPLE = "SET LOCAL default_statistics_target = 10"
"""The merge needs to know how many rows are staged, and no more."""
_INVALID_DATA = "22"
"""SQLSTATE class of values that the server refuses."""


class StageTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker stages, over one connection and in one transaction, into staging tables of its own."""

    units: ClassVar[str] = "files"

    number: int
    connection: Connection
    artifacts: StoreAddress
    quarantine: str | None
    """Name, below the artefacts, of the file for rows that the target can't hold; None where such a row stops the load."""
    pieces: tuple[StagePiece, ...]

    @property
    def size(self) -> int:
        """How many files it reads."""
        return sum(len(piece.numbers) for piece in self.pieces)


class StagedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the last versions in one piece."""

    table: TableName
    staged: int
    quarantined: int


class StageResult(msgspec.Struct, frozen=True):
    """What one worker did. ``quarantine`` is None where no row was set aside."""

    pieces: tuple[StagedPiece, ...]
    quarantine: str | None


class _ServerRefusesValuesError(Exception):
    """PostgreSQL refused a value that passed the checks."""


def stage(task: StageTask) -> StageResult:
    """Copy the rows of *task* into their staging tables; all of them, or none.

    May run twice, even at the same time: each run empties its tables first, which waits for the other to end. Raises
    UnrepresentableValueError for a value the target can't hold (where policy stops), TransientError when the target is away.
    """
    try:
        return _Stager(task, check_json=False).run()
    except _ServerRefusesValuesError as error:
        # Parsing every JSON cell would cost more than the COPY itself, so it is done when the server has found a bad one.
        log.warning("task %d: %s; looking for the row", task.number, error)
    try:
        return _Stager(task, check_json=True).run()
    except _ServerRefusesValuesError as error:
        raise PermanentError(str(error)) from error


class _Stager:
    """One run of a task."""

    def __init__(self, task: StageTask, *, check_json: bool) -> None:
        self._task = task
        self._check_json = check_json
        self._settings = PostgresSettings(task.connection)
        self._filesystem, self._root = task.artifacts.open().arrow_filesystem()
        self._last_versions = LastVersions(self._filesystem, self._root)
        self._quarantine: ValueQuarantine | None = None
        if task.quarantine is not None:
            self._quarantine = ValueQuarantine(self._filesystem, self._root, task.quarantine)
        self._failure: Exception | None = None
        self._files = 0
        self._staged = 0
        self._quarantined = 0

    def run(self) -> StageResult:
        try:
            with self._settings.connect_bulk() as connection, connection.cursor() as cursor:
                stages = {piece.stage: piece for piece in self._task.pieces}
                for stage in stages:
                    cursor.execute(f'TRUNCATE "{LEDGER_SCHEMA}"."{stage}"')
                pieces = [self._stage_piece(cursor, piece) for piece in self._task.pieces]
                cursor.execute(_SMALL_SAMPLE)
                for stage, piece in stages.items():
                    keys = ", ".join(column.staged for column in piece.columns if column.is_key)
                    cursor.execute(f'ANALYZE "{LEDGER_SCHEMA}"."{stage}" ({keys})')
                connection.commit()
        except adbc_driver_manager.Error as error:
            if self._failure is not None:
                raise self._failure from None
            translated = translate(error, f"stage rows (task {self._task.number})", self._settings.conn_id)
            if (error.sqlstate or "").startswith(_INVALID_DATA):
                raise _ServerRefusesValuesError(str(translated)) from error
            raise translated from error
        return StageResult(tuple(pieces), self._quarantine.close() if self._quarantine is not None else None)

    def _stage_piece(self, cursor: dbapi.Cursor, piece: StagePiece) -> StagedPiece:
        self._staged, self._quarantined = 0, 0
        reader = pa.RecordBatchReader.from_batches(stage_schema(piece), self._batches(piece))
        cursor.adbc_ingest(piece.stage, reader, mode="append", db_schema_name=LEDGER_SCHEMA)
        return StagedPiece(table=piece.fold.table, staged=self._staged, quarantined=self._quarantined)

    def _batches(self, piece: StagePiece) -> Iterator[pa.RecordBatch]:
        try:
            for number in piece.numbers:
                name = piece.fold.files[number]
                with file_errors(f"read {name}"):
                    yield from self._file_batches(piece, number, name)
                self._files += 1
                report_done(self._files)
        except Exception as error:
            # ADBC would turn it into text: it is kept, and raised by ``run`` as what it is.
            self._failure = error
            raise

    def _file_batches(self, piece: StagePiece, number: int, name: str) -> Iterator[pa.RecordBatch]:
        positions = self._last_versions.positions(piece.fold, number)
        if len(positions) == 0:
            return
        with pq.ParquetFile(f"{self._root}/{name}", filesystem=self._filesystem) as file:
            for batch in winning_rows(file, positions, batch_rows(file.metadata), columns_to_read(piece)):
                staged = stage_rows(batch, piece, self._check_json)
                if staged.refused:
                    self._set_aside(piece, name, batch, staged.refused)
                self._staged += staged.rows.num_rows
                yield staged.rows

    def _set_aside(self, piece: StagePiece, file: str, batch: pa.RecordBatch, refused: list[Refused]) -> None:
        if self._quarantine is None:
            raise UnrepresentableValueError(
                f"{describe(piece.fold.table, piece.fold.handle_key, batch, refused)}\n"
                "PostgreSQL can't hold these values unaltered. Correct the rows upstream and replay from there, leave the "
                "table out, or set policies.target_value to quarantine"
            )
        self._quarantined += len({entry.position for entry in refused})
        self._quarantine.add(piece.fold.table, piece.fold.handle_key, file, batch, refused)
