"""Divides the files of a load among at most as many workers as the target takes connections."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.last_versions import FoldFile, FoldGroup
from ticdc_replay.targets.postgres.plan import TablePlan
from ticdc_replay.targets.postgres.stage import StageTask
from ticdc_replay.targets.postgres.staged_rows import StageFile, StagePiece

MIN_TASK_BYTES = 4 * 1024 * 1024
"""Below this size of Parquet one more connection costs more than it saves."""


class _Share(msgspec.Struct):
    files: list[tuple[int, FoldFile]]
    bytes: int = 0


def stage_tasks(
    load: Load, connection: Connection, tables: Sequence[tuple[TablePlan, FoldGroup]], writers: int
) -> list[StageTask]:
    """Tasks that stage the last versions of *tables*: the largest files are dealt out first.

    Each task has a staging table of its own for each table it has files of.
    """
    files = [(number, entry) for number, (_, group) in enumerate(tables) for entry in group.files]
    total = sum(entry.file.bytes for _, entry in files)
    shares = [_Share([]) for _ in range(max(1, min(writers, len(files), 1 + total // MIN_TASK_BYTES)))]
    for number, entry in sorted(files, key=lambda pair: (-pair[1].file.bytes, pair[1].file.name)):
        share = min(shares, key=attrgetter("bytes"))
        share.files.append((number, entry))
        share.bytes += entry.file.bytes
    return [
        StageTask(
            number=task,
            connection=connection,
            artifacts=load.artifacts,
            quarantine=f"{load.folder}/quarantine/{task:03d}.parquet" if load.quarantine_values else None,
            pieces=_pieces(load, tables, share, task),
        )
        for task, share in enumerate(shares)
        if share.files
    ]


def _pieces(
    load: Load, tables: Sequence[tuple[TablePlan, FoldGroup]], share: _Share, task: int
) -> tuple[StagePiece, ...]:
    by_version: dict[tuple[int, str], list[FoldFile]] = {}
    for number, entry in sorted(share.files, key=lambda pair: (pair[0], pair[1].number)):
        by_version.setdefault((number, entry.version.version), []).append(entry)
    pieces = []
    for (number, version), entries in by_version.items():
        plan, group = tables[number]
        planned = next(piece for piece in plan.pieces if piece.version.version == version)
        pieces.append(
            StagePiece(
                table=plan.source,
                stage=f"stage_{load.attempt}_{number}_{task}",
                columns=planned.columns,
                handle_key=plan.handle_key,
                lacking=planned.lacking,
                files=tuple(StageFile(f"{load.changelog_root}/{entry.file.name}", entry.number) for entry in entries),
                winners=group.winners,
            )
        )
    return tuple(pieces)
