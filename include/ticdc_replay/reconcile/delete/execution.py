"""The execution of a deletion plan: file by file of the plan, each object as it was planned, and a result for each.

Before a file's first object is touched, a note is put; when its last is done, or when something stops the execution, its results
are written. So an attempt that was killed leaves a note without results: the next one does these objects again and knows why some
of them are gone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan, read_planned
from ticdc_replay.reconcile.delete.results import (
    deletion_folder,
    note_begun,
    progress_of,
    read_results,
    result_of,
    write_results,
)
from ticdc_replay.reconcile.delete.verdicts import Verdicts
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import ObjectDeletion, delete_parallel

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_COPY = "it is the last copy of a row whose own object is missing"


class Guards(NamedTuple):
    """Checks during the execution; each raises to stop it."""

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
        progress = progress_of(self._artifacts, self._plan.hash)
        for number, file in enumerate(self._plan.files):
            done = read_results(self._artifacts, progress[number].results)
            if len(done) == file.rows:
                continue
            guards.between()
            planned = read_planned(self._artifacts, self._plan, number)
            left = [row for row in planned.to_pylist() if row["name"] not in done]
            copies = {row["name"]: LAST_COPY for row in left if row["name"] in last_copies}
            kept = copies | verdicts.withheld(planned)
            tried_before = progress[number].begun_ms is not None
            yield self._delete(number, left, kept, tried_before, guards.before_each, threads)

    def _delete(
        self,
        number: int,
        rows: list[dict[str, Any]],
        kept: Mapping[str, str],
        tried_before: bool,
        before_each: Callable[[], None],
        threads: int,
    ) -> int:
        """Delete the objects *rows* of the plan's file *number*, but not those *kept* (name → reason); the number of results."""
        wanted = {row["name"]: row for row in rows if row["name"] not in kept}
        results = [
            result_of(row, kept[row["name"]], tried_before=tried_before, at_ms=_now_ms())
            for row in rows
            if row["name"] in kept
        ]
        if wanted:
            note_begun(self._artifacts, self._folder, number)
        try:
            expected = _expected(wanted.values(), before_each)
            with closing(delete_parallel(self._deletion, expected, threads=threads)) as deletions:
                for info, deletion in deletions:
                    results.append(result_of(wanted[info.name], deletion, tried_before=tried_before, at_ms=_now_ms()))
        finally:
            if results:
                write_results(self._artifacts, self._folder, number, results)
        return len(results)


def _expected(rows: Iterable[dict[str, Any]], before_each: Callable[[], None]) -> Iterator[ObjectInfo]:
    """The objects *rows*, as they were planned."""
    for row in rows:
        before_each()
        modified = _EPOCH + timedelta(milliseconds=row["last_modified_ms"])
        yield ObjectInfo(row["name"], row["size"], row["etag"], modified, row["version_id"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
