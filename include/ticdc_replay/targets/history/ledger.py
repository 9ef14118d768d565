"""What a history asks of a ledger beside what a mirror does: which runs each window's slice of a table is of."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.mirror.planning.tables import Relation


class SliceLedger(Protocol):
    """A slice is of the runs with a report: one run, and re-drives of its quarantine."""

    def runs_of(self, target: Relation, window: Window) -> dict[str, str | None]:
        """The runs that have loaded *window*, each with the run whose quarantine it re-drives; sorted."""

    def end_runs(self, load: Load, target: Relation, runs: Collection[str]) -> None:
        """Let the slice of the load's window be of none of *runs* any more, at once or with what is written next."""

    def left_by_loads(
        self, load: Load, histories: Mapping[TableName, Relation], began: Sequence[Mark]
    ) -> set[TableName]:
        """Those of *histories*, by table of the upstream, of which loads of the window of *load* may have left rows, or
        still may: *began* are the marks of the window from before the load's own."""
