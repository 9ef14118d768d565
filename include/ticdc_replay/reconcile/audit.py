"""The record of an execution: who released the plan, what it was checked against, and what became of the objects."""

from collections import Counter

import msgspec

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactCorruptError
from ticdc_replay.reconcile.plan import DeletionPlan, read_planned
from ticdc_replay.reconcile.results import Outcome, Result, deletion_folder, files_of, read_results
from ticdc_replay.storage.base import ObjectStore

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
    """What allowed the execution. Times are Unix ms."""

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
    """A plan that was executed to its end: each of its objects has one result. Times are Unix ms, sizes bytes."""

    format: int = 1
    library_version: str
    store: str
    uri: str
    plan_hash: str
    execution_id: str
    """The last of the plan's executions, the one that ended."""
    reconciliation_id: str
    made_at_ms: int
    due_at_ms: int
    release: Release
    started_at_ms: int
    finished_at_ms: int
    counts: dict[str, int]
    """Objects by outcome (``results.Outcome``)."""
    bytes: dict[str, int]
    undoable: int
    """How many of the deleted objects a delete marker hides: ``undo`` brings them back."""
    trouble: tuple[Trouble, ...]
    """The first objects that are still there, or that others removed or replaced."""
    files: tuple[AuditedFile, ...]
    """All results, of all executions of the plan."""


def audit_name(plan_hash: str, execution_id: str) -> str:
    """The name of an audit, below the store's artefacts."""
    return f"{deletion_folder(plan_hash)}/{execution_id}/audit.json"


def audit_of(
    artifacts: ObjectStore, plan: DeletionPlan, release: Release, *, started_at_ms: int, finished_at_ms: int
) -> Audit:
    """The audit of *plan*, counted from its results; memory holds those of one of its files.

    Raises ArtifactCorruptError where an object has no result, or one that is not planned has.
    """
    plan_hash = plan.hash
    names: dict[int, list[str]] = {}
    for file in files_of(artifacts, plan_hash):
        if not file.begun:
            names.setdefault(file.number, []).append(file.name)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    trouble: list[Trouble] = []
    undoable = 0
    for number in range(len(plan.files)):
        results = read_results(artifacts, names.get(number, []))
        planned = read_planned(artifacts, plan, number)["name"].to_pylist()
        if results.keys() != set(planned):
            odd = sorted(results.keys() ^ set(planned))
            raise ArtifactCorruptError(
                f"{artifacts.uri(deletion_folder(plan_hash))}: {len(odd)} objects of file {number} of the plan have no result, "
                f"or results without being planned, such as {odd[0]}"
            )
        for result in results.values():
            counts[result.outcome] += 1
            sizes[result.outcome] += result.size
            undoable += result.undoable
        trouble += [_trouble(found) for found in results.values() if found.outcome in _TROUBLE][
            : _EXAMPLES - len(trouble)
        ]
    files = [AuditedFile(name, canonical.digest(artifacts.get(name))) for group in names.values() for name in group]
    return Audit(
        library_version=__version__,
        store=plan.store,
        uri=plan.uri,
        plan_hash=plan_hash,
        execution_id=release.recheck_id,
        reconciliation_id=plan.reconciliation_id,
        made_at_ms=plan.made_at_ms,
        due_at_ms=plan.due_at_ms,
        release=release,
        started_at_ms=started_at_ms,
        finished_at_ms=finished_at_ms,
        counts=dict(counts),
        bytes=dict(sizes),
        undoable=undoable,
        trouble=tuple(sorted(trouble)),
        files=tuple(sorted(files)),
    )


def read_audit(artifacts: ObjectStore, plan_hash: str, execution_id: str) -> Audit:
    """The audit of an execution. Raises ArtifactNotFoundError where there is none: it has not come to its end."""
    return msgspec.json.decode(artifacts.get(audit_name(plan_hash, execution_id)), type=Audit)


def _trouble(result: Result) -> Trouble:
    return Trouble(result.name, result.outcome, result.detail)
