"""Divides the files of a load among the workers that run at the same time, at most one for each connection."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.last_versions import FoldFile, FoldGroup
from ticdc_replay.targets.postgres.plan import TablePlan
from ticdc_replay.targets.postgres.stage import StageTask
from ticdc_replay.targets.postgres.staged_rows import StagePiece

MIN_TASK_BYTES = 4 * 1024 * 1024
"""Below this size of Parquet one more connection costs more than it saves."""

Table = tuple[TablePlan, FoldGroup]


class _Unit(msgspec.Struct, frozen=True):
    """Files of one table that stay together: all of a table that fits into a fair share, else a single one."""

    table: int
    files: tuple[FoldFile, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.file.bytes for entry in self.files)


class _Share(msgspec.Struct):
    units: list[_Unit]
    bytes: int = 0


def stage_tasks(load: Load, connection: Connection, tables: Sequence[Table], writers: int) -> list[StageTask]:
    """Tasks that stage the last versions of *tables*: the largest units are dealt out first.

    Each task has a staging table of its own for each table it has files of.
    """
    files = [entry for _, group in tables for entry in group.files]
    total = sum(entry.file.bytes for entry in files)
    count = max(1, min(writers, load.parallelism, len(files), 1 + total // MIN_TASK_BYTES))
    shares = [_Share([]) for _ in range(count)]
    for unit in sorted(
        _units(tables, total // count), key=lambda unit: (-unit.bytes, unit.table, unit.files[0].number)
    ):
        share = min(shares, key=attrgetter("bytes"))
        share.units.append(unit)
        share.bytes += unit.bytes
    return [
        StageTask(
            number=number,
            connection=connection,
            artifacts=load.artifacts,
            quarantine=f"{load.folder}/quarantine/{number:03d}.parquet" if load.quarantine_values else None,
            pieces=_pieces(load, tables, share, number),
        )
        for number, share in enumerate(shares)
        if share.units
    ]


def _units(tables: Sequence[Table], fair_share: int) -> list[_Unit]:
    units = []
    for number, (_, group) in enumerate(tables):
        together = _Unit(number, group.files)
        if together.bytes <= fair_share:
            units.append(together)
        else:
            units += [_Unit(number, (entry,)) for entry in group.files]
    return units


def _pieces(load: Load, tables: Sequence[Table], share: _Share, task: int) -> tuple[StagePiece, ...]:
    by_version: dict[tuple[int, str], list[int]] = {}
    for unit in sorted(share.units, key=lambda unit: (unit.table, unit.files[0].number)):
        for entry in unit.files:
            by_version.setdefault((unit.table, entry.version.version), []).append(entry.number)
    pieces = []
    for (number, version), numbers in by_version.items():
        plan, group = tables[number]
        planned = next(piece for piece in plan.pieces if piece.version.version == version)
        pieces.append(
            StagePiece(
                stage=f"stage_{load.attempt}_{number}_{task}",
                columns=planned.columns,
                fold=group.fold,
                numbers=tuple(numbers),
                lacking=planned.lacking,
            )
        )
    return tuple(pieces)
