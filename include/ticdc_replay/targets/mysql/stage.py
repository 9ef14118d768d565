"""A worker's part of a mirror load: changelog files → staging tables, in bulk."""

from contextlib import closing
from typing import Any

import msgspec

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.history.stager import VersionStager
from ticdc_replay.targets.history.staging import VersionTask
from ticdc_replay.targets.mirror import base
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.stager import Stager
from ticdc_replay.targets.mirror.staging import StagedPiece, StageResult, StageTask
from ticdc_replay.targets.mysql import locks
from ticdc_replay.targets.mysql.bulk import BulkConnection
from ticdc_replay.targets.mysql.dialect import DIALECT
from ticdc_replay.targets.mysql.errors import SAME_KEY, Errors, translated
from ticdc_replay.targets.mysql.server import TIDB_ROWS_PER_COMMIT, Server, look
from ticdc_replay.targets.mysql.settings import MysqlSettings
from ticdc_replay.targets.mysql.staging import stage_name
from ticdc_replay.targets.mysql.tables import listed

AnyStager = Stager | VersionStager
"""The pieces of a task go to the stager of its kind."""


def stage(task: StageTask) -> StageResult:
    """Put the rows of *task* into their staging tables; all of them, or none that counts. May run twice, even at the same
    time: each run waits for the other to end, and takes the result that it has noted.

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
        if not locks.take(connection, f"task {task.attempt} {task.number}"):
            raise TransientError(f"cannot {doing}: another run of the task has been at it for {locks.WAIT_S} s")
        connection.commit()  # what a run has noted before its lock was given back is seen
        noted = _noted(connection, task)
        if noted is not None:
            return noted
        if server.is_tidb:
            for name in task.own_stages:
                _empty(connection, name)
        pieces = [_stage_piece(connection, server, stager, piece) for piece in task.pieces]
        result = StageResult(tuple(pieces), stager.close())
        _note(connection, task, result)
        connection.commit()
        with connection.cursor() as cursor:
            for name in task.own_stages:
                cursor.execute(f"ANALYZE TABLE {stage_name(name)}")
                cursor.fetchall()
    return result


def _empty(connection: BulkConnection, name: str) -> None:
    """Delete the parts that a run has committed which did not end well."""
    with connection.cursor() as cursor:
        while cursor.execute(f"DELETE FROM {stage_name(name)} LIMIT {TIDB_ROWS_PER_COMMIT}"):
            connection.commit()


def _noted(connection: BulkConnection, task: StageTask | VersionTask) -> StageResult | None:
    """The result of a run of *task* that ended well."""
    with connection.cursor() as cursor:
        statement = f"SELECT result FROM {LEDGER_SCHEMA}.tasks WHERE attempt = %s AND task = %s"
        cursor.execute(statement, (task.attempt, task.number))
        row = cursor.fetchone()
    return msgspec.json.decode(row[0], type=StageResult) if row is not None else None


def _note(connection: BulkConnection, task: StageTask | VersionTask, result: StageResult) -> None:
    """Raises TransientError where another run has noted a result meanwhile: servers may not share their locks."""
    statement = f"INSERT INTO {LEDGER_SCHEMA}.tasks (attempt, task, result) VALUES (%s, %s, %s)"
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, (task.attempt, task.number, msgspec.json.encode(result).decode()))
    except Errors as error:
        if mysql_protocol.code_and_text(error)[0] != SAME_KEY:
            raise
        raise TransientError(f"another run of task {task.number} has staged its rows meanwhile; try again") from error


def _stage_piece(connection: BulkConnection, server: Server, stager: AnyStager, piece: Any) -> StagedPiece:
    stager.begin()
    try:
        for rows in stager.batches(piece):
            connection.load(server, stage_name(piece.stage), listed(rows.schema.names), rows)
            if server.is_tidb:  # in memory it has room for few; they count when the task's result is noted
                connection.commit()
    except Errors as error:
        if mysql_protocol.code_and_text(error)[0] != SAME_KEY:
            raise
        raise base.repeated_key(piece.fold.table) from error  # other staging tables have no key of rows
    return stager.counted(piece)
