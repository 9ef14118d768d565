"""The record of an execution: who released the plan, what it was checked against, and the outcomes of its objects.

An execution that ended has its ``audit.json``; each time that one was stopped before, there is a ``stopped-<sha256>.json``.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan, read_planned
from ticdc_replay.reconcile.delete.results import Outcome, deletion_folder, progress_of, read_results
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document

_TROUBLE = (Outcome.ALTERED, Outcome.DENIED, Outcome.REFUSED)
_EXAMPLES = 100


class AuditedFile(msgspec.Struct, frozen=True, order=True):
    """A file of ``results.RESULTS``, below the store's artefacts."""

    name: str
    sha256: str


class Trouble(msgspec.Struct, frozen=True, order=True):
    """An object that could not be deleted as it was planned."""

    name: str
    outcome: str
    detail: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What allowed an execution, put before its first object. Times are Unix ms."""

    policy: str
    decided_by: str
    """Empty where the policy is automatic and nobody was asked."""
    decided_why: str
    decided_at_ms: int | None
    recheck_id: str
    bounds_ms: int
    """When the recheck read the offsets of Kafka."""
    connection: str | None
    """The id of the connection that the objects were deleted with."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of each of a plan's objects, counted. Times are Unix ms, sizes bytes.

    Where ``status`` is ``executed``, each object has one result.
    """

    format: int = 1
    status: Literal["executed", "stopped"]
    stopped: str
    """Why it was stopped; else empty."""
    library_version: str
    store: str
    uri: str
    plan_hash: str
    execution_id: str
    """The last of the plan's executions, the one that ended."""
    reconciliation_id: str
    made_at_ms: int
    due_at_ms: int
    releases: tuple[Release, ...]
    """What allowed this execution and those of the plan before it; the oldest recheck first."""
    started_at_ms: int
    finished_at_ms: int
    counts: dict[str, int]
    """Objects by outcome (``results.Outcome``)."""
    bytes: dict[str, int]
    untold: int
    """Objects without a result that may have been deleted all the same: an execution had begun with their file of the plan."""
    undoable: int
    """How many of the deleted objects a delete marker hides: ``undo`` brings them back."""
    trouble: tuple[Trouble, ...]
    """The first objects that are still there, or that others removed or replaced."""
    files: tuple[AuditedFile, ...]
    """All results, of all executions of the plan."""


def audit_name(plan_hash: str, execution_id: str) -> str:
    """The name of an audit, below the store's artefacts."""
    return f"{deletion_folder(plan_hash)}/{execution_id}/audit.json"


def put_release(artifacts: ObjectStore, plan_hash: str, release: Release) -> None:
    """Put what allows the execution that begins. A repeat does no harm."""
    put_document(artifacts, f"{deletion_folder(plan_hash)}/{release.recheck_id}/release-", release)


def audit_of(
    artifacts: ObjectStore,
    plan: DeletionPlan,
    execution_id: str,
    *,
    started_at_ms: int,
    finished_at_ms: int,
    stopped: str = "",
) -> Audit:
    """The audit of *plan*, counted from its results; memory holds those of one of its files. *stopped*: why it was, if it was.

    Raises ArtifactCorruptError where one that is not planned has a result, or an object has none although it was not stopped.
    """
    plan_hash = plan.hash
    progress = progress_of(artifacts, plan_hash)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    trouble: list[Trouble] = []
    undoable = untold = 0
    for number in range(len(plan.files)):
        done = progress[number]
        results = read_results(artifacts, done.results)
        planned = set(read_planned(artifacts, plan, number)["name"].to_pylist())
        if done.begun_ms is not None:
            untold += len(planned - results.keys())
        if results.keys() != planned and not (stopped and results.keys() < planned):
            odd = sorted(results.keys() ^ planned)
            raise ArtifactCorruptError(
                f"{artifacts.uri(deletion_folder(plan_hash))}: {len(odd)} objects of file {number} of the plan have no result, "
                f"or results without being planned, such as {odd[0]}"
            )
        for result in results.values():
            counts[result.outcome] += 1
            sizes[result.outcome] += result.size
            undoable += result.undoable
            if result.outcome in _TROUBLE and len(trouble) < _EXAMPLES:
                trouble.append(Trouble(result.name, result.outcome, result.detail))
    names = [name for done in progress.values() for name in done.results]
    files = [AuditedFile(name, canonical.digest(artifacts.get(name))) for name in names]
    return Audit(
        status="stopped" if stopped else "executed",
        stopped=stopped,
        library_version=__version__,
        store=plan.store,
        uri=plan.uri,
        plan_hash=plan_hash,
        execution_id=execution_id,
        reconciliation_id=plan.reconciliation_id,
        made_at_ms=plan.made_at_ms,
        due_at_ms=plan.due_at_ms,
        releases=tuple(_releases(artifacts, plan_hash)),
        started_at_ms=started_at_ms,
        finished_at_ms=finished_at_ms,
        counts=dict(counts),
        bytes=dict(sizes),
        untold=untold,
        undoable=undoable,
        trouble=tuple(sorted(trouble)),
        files=tuple(sorted(files)),
    )


def read_audit(artifacts: ObjectStore, plan_hash: str, execution_id: str) -> Audit:
    """The audit of an execution. Raises ArtifactNotFoundError where there is none: it has not come to its end."""
    return msgspec.json.decode(artifacts.get(audit_name(plan_hash, execution_id)), type=Audit)


def put_stopped(artifacts: ObjectStore, audit: Audit) -> None:
    """Put the record of an execution that was stopped."""
    put_document(artifacts, f"{deletion_folder(audit.plan_hash)}/{audit.execution_id}/stopped-", audit)


def stopped_of(artifacts: ObjectStore, plan_hash: str) -> list[Audit]:
    """The records of the plan's executions that were stopped, the oldest first."""
    found = [msgspec.json.decode(content, type=Audit) for content in _put(artifacts, plan_hash, "stopped")]
    return sorted(found, key=lambda audit: audit.finished_at_ms)


def _releases(artifacts: ObjectStore, plan_hash: str) -> list[Release]:
    found = [msgspec.json.decode(content, type=Release) for content in _put(artifacts, plan_hash, "release")]
    return sorted(found, key=lambda release: (release.bounds_ms, release.recheck_id))


def _put(artifacts: ObjectStore, plan_hash: str, kind: str) -> Iterator[bytes]:
    for info in artifacts.list(f"{deletion_folder(plan_hash)}/"):
        if info.name.rpartition("/")[2].startswith(f"{kind}-"):
            yield artifacts.get(info.name)
