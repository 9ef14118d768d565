"""What workers stage of a load: its files, divided among those that run at the same time, at most one for each connection."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Load, StoreAddress
from ticdc_replay.targets.last_versions import FoldFile, FoldGroup
from ticdc_replay.targets.mirror.planning.staged_rows import StageColumn, StagePiece
from ticdc_replay.targets.mirror.planning.table_plan import PlannedPiece, TablePlan

MIN_TASK_BYTES = 4 * 1024 * 1024
"""Below this size of Parquet one more connection costs more than it saves."""

Table = tuple[TablePlan, FoldGroup]


class StageTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker stages, all or nothing, in tables of its own, or in one of all that becomes the mirror (``direct``)."""

    units: ClassVar[str] = "files"

    attempt: str
    """Of the load. Each run notes its result under attempt and ``number``, in one transaction with its rows: where one has ended
    well, a second run takes its result and touches no rows."""
    number: int
    destination: object
    """What the mirror's ``stage`` writes to, such as a connection. Holds secrets: never written to an artefact."""
    artifacts: StoreAddress
    quarantine: str | None
    """Name, below the artefacts, of the file for rows that the target can't hold; None where such a row stops the load."""
    pieces: tuple[StagePiece, ...]
    whole: bool = False
    """Whether a delete is staged with all that its event has of the row."""

    @property
    def own_stages(self) -> list[str]:
        """The staging tables that no other task fills."""
        return sorted({piece.stage for piece in self.pieces if piece.version_column is None})

    @property
    def size(self) -> int:
        """How many files it reads."""
        return sum(len(piece.numbers) for piece in self.pieces)


class StagedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The last versions in one piece: how many were staged, and set aside."""

    table: TableName
    staged: int
    quarantined: int


class StageResult(msgspec.Struct, frozen=True):
    """What one worker did. ``quarantine`` is None where no row was set aside."""

    pieces: tuple[StagedPiece, ...]
    quarantine: str | None


class Staged(msgspec.Struct, frozen=True):
    """What workers left for one table: the last version of each key, once. Timestamps are TSO."""

    stages: tuple[str, ...]
    """Staging tables; none where the window has no rows of the table, only DDL."""
    is_direct: bool
    """Whether the one staging table is what becomes the mirror (``direct``)."""
    events: int
    keys: int
    quarantined: int
    quarantine_files: tuple[str, ...]
    first_ts: int
    last_ts: int


class _Unit(msgspec.Struct, frozen=True):
    """Files of one table that stay together: all of a table that fits into a fair share, else a single one."""

    table: int
    files: tuple[FoldFile, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.file.bytes for entry in self.files)


def stage_tasks(load: Load, destination: object, tables: Sequence[Table], writers: int) -> list[StageTask]:
    """Tasks that stage the last versions of *tables*, the largest units first, each in its own staging tables."""
    files = [entry for _, group in tables for entry in group.files]
    total = sum(entry.file.bytes for entry in files)
    count = max(1, min(writers, load.parallelism, len(files), 1 + total // MIN_TASK_BYTES))
    shares: list[list[_Unit]] = [[] for _ in range(count)]
    sizes = [0] * count
    for unit in sorted(
        _units(tables, total // count), key=lambda unit: (-unit.bytes, unit.table, unit.files[0].number)
    ):
        smallest = min(range(count), key=sizes.__getitem__)
        shares[smallest].append(unit)
        sizes[smallest] += unit.bytes
    return [
        StageTask(
            attempt=load.attempt,
            number=number,
            destination=destination,
            artifacts=load.artifacts,
            quarantine=f"{load.folder}/quarantine/{number:03d}.parquet" if load.quarantine_values else None,
            pieces=_pieces(load, tables, share, number),
            whole=any(plan.deleted_column is not None for plan, _ in tables),
        )
        for number, share in enumerate(shares)
        if share
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


def _pieces(load: Load, tables: Sequence[Table], share: Sequence[_Unit], task: int) -> tuple[StagePiece, ...]:
    by_version: dict[tuple[int, str], list[int]] = {}
    for unit in sorted(share, key=lambda unit: (unit.table, unit.files[0].number)):
        for entry in unit.files:
            by_version.setdefault((unit.table, entry.version.version), []).append(entry.number)
    pieces = []
    for (number, version), numbers in by_version.items():
        plan, group = tables[number]
        planned = next(piece for piece in plan.pieces if piece.version.version == version)
        is_direct = group.fold.takes_all
        pieces.append(
            StagePiece(
                stage=f"stage_{load.attempt}_{number}" if is_direct else f"stage_{load.attempt}_{number}_{task}",
                version=version,
                columns=direct_columns(plan, planned) if is_direct else planned.columns,
                fold=group.fold,
                numbers=tuple(numbers),
                lacking=planned.lacking,
                version_column=plan.version_column if is_direct else None,
            )
        )
    return tuple(pieces)


def direct_columns(plan: TablePlan, planned: PlannedPiece) -> tuple[StageColumn, ...]:
    """The columns of *planned*, staged under their names in the mirror."""
    names = {column.staged: column.target for column in plan.columns}
    return tuple(msgspec.structs.replace(column, staged=names[column.staged]) for column in planned.columns)


def stages_of(plan: TablePlan, tasks: Sequence[StageTask]) -> list[str]:
    """The staging tables of one table: one for each task that has rows of it."""
    return sorted({piece.stage for task in tasks for piece in task.pieces if piece.fold.table == plan.source})


def staged_by(load: Load, plan: TablePlan, tasks: Sequence[StageTask], results: Sequence[StageResult]) -> Staged:
    pieces = [piece for result in results for piece in result.pieces if piece.table == plan.source]
    aside = [result for result in results if any(p.quarantined for p in result.pieces if p.table == plan.source)]
    files = [file for version in plan.versions for file in version.files]
    extents = [load.index.extent_of(version) for version in plan.versions]
    return Staged(
        stages=tuple(stages_of(plan, tasks)),
        is_direct=any(
            piece.version_column is not None
            for task in tasks
            for piece in task.pieces
            if piece.fold.table == plan.source
        ),
        events=sum(file.rows for file in files) + plan.below_floor,
        keys=sum(piece.staged for piece in pieces),
        quarantined=sum(piece.quarantined for piece in pieces),
        quarantine_files=tuple(result.quarantine for result in aside if result.quarantine is not None),
        first_ts=min((first for first, _ in extents), default=0),
        last_ts=max((last for _, last in extents), default=0),
    )
