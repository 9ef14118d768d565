"""Undoing a deletion in a store that keeps versions: its delete markers are removed."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ticdc_replay.domain.errors import AuthenticationError, PermanentError
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan, read_planned
from ticdc_replay.reconcile.delete.results import Outcome, Result, deletion_folder, epoch_ms, progress_of, read_results
from ticdc_replay.storage.base import NO_VERSION, ObjectStore
from ticdc_replay.storage.deletion import DeleteMarker
from ticdc_replay.storage.documents import put_document, read_documents

_EXAMPLES = 100


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an undo: ``deletions/<plan_hash>/undone-<sha256>.json``. Times are Unix ms."""

    format: int = 1
    store: str
    uri: str
    plan_hash: str
    person: str
    why: str
    at_ms: int
    names: tuple[str, ...] | None
    """The objects that were asked for; None: all of the plan."""
    restored: int
    without_marker: int
    """Deleted, but the marker was gone already: it was undone before, or somebody else removed it."""
    not_undoable: int
    """Named objects without a result, or with one that has no marker of this deletion."""
    failed: int
    failures: tuple[str, ...]
    """The first of those that failed, and why."""


class Markers:
    """Removes markers in *store*, which has the right to, and counts the outcomes. Clocks differ by *skew_ms* at most."""

    def __init__(self, store: ObjectStore, threads: int, skew_ms: int) -> None:
        self._store = store
        self._deletion = store.deletion()
        self._threads = threads
        self._skew_ms = skew_ms
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def remove(self, artifacts: ObjectStore, plan: DeletionPlan, names: frozenset[str] | None) -> None:
        """Undo the deletion of the plan's objects, or of those among them that are called *names*. A repeat does no harm.

        An attempt that was killed may have deleted objects without a result: those that are hidden since it began with their file
        of the plan come back, too. Raises AuthenticationError, TransientError, and ArtifactCorruptError where a file of the plan
        that has such objects was changed; what concerns one object alone is counted.
        """
        progress = sorted(progress_of(artifacts, plan.hash).items())
        with ThreadPoolExecutor(self._threads, thread_name_prefix="undo") as pool:
            for _number, file in progress:
                results = read_results(artifacts, file.results).values()
                wanted = [result for result in results if names is None or result.name in names]
                self._count(pool.map(lambda result, since=file.begun_ms: self._undo(result, since), wanted))
            for number, file in progress:
                known = read_results(artifacts, file.results)
                if file.begun_ms is None or len(known) == plan.files[number].rows:
                    continue
                rows = (
                    read_planned(artifacts, plan, number).select(["name", "version_id", "last_modified_ms"]).to_pylist()
                )
                left = [row for row in rows if row["name"] not in known and (names is None or row["name"] in names)]
                self._count(pool.map(lambda row, since=file.begun_ms: self._settle(row, since), left))

    def _count(self, outcomes: Iterable[str | None]) -> None:
        for outcome in outcomes:
            if outcome is not None:
                self.counts["found"] += 1
                self.counts[outcome] += 1

    def _undo(self, result: Result, since_ms: int | None) -> str:
        """Remove the marker of *result*; the outcome."""
        if not result.undoable or result.marker is None:
            return "not_undoable"
        if result.outcome == Outcome.DELETED:
            return self._remove(result.name, result.marker)
        # Nobody knows who set this marker: it counts as ours if it was set while attempts were at it.
        found = self._deletion.marker_of(result.name)
        if found is None or found.marker != result.marker:
            return "without_marker"
        if since_ms is None or not self._set_within(found, result.last_modified_ms, since_ms, result.at_ms):
            return "not_undoable"
        return self._remove(result.name, result.marker)

    def _settle(self, row: dict[str, Any], since_ms: int) -> str | None:
        """Bring the planned object of *row* back if it is hidden since; the outcome, None where nothing was to be done."""
        name = row["name"]
        found = self._deletion.marker_of(name)
        if found is None or not self._set_within(found, row["last_modified_ms"], since_ms, None):
            return None
        if found.marker == NO_VERSION and row["version_id"] in (None, NO_VERSION):
            return "not_undoable"  # the marker took the place of the only version
        return self._remove(name, found.marker)

    def _set_within(self, marker: DeleteMarker, modified_ms: int, since_ms: int, until_ms: int | None) -> bool:
        """Whether *marker*, which hides an object of *modified_ms*, was set then, as far as clocks and the store show."""
        set_ms = epoch_ms(marker.set_at)
        if set_ms // 1000 <= modified_ms // 1000:
            return True  # some servers give a marker the time of what it hides; that was there when the plan was made
        begun = (since_ms - self._skew_ms) // 1000 * 1000 <= set_ms
        return begun and (until_ms is None or set_ms <= until_ms + self._skew_ms)

    def _remove(self, name: str, marker: str) -> str:
        try:
            if not self._deletion.undelete(name, marker):
                return "without_marker"
            if self._store.info(name) is not None:
                return "restored"
            raise PermanentError("another delete marker hides it still: somebody deleted it, too")
        except AuthenticationError:
            raise
        except PermanentError as error:
            if len(self.failures) < _EXAMPLES:
                self.failures.append(f"{name}: {error}")
            return "failed"


def put_undone(artifacts: ObjectStore, undone: Undone) -> str:
    """Put the record *undone*; its name."""
    return put_document(artifacts, f"{deletion_folder(undone.plan_hash)}/undone-", undone)


def undos_of(artifacts: ObjectStore, plan_hash: str) -> list[Undone]:
    """The records of all undos of a plan, the earliest first."""
    undos = read_documents(artifacts, f"{deletion_folder(plan_hash)}/undone-", Undone)
    return sorted(undos, key=lambda undone: undone.at_ms)
