"""A worker's part of a mirror load: changelog files → staging tables, in bulk."""

from contextlib import closing
from typing import Any

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.history.stager import VersionStager
from ticdc_replay.targets.history.staging import VersionTask
from ticdc_replay.targets.mirror.stager import Stager
from ticdc_replay.targets.mirror.staging import StagedPiece, StageResult, StageTask
from ticdc_replay.targets.mysql import locks
from ticdc_replay.targets.mysql.bulk import BulkConnection
from ticdc_replay.targets.mysql.dialect import DIALECT
from ticdc_replay.targets.mysql.errors import translated
from ticdc_replay.targets.mysql.server import Server, look
from ticdc_replay.targets.mysql.settings import MysqlSettings
from ticdc_replay.targets.mysql.staging import lock_of, stage_name
from ticdc_replay.targets.mysql.tables import listed

AnyStager = Stager | VersionStager
"""The pieces of a task go to the stager of its kind."""


def stage(task: StageTask) -> StageResult:
    """Put the rows of *task* into their staging tables; all of them, or none that counts. May run twice, even at the same
    time: each run waits for the other to end, and empties its tables first.

    Raises UnrepresentableValueError for a value the target can't hold, if policy stops; TransientError if it is away.
    """
    return _stage(task, Stager(task, DIALECT))


def stage_history(task: VersionTask) -> StageResult:
    """As ``stage``, for the rows of a history."""
    return _stage(task, VersionStager(task, DIALECT))


def _stage(task: StageTask | VersionTask, stager: AnyStager) -> StageResult:
    assert isinstance(task.destination, Connection), "the destination of a load into MySQL"
    settings = MysqlSettings(task.destination)
    doing = f"stage rows (task {task.number})"
    with translated(doing, settings.conn_id), closing(settings.connect_bulk()) as connection:
        server = look(connection)
        stages = sorted({piece.stage for piece in task.pieces})
        for name in stages:
            if not locks.take(connection, lock_of(name)):
                raise TransientError(f"cannot {doing}: another run of the task has been at it for {locks.WAIT_S} s")
        with connection.cursor() as cursor:
            for name in stages:
                # No TRUNCATE, which is seen at once: a run before this one may have ended well.
                cursor.execute(f"DELETE FROM {stage_name(name)}")
        pieces = [_stage_piece(connection, server, stager, piece) for piece in task.pieces]
        connection.commit()
        with connection.cursor() as cursor:
            for name in stages:
                cursor.execute(f"ANALYZE TABLE {stage_name(name)}")
                cursor.fetchall()
    return StageResult(tuple(pieces), stager.close())


def _stage_piece(connection: BulkConnection, server: Server, stager: AnyStager, piece: Any) -> StagedPiece:
    stager.begin()
    for rows in stager.batches(piece):
        connection.load(server, stage_name(piece.stage), listed(rows.schema.names), rows)
    return stager.counted(piece)
