"""The way back from a deletion in a store that keeps versions: the delete markers that it set are taken away."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import AuthenticationError, PermanentError
from ticdc_replay.reconcile.results import Result, all_results, deletion_folder
from ticdc_replay.storage.base import ObjectStore

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
    """Of those asked for: they have no result, or one without a marker of this deletion."""
    failed: int
    failures: tuple[str, ...]
    """The first of those that failed, and why."""


class Markers:
    """Takes markers away in *store*, which has the right to; counts what came of it."""

    def __init__(self, store: ObjectStore, threads: int) -> None:
        self._store = store
        self._threads = threads
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def remove(self, artifacts: ObjectStore, plan_hash: str, names: frozenset[str] | None) -> None:
        """Undo the deletion of the plan's objects, or of those among them that are called *names*. A repeat does no harm.

        Raises AuthenticationError and TransientError; what concerns one object alone is counted.
        """
        with ThreadPoolExecutor(self._threads, thread_name_prefix="undo") as pool:
            for results in all_results(artifacts, plan_hash):
                wanted = [result for result in results.values() if names is None or result.name in names]
                self.counts["found"] += len(wanted)
                undoable = [result for result in wanted if result.undoable]
                self.counts["not_undoable"] += len(wanted) - len(undoable)
                for outcome in pool.map(self._remove, undoable):
                    self.counts[outcome] += 1

    def _remove(self, result: Result) -> str:
        assert result.marker is not None
        try:
            if not self._store.undelete(result.name, result.marker):
                return "without_marker"
            if self._store.info(result.name) is not None:
                return "restored"
            raise PermanentError("another delete marker hides it still: somebody deleted it, too")
        except AuthenticationError:
            raise
        except PermanentError as error:
            if len(self.failures) < _EXAMPLES:
                self.failures.append(f"{result.name}: {error}")
            return "failed"


def put_undone(artifacts: ObjectStore, undone: Undone) -> str:
    """Put the record *undone*; its name."""
    content = canonical.encode(undone)
    name = f"{deletion_folder(undone.plan_hash)}/undone-{canonical.digest(content)}.json"
    artifacts.put_once(name, content)
    return name


def undos_of(artifacts: ObjectStore, plan_hash: str) -> Iterator[Undone]:
    """The records of all undos of a plan."""
    for info in artifacts.list(f"{deletion_folder(plan_hash)}/undone-"):
        yield msgspec.json.decode(artifacts.get(info.name), type=Undone)
