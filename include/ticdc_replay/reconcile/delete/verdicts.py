"""The verdict of a recheck about each object of a plan."""

from bisect import bisect_left, bisect_right
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan
from ticdc_replay.reconcile.delete.release import RecheckedPlan
from ticdc_replay.reconcile.judge.records import CLASSIFIED_OBJECTS, OBJECTS
from ticdc_replay.reconcile.judge.rules import DELETABLE
from ticdc_replay.storage.base import ObjectStore

_COLUMNS = [*OBJECTS.names, "class", "reason", "protecting", "deletable"]


class Verdicts:
    """The rows of a recheck, sorted by name: about 150 bytes of memory for each object of the plan."""

    def __init__(self, artifacts: ObjectStore, recheck: RecheckedPlan, plan: DeletionPlan) -> None:
        """Read the files of *recheck* below *artifacts*. Raises ArtifactCorruptError where they are not of all of *plan*."""
        filesystem, root = artifacts.arrow_filesystem()
        tables = [CLASSIFIED_OBJECTS.empty_table().select(_COLUMNS)]
        for name in recheck.files:
            tables.append(pq.read_table(f"{root}/{name}", columns=_COLUMNS, filesystem=filesystem, partitioning=None))
        self._evidence = recheck.evidence
        self._rows = pa.concat_tables(tables).sort_by("name").combine_chunks()
        self._names = self._rows["name"]
        distinct = pc.count_distinct(self._names).as_py()
        if distinct != plan.objects or len(self._rows) != distinct:
            raise ArtifactCorruptError(
                f"recheck {recheck.recheck_id}: {distinct} objects in {len(self._rows)} rows, the plan has {plan.objects}: "
                f"check the plan again"
            )

    def withheld(self, planned: pa.Table) -> dict[str, str]:
        """Which of the objects in *planned* (``PLANNED``, sorted by name) must stay, and why.

        Raises ArtifactCorruptError where the recheck is of another object, or contradicts itself.
        """
        names = planned["name"]
        places = range(len(self._names))
        start = bisect_left(places, names[0].as_py(), key=lambda at: self._names[at].as_py())
        end = bisect_right(places, names[-1].as_py(), key=lambda at: self._names[at].as_py())
        found = {row["name"]: row for row in self._rows.slice(start, end - start).to_pylist()}
        result = {}
        for row in planned.select(OBJECTS.names).to_pylist():
            verdict = found.get(row["name"])
            if verdict is None or {name: verdict[name] for name in OBJECTS.names} != row:
                raise ArtifactCorruptError(f"the recheck does not have {row['name']} as it was planned: run it again")
            if not self._deletable(verdict):
                result[row["name"]] = f"{verdict['class']}: {verdict['reason']}"
        return result

    def _deletable(self, verdict: dict[str, Any]) -> bool:
        """The verdict, and once more the facts behind it."""
        return (
            verdict["deletable"]
            and verdict["class"] in DELETABLE
            and verdict["protecting"] == 0
            and self._evidence.complete
            and verdict["last_modified_ms"] <= self._evidence.deletable_before_ms
        )
