"""The ledger of a history: which runs each window's slice of a table is of."""

from collections.abc import Collection, Mapping, Sequence

from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.lake.documents import Marks, marks_name, report_name
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.mirror.planning.tables import Relation


class HistoryLedger(LakeLedger):
    """The same documents. A slice is of the runs with a report: one run, and re-drives of its quarantine."""

    def end_runs(self, load: Load, target: Relation, runs: Collection[str]) -> None:
        """Let the slice of the load's window be of none of *runs* any more, at once."""
        for run in runs:
            self._documents.delete(report_name(target, load.index.window, run))

    def left_by_loads(
        self, load: Load, histories: Mapping[TableName, Relation], began: Sequence[Mark]
    ) -> set[TableName]:
        """Those that the marks of loads of the same window name."""
        marks = self._documents.read_now(marks_name(load.index.pipeline, load.index.window), Marks) or {}
        return {table for of_place in marks.values() for mark in of_place for table in mark.tables} & histories.keys()
