"""Divides the files of a load among at most as many workers as the target takes connections."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ticdc_replay.changelog.index import DataFile
from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.postgres.plan import PlannedPiece, TablePlan
from ticdc_replay.targets.postgres.stage import StageTask
from ticdc_replay.targets.postgres.staged_rows import StagePiece

MIN_TASK_BYTES = 4 * 1024 * 1024
"""Below this size of Parquet one more connection costs more than it saves."""


class _Share(msgspec.Struct):
    files: list[tuple[int, DataFile]]
    bytes: int = 0


def stage_tasks(
    load: Load, connection: Connection, tables: Sequence[tuple[TablePlan, str]], writers: int
) -> list[StageTask]:
    """Tasks that stage the files of *tables* (each with its staging table): the largest files are dealt out first."""
    pieces = [(plan, stage, piece) for plan, stage in tables for piece in plan.pieces]
    files = [(number, file) for number, (_, _, piece) in enumerate(pieces) for file in piece.version.files]
    total = sum(file.bytes for _, file in files)
    shares = [_Share([]) for _ in range(max(1, min(writers, len(files), 1 + total // MIN_TASK_BYTES)))]
    for number, file in sorted(files, key=lambda entry: (-entry[1].bytes, entry[1].name)):
        share = min(shares, key=attrgetter("bytes"))
        share.files.append((number, file))
        share.bytes += file.bytes
    tasks = []
    for task_number, share in enumerate(shares):
        by_piece: dict[int, list[str]] = {}
        for number, file in sorted(share.files, key=lambda entry: (entry[0], entry[1].name)):
            by_piece.setdefault(number, []).append(f"{file.name}")
        if by_piece:
            tasks.append(
                StageTask(
                    number=task_number,
                    connection=connection,
                    artifacts=load.artifacts,
                    changelog_root=load.changelog_root,
                    quarantine=f"{load.folder}/quarantine/{task_number:03d}.parquet"
                    if load.quarantine_values
                    else None,
                    pieces=tuple(_piece(*pieces[number], names) for number, names in by_piece.items()),
                )
            )
    return tasks


def _piece(plan: TablePlan, stage: str, piece: PlannedPiece, files: list[str]) -> StagePiece:
    return StagePiece(
        table=plan.source,
        stage=stage,
        columns=piece.columns,
        handle_key=plan.handle_key,
        lacking=piece.lacking,
        files=tuple(files),
    )
