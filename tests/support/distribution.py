"""How ``make test`` spreads the tests over its worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

TOGETHER = ("tests/demo/", "tests/airflow/", "tests/spark/")
"""Folders that one worker runs as a whole, for what they start is dear: longest first."""
_ORDER = (
    *TOGETHER,
    "tests/integration/stages/",
    "tests/integration/targets/test_lake_",
    "tests/integration/targets/test_m",  # of mirrors of every kind, and moved columns
    "tests/integration/",
)


class DearFirst(LoadFileScheduling):
    """Gives a worker one file after the other, and what takes long before what is short, so that both end together.

    The fixtures of a module are made once so. Which file comes next is otherwise as pytest-randomly shuffled them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_rank), last=False)
        super()._assign_work_unit(node)


def _rank(scope: str) -> int:
    return next((rank for rank, folder in enumerate(_ORDER) if scope.startswith(folder)), len(_ORDER))
