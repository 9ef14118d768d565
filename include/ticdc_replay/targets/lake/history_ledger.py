"""The ledger of a history: which runs each window's slice of a table is of."""

from collections.abc import Collection

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

    def marks_of(self, load: Load) -> list[Mark]:
        """The marks of loads of the same window: their tables are those that a load may have left something of."""
        marks = self._documents.read_now(marks_name(load.index.pipeline, load.index.window), Marks) or {}
        return [mark for of_place in marks.values() for mark in of_place]


def announced(marks: Collection[Mark]) -> set[TableName]:
    """The tables that the loads of *marks* may have left something of."""
    return {table for mark in marks for table in mark.tables}
