"""The execution of a deletion plan: file by file of the plan, each object as it was planned, and a result for each.

Before a file's first object is touched, a note says that it begins; when its last is done, or when something stops the
execution, its results are written. So an attempt that was killed leaves a note without results: the next one does these objects
again and knows why some of them are gone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan, read_planned
from ticdc_replay.reconcile.delete.results import (
    Result,
    deletion_folder,
    files_of,
    note_begun,
    read_results,
    result_of,
    withheld,
    write_results,
)
from ticdc_replay.reconcile.delete.verdicts import Verdicts
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import Deletion, ObjectDeletion, delete_parallel

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_COPY = "a row whose own object is missing can still be had from it"


class Guards(NamedTuple):
    """What is asked on the way; each raises to stop the execution."""

    between: Callable[[], None]
    """Before each file of the plan."""
    before_each: Callable[[], None]
    """Directly before each object, so it must be fast."""


class Execution:
    """One attempt to execute *plan*. *deletion* has the right to delete; *execution_id* names the folder of its results."""

    def __init__(self, artifacts: ObjectStore, deletion: ObjectDeletion, plan: DeletionPlan, execution_id: str) -> None:
        self._artifacts = artifacts
        self._deletion = deletion
        self._plan = plan
        self._folder = f"{deletion_folder(plan.hash)}/{execution_id}"

    def run(self, verdicts: Verdicts, last_copies: frozenset[str], guards: Guards, threads: int) -> Iterator[int]:
        """Delete what has no result yet, is deletable by *verdicts* and is not among *last_copies*, by *threads* requests at a
        time.

        Gives the number of new results after each file of the plan. Raises what the guards and the store raise, when the results
        of all that was begun are written, and ArtifactCorruptError where a file of the plan was changed.
        """
        left = files_of(self._artifacts, self._plan.hash)
        begun = {file.number for file in left if file.begun}
        for number, file in enumerate(self._plan.files):
            done = read_results(
                self._artifacts, [each.name for each in left if each.number == number and not each.begun]
            )
            if len(done) == file.rows:
                continue
            guards.between()
            planned = read_planned(self._artifacts, self._plan, number)
            kept = verdicts.withheld(planned)
            batch = _Batch(number in begun)
            for row in planned.to_pylist():
                name = row["name"]
                if name in done:
                    continue
                if name in kept:
                    batch.withhold(row, kept[name])
                elif name in last_copies:
                    batch.withhold(row, LAST_COPY)
                else:
                    batch.wanted[name] = row
            yield self._delete(number, batch, guards.before_each, threads)

    def _delete(self, number: int, batch: "_Batch", before_each: Callable[[], None], threads: int) -> int:
        if batch.wanted:
            note_begun(self._artifacts, self._folder, number)
        try:
            with closing(delete_parallel(self._deletion, batch.expected(before_each), threads=threads)) as deletions:
                for info, deletion in deletions:
                    batch.add(batch.wanted[info.name], deletion)
        finally:
            if batch.results:
                write_results(self._artifacts, self._folder, number, batch.results)
        return len(batch.results)


class _Batch:
    """The objects of one file of the plan that have no result yet."""

    def __init__(self, tried_before: bool) -> None:
        self.wanted: dict[str, dict[str, Any]] = {}
        self.results: list[Result] = []
        self._tried_before = tried_before

    def withhold(self, row: dict[str, Any], why: str) -> None:
        self.results.append(withheld(row, why, tried_before=self._tried_before, at_ms=_now_ms()))

    def add(self, row: dict[str, Any], deletion: Deletion) -> None:
        self.results.append(result_of(row, deletion, tried_before=self._tried_before, at_ms=_now_ms()))

    def expected(self, before_each: Callable[[], None]) -> Iterator[ObjectInfo]:
        """The objects that are wanted, as they were planned."""
        for row in self.wanted.values():
            before_each()
            modified = _EPOCH + timedelta(milliseconds=row["last_modified_ms"])
            yield ObjectInfo(row["name"], row["size"], row["etag"], modified, row["version_id"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
