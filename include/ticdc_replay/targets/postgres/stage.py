"""A worker's part of a mirror load: changelog files → staging tables, by binary COPY of Arrow data."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import adbc_driver_manager
import msgspec
import pyarrow as pa
from adbc_driver_postgresql import dbapi

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.targets.history.stager import VersionStager
from ticdc_replay.targets.history.staging import VersionTask
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.stager import Place, Stager
from ticdc_replay.targets.mirror.staging import StagedPiece, StageResult, StageTask
from ticdc_replay.targets.postgres.dialect import DIALECT
from ticdc_replay.targets.postgres.errors import translate
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.staging import lock_of
from ticdc_replay.targets.refused_rows import Refused

log = logging.getLogger(__name__)

_SMALL_SAMPLE = "SET LOCAL default_statistics_target = 10"
"""The merge needs to know how many rows are staged, and no more."""
_INVALID_DATA = "22"
"""SQLSTATE class of values that the server refuses."""
_TOO_WIDE = "54000"
"""SQLSTATE of a row that is too big for a page."""

TOO_WIDE = "a row that takes more than the 8,160 bytes of a page, even with its long values stored apart"


AnyTask = StageTask | VersionTask
AnyStager = Stager | VersionStager
"""The pieces of a task go to the stager of its kind."""


class _ServerRefusesValuesError(Exception):
    """PostgreSQL refused a value, or a row, that passed the checks."""


def stage(task: StageTask) -> StageResult:
    """Copy the rows of *task* into their staging tables; all of them, or none. May run twice, even at the same time:
    each run waits for the other to end, and takes the result that it has noted.

    Raises UnrepresentableValueError for a value the target can't hold, if policy stops; TransientError if it is away.
    """
    return _stage(task, partial(Stager, task, DIALECT))


def stage_history(task: VersionTask) -> StageResult:
    """As ``stage``, for the rows of a history."""
    return _stage(task, partial(VersionStager, task, DIALECT))


def _stage(task: AnyTask, make_stager: Callable[..., AnyStager]) -> StageResult:
    try:
        return _Run(task, make_stager(), look_closely=False).run()
    except _ServerRefusesValuesError as error:
        # Parsing every JSON cell would cost more than the COPY itself, so it is done when the server has found a bad one. Only
        # the server knows whether it finds room for a row: it is asked for ever smaller parts of a batch.
        log.warning("task %d: %s; looking for the row", task.number, error)
    try:
        return _Run(task, make_stager(check_json=True), look_closely=True).run()
    except _ServerRefusesValuesError as error:
        raise PermanentError(str(error)) from error


class _Run:
    """One run of a task."""

    def __init__(self, task: AnyTask, stager: AnyStager, *, look_closely: bool) -> None:
        self._task = task
        self._look_closely = look_closely
        assert isinstance(task.destination, Connection), "the destination of a mirror in PostgreSQL"
        self._settings = PostgresSettings(task.destination)
        self._stager = stager
        self._failure: Exception | None = None

    def run(self) -> StageResult:
        try:
            with self._settings.connect_bulk() as connection, connection.cursor() as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                noted = self._noted(cursor)
                if noted is not None:
                    return noted
                pieces = [self._stage_piece(cursor, piece) for piece in self._task.pieces]
                cursor.execute(_SMALL_SAMPLE)
                stages: dict[str, Any] = {piece.stage: piece for piece in self._task.pieces}
                for stage in self._task.own_stages:
                    keys = ", ".join(self._stager.looked_up(stages[stage]))
                    cursor.execute(f'ANALYZE "{LEDGER_SCHEMA}"."{stage}" ({keys})')
                result = StageResult(tuple(pieces), self._stager.close())
                self._note(cursor, result)
                cursor.execute("COMMIT")
        except adbc_driver_manager.Error as error:
            if self._failure is not None:
                raise self._failure from None
            translated = translate(error, f"stage rows (task {self._task.number})", self._settings.conn_id)
            if (error.sqlstate or "").startswith((_INVALID_DATA, _TOO_WIDE)):
                raise _ServerRefusesValuesError(str(translated)) from error
            raise translated from error
        return result

    def _noted(self, cursor: dbapi.Cursor) -> StageResult | None:
        """The result of a run of the task that ended well; a run that is going on is waited for."""
        task = f"{self._task.attempt} {self._task.number}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (task,))
        cursor.fetchall()
        cursor.execute(
            f'SELECT result FROM "{LEDGER_SCHEMA}".tasks WHERE attempt_lock = $1 AND task = $2',
            (lock_of(self._task.attempt), self._task.number),
        )
        row = cursor.fetchone()
        return msgspec.json.decode(row[0], type=StageResult) if row is not None else None

    def _note(self, cursor: dbapi.Cursor, result: StageResult) -> None:
        cursor.execute(
            f'INSERT INTO "{LEDGER_SCHEMA}".tasks (attempt_lock, task, result) VALUES ($1, $2, $3)',
            (lock_of(self._task.attempt), self._task.number, msgspec.json.encode(result).decode()),
        )

    def _stage_piece(self, cursor: dbapi.Cursor, piece: Any) -> StagedPiece:
        self._stager.begin()
        if self._look_closely:
            for _ in self._batches(piece, partial(_copy_what_fits, cursor, piece.stage)):
                pass
        else:
            reader = pa.RecordBatchReader.from_batches(self._stager.layout(piece), self._batches(piece))
            cursor.adbc_ingest(piece.stage, reader, mode="append", db_schema_name=LEDGER_SCHEMA)
        return self._stager.counted(piece)

    def _batches(self, piece: Any, place: Place | None = None) -> Iterator[pa.RecordBatch]:
        """What is to be copied; where it is looked at closely *place* has copied it, but for rows without room."""
        try:
            yield from self._stager.batches(piece, place)
        except Exception as error:
            # ADBC would turn it into text: it is kept, and raised by ``run`` as what it is.
            self._failure = error
            raise


def _copy_what_fits(cursor: dbapi.Cursor, stage: str, rows: pa.RecordBatch, first: int = 0) -> list[Refused]:
    """Copy *rows*, but those that PostgreSQL has no room for, by their positions counted from *first*."""
    if rows.num_rows == 0:
        return []
    cursor.execute("SAVEPOINT part")
    try:
        cursor.adbc_ingest(stage, rows, mode="append", db_schema_name=LEDGER_SCHEMA)
    except adbc_driver_manager.Error as error:
        if error.sqlstate != _TOO_WIDE:
            raise
    else:
        cursor.execute("RELEASE SAVEPOINT part")
        return []
    cursor.execute("ROLLBACK TO SAVEPOINT part")
    cursor.execute("RELEASE SAVEPOINT part")
    if rows.num_rows == 1:
        return [Refused(first, "", TOO_WIDE)]
    half = rows.num_rows // 2
    found = _copy_what_fits(cursor, stage, rows.slice(0, half), first)
    return found + _copy_what_fits(cursor, stage, rows.slice(half), first + half)
