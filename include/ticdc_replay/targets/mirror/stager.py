"""What every worker does that stages rows, whatever the database: changelog files → batches for staging tables, and the rows
that the target can't hold into quarantine."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.parts import batch_rows
from ticdc_replay.domain.errors import UnrepresentableValueError
from ticdc_replay.domain.progress import report_done
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.last_versions import LastVersions, winning_rows
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.staged_rows import (
    StagePiece,
    columns_to_read,
    in_order_of_key,
    stage_rows,
    stage_schema,
)
from ticdc_replay.targets.mirror.staging import StagedPiece, StageTask
from ticdc_replay.targets.refused_rows import Refused, ValueQuarantine, describe

Place = Callable[[pa.RecordBatch], list[Refused]]
"""Brings rows to the database itself; returns those without room, by their position."""


class Stager:
    """The rows of one task, once."""

    def __init__(self, task: StageTask, dialect: Dialect, *, check_json: bool = False) -> None:
        self._dialect = dialect
        self._check_json = check_json
        self._whole = task.whole
        self._filesystem, self._root = task.artifacts.open().arrow_filesystem()
        self._last_versions = LastVersions(self._filesystem, self._root)
        name = task.quarantine
        self._quarantine = None if name is None else ValueQuarantine(self._filesystem, self._root, name)
        self._files = 0
        self._staged = 0
        self._quarantined = 0

    def begin(self) -> None:
        """Begin to count the rows of a piece."""
        self._staged, self._quarantined = 0, 0

    def counted(self, piece: StagePiece) -> StagedPiece:
        """What became of the rows of *piece*."""
        return StagedPiece(table=piece.fold.table, staged=self._staged, quarantined=self._quarantined)

    def close(self) -> str | None:
        """Write the quarantine; its name below the artefacts, None where no row was set aside."""
        return self._quarantine.close() if self._quarantine is not None else None

    def layout(self, piece: StagePiece) -> pa.Schema:
        """The layout of what ``batches`` gives."""
        return stage_schema(piece, self._dialect)

    def looked_up(self, piece: StagePiece) -> list[str]:
        """The columns that statements find staged rows by."""
        return [column.staged for column in piece.columns if column.is_key]

    def batches(self, piece: StagePiece, place: Place | None = None) -> Iterator[pa.RecordBatch]:
        """The last versions of *piece* in the layout of ``stage_schema``; where *place* is given, what it has placed.

        Raises UnrepresentableValueError for a value that the target can't hold, if policy stops.
        """
        for number in piece.numbers:
            name = piece.fold.files[number]
            with file_errors(f"read {name}"):
                yield from self._file_batches(piece, number, name, place)
            self._files += 1
            report_done(self._files)

    def _file_batches(self, piece: StagePiece, number: int, name: str, place: Place | None) -> Iterator[pa.RecordBatch]:
        positions = None if piece.fold.takes_all else self._last_versions.positions(piece.fold, number)
        if positions is not None and len(positions) == 0:
            return
        with pq.ParquetFile(f"{self._root}/{name}", filesystem=self._filesystem) as file:
            if positions is None:
                positions = np.arange(file.metadata.num_rows)
            columns = columns_to_read(piece, whole=self._whole)
            for batch in winning_rows(file, positions, batch_rows(file.metadata), columns):
                batch = in_order_of_key(batch, piece)
                rows, refused = stage_rows(batch, piece, self._dialect, self._check_json, whole=self._whole)
                wide = [] if place is None else place(rows)
                if wide:
                    out = {entry.position for entry in refused}
                    kept = [at for at in range(batch.num_rows) if at not in out]
                    refused += [Refused(kept[each.position], each.column, each.reason) for each in wide]
                if refused:
                    self._set_aside(piece, name, batch, refused)
                self._staged += rows.num_rows - len(wide)
                yield rows

    def _set_aside(self, piece: StagePiece, file: str, batch: pa.RecordBatch, refused: list[Refused]) -> None:
        if self._quarantine is None:
            raise UnrepresentableValueError(
                f"{describe(piece.fold.table, piece.fold.handle_key, batch, refused)}\n{way_on(self._dialect)}"
            )
        self._quarantined += len({entry.position for entry in refused})
        self._quarantine.add(piece.fold.table, piece.fold.handle_key, file, batch, refused)


def way_on(dialect: Dialect) -> str:
    """What a person does about a value that the database of *dialect* can't hold."""
    return (
        f"{dialect.database} can't hold these values unaltered. Correct the rows upstream and replay from there, leave the table "
        "out, or set policies.target_value to quarantine"
    )
