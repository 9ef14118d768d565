"""Deletion plans of a store: made, looked at, decided about, executed, undone."""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import pyarrow as pa

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    PolicyStopError,
    TicdcReplayError,
)
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.reconcile.delete.audit import (
    Audit,
    Release,
    audit_name,
    audit_of,
    put_release,
    put_stopped,
    read_audit,
)
from ticdc_replay.reconcile.delete.contents import PlannedGroup, PlannedObject, plan_contents
from ticdc_replay.reconcile.delete.decisions import put_decision
from ticdc_replay.reconcile.delete.execution import Execution, Guards
from ticdc_replay.reconcile.delete.release import PLANNING_MAX_AGE_MS, due_ms, objections
from ticdc_replay.reconcile.delete.results import Outcome, all_results, progress_of
from ticdc_replay.reconcile.delete.undo import Markers, Undone, put_undone
from ticdc_replay.reconcile.delete.verdicts import Verdicts
from ticdc_replay.reconcile.judge.classified import read_classified, reconciliation_folder
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.stages.leases import holding_store
from ticdc_replay.state.deletion_plans import DeletionExecution, DeletionPlanRecord
from ticdc_replay.storage import open_store
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.deletion_guards import EverySoOften, now_ms, require_no_new_reader, require_release
from ticdc_replay.store_stages.judged import (
    evidence_of,
    known_plan,
    known_plans,
    last_copies,
    newest_last_copies,
    read_recheck,
)

_HOUR_MS = 3_600_000
_THREADS = 16


class PlanDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as a person sees it who decides about it."""

    store: str
    uri: str
    record: DeletionPlanRecord
    reconciliation_id: str
    due_at_ms: int
    """Not executed before, by the rules of now: the grace period, and what clocks may differ by."""
    groups: tuple[PlannedGroup, ...]
    first: tuple[PlannedObject, ...]
    objections: tuple[str, ...]
    """Why it would not be executed now, beside what a recheck may find."""


def make_plan(context: StoreContext, reconciliation_id: str) -> DeletionPlanRecord | None:
    """Plan to delete what the reconciliation found deletable: at most ``max_objects_per_run``, the oldest first.

    None where the policy is never, or nothing is left to plan: objects in another plan that is open or approved are
    not planned again, nor those that deletions removed since they were listed; and those that hold a row whose own object is
    missing stay. A reconciliation has one plan: a repeat returns it, whatever people decided since. The grace period begins when
    the plan is made, not when the reconciliation was.

    Raises PolicyStopError where the reconciliation could not show that nothing refers to what it found, is old or not the newest,
    or the owners of the store are not complete; ArtifactCorruptError where its files contradict themselves.
    """
    store, artifacts = context.store, context.artifacts
    if store.deletion.policy == "never":
        return None
    known = _plan_of(context, reconciliation_id)
    if known is not None:
        return known
    found = read_classified(artifacts, reconciliation_folder(reconciliation_id))
    evidence = evidence_of(context, found)
    obstacles = [*evidence.obstacles(), *_outdated(context, reconciliation_id, evidence)]
    if not context.loaded.owners_complete:
        obstacles.append(
            "owners_complete of the store is not true, or a pipeline file can't be loaded, whose changefeed may write to it"
        )
    if (found.store, found.plan_hash) != (store.name, None):
        obstacles.append(f"it is not a reconciliation of store {store.name}")
    if obstacles:
        raise PolicyStopError(f"nothing of reconciliation {reconciliation_id} is planned: {'; '.join(obstacles)}")
    waiting = [
        plan
        for record in known_plans(context)
        if record.status in ("open", "approved")
        and (plan := plans.read_plan(artifacts, record.plan_hash)).reconciliation_id != reconciliation_id
    ]
    kept = [last_copies(context, found), plans.names_in(artifacts, waiting), _deleted_since(context, evidence)]
    objects = plans.oldest_deletable(
        artifacts,
        [file.name for file in found.objects],
        evidence,
        store.deletion.max_objects_per_run,
        pa.concat_arrays(kept),
    )
    if not len(objects):
        return None
    made_at_ms = now_ms()
    plan = plans.write_plan(
        artifacts,
        objects,
        store=store.name,
        uri=store.uri,
        reconciliation_id=reconciliation_id,
        bounds_ms=evidence.bounds_ms,
        made_at_ms=made_at_ms,
        due_at_ms=made_at_ms + store.deletion.grace_hours * _HOUR_MS,
    )
    record = DeletionPlanRecord(
        store=store.name,
        plan_hash=plan.hash,
        name=plans.plan_name(plan.hash),
        made_at_ms=plan.made_at_ms,
        due_at_ms=plan.due_at_ms,
        objects=plan.objects,
        bytes=plan.bytes,
        reconciliation_id=reconciliation_id,
        policy=store.deletion.policy,
    )
    context.state.deletion_plans.record(record)
    return _plan_of(context, reconciliation_id)


def choose_plan(context: StoreContext, plan_hash: str | None = None) -> DeletionPlanRecord | None:
    """The plan *plan_hash*, or without it the oldest that is open or approved and whose grace period is over; None without one.

    Under ``approval`` a plan is chosen that nobody has approved yet. Raises PolicyStopError where the plan that is named may not
    be executed, for another reason than that.
    """
    if plan_hash is not None:
        record = known_plan(context, plan_hash)
        against = _objections(context, record)
        if against:
            raise PolicyStopError(
                f"plan {plan_hash} of store {context.store.name} is not executed: {'; '.join(against)}"
            )
        return record
    for record in known_plans(context):
        if record.status in ("open", "approved") and not _objections(context, record):
            return record
    return None


def describe_plan(context: StoreContext, plan_hash: str, shown: int, *, approved: bool = False) -> PlanDescription:
    """What the plan would delete and why, with its first *shown* objects. Verifies the whole plan.

    *approved*: the objections are those that were left if somebody approved a plan that is open.
    Raises ArtifactCorruptError where it was changed.
    """
    record = known_plan(context, plan_hash)
    judged = msgspec.structs.replace(record, status="approved") if approved and record.status == "open" else record
    plan = plans.read_plan(context.artifacts, plan_hash)
    groups, first = plan_contents(context.artifacts, plan, shown)
    return PlanDescription(
        store=plan.store,
        uri=plan.uri,
        record=record,
        reconciliation_id=plan.reconciliation_id,
        due_at_ms=due_ms(context.store, plan),
        groups=groups,
        first=first,
        objections=tuple(objections(context.store, context.loaded.owners_complete, plan, judged, now_ms())),
    )


def decide(context: StoreContext, plan_hash: str, approve: bool, person: str, why: str) -> DeletionPlanRecord:
    """Approve or reject the plan in the name of *person*; the plan as it is now. An approved plan can still be rejected: that
    stops its execution, too.

    Raises ConfigError without a name or a reason, PolicyStopError where it is too late: the plan was rejected or executed before.
    """
    if not person.strip() or not why.strip():
        raise ConfigError("a plan is released or rejected by somebody and for a reason: give the name and the reason")
    if approve:
        plan_contents(
            context.artifacts, plans.read_plan(context.artifacts, plan_hash), 0
        )  # nobody approves what was changed
    known_plan(context, plan_hash)  # a rejection of before the state store was restored stays the last word
    wanted: Literal["approved", "rejected"] = "approved" if approve else "rejected"
    store = context.store.name
    record = context.state.deletion_plans.decide(store, plan_hash, wanted, by=person.strip(), why=why.strip())
    if record.status != wanted:
        raise PolicyStopError(
            f"plan {plan_hash} of store {store} was {record.status} before; it can no longer be {wanted}"
        )
    put_decision(context.artifacts, record)
    if not approve:
        _note_unfinished(context, record)
    return record


def execute(
    context: StoreContext,
    plan_hash: str,
    recheck_id: str,
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Audit:
    """Delete the plan's objects that *recheck_id* found deletable again, each only as it was planned.

    *progress* gets how many of how many objects were done. What has a result is not done again: a repeat, with this recheck or
    another one, goes on where it stopped; with this one it gives the audit if all is done.

    Raises PolicyStopError where something forbids the execution, also in the middle, LeaseHeldError while another one runs,
    LeaseLostError, and ArtifactCorruptError where the plan or the recheck was changed. What was done until then has its results.
    """
    if context.artifacts.info(audit_name(plan_hash, recheck_id)) is not None:
        return _finish(context, read_audit(context.artifacts, plan_hash, recheck_id))
    plan = plans.read_plan(context.artifacts, plan_hash)
    recheck = read_recheck(context, recheck_id)
    require_release(context, plan, recheck)
    plan_contents(context.artifacts, plan, 0)  # verifies all its files before anything is deleted
    verdicts = Verdicts(context.artifacts, recheck, plan)
    kept = newest_last_copies(context, plan)
    deletion = context.for_deletion().deletion()
    with holding_store(context.state.leases, plan.uri, f"deletion in store {plan.store}", plan_hash) as hold:
        execution = DeletionExecution(
            store=plan.store,
            plan_hash=plan_hash,
            execution_id=recheck_id,
            started_at_ms=_started(context, plan_hash, recheck_id),
        )
        context.state.deletion_plans.record_execution(execution)

        def between() -> None:
            hold.verify()
            require_release(context, plan, recheck)
            require_no_new_reader(context, recheck)

        record = context.state.deletion_plans.get(plan.store, plan_hash)
        release = Release(
            policy=context.store.deletion.policy,
            decided_by=record.decided_by,
            decided_why=record.decided_why,
            decided_at_ms=record.decided_at_ms,
            recheck_id=recheck.recheck_id,
            bounds_ms=recheck.evidence.bounds_ms,
            connection=context.store.connections.deletion,
        )
        put_release(context.artifacts, plan_hash, release)
        done = 0
        attempt = Execution(context.artifacts, deletion, plan, recheck_id)
        try:
            for count in attempt.run(verdicts, kept, Guards(between, EverySoOften(hold)), _THREADS):
                done += count
                progress(done, plan.objects)
        except BaseException as error:  # also if a signal stops the process, what was done is recorded
            try:
                _note_stopped(context, plan, execution, f"{type(error).__name__}: {error}")
            except TicdcReplayError as failed:
                error.add_note(f"The record of what was deleted until then could not be written: {failed}")
            raise
        audit = audit_of(
            context.artifacts, plan, recheck_id, started_at_ms=execution.started_at_ms, finished_at_ms=now_ms()
        )
        context.artifacts.put_once(audit_name(plan_hash, recheck_id), canonical.encode(audit))
    return _finish(context, audit)


def undo(context: StoreContext, plan_hash: str, person: str, why: str, names: frozenset[str] | None = None) -> Undone:
    """Bring back what the plan's execution deleted, or those objects of it that are called *names*; the record of it.

    Allowed under every policy. A plan that was not executed to its end is rejected first: its next execution would delete again
    what came back. Raises ConfigError where the store has no connection for it, without a name or a reason, and where
    nothing was deleted that is asked for.
    """
    if not person.strip() or not why.strip():
        raise ConfigError("a deletion is undone by somebody and for a reason: give the name and the reason")
    store, conn_id = context.store, context.store.connections.undo
    if conn_id is None:
        raise ConfigError(
            f"store {store.name}: connections.undo is missing: name a connection that may remove delete markers of {store.uri}"
        )
    plan = plans.read_plan(context.artifacts, plan_hash)
    if plan.uri != store.uri:
        raise ConfigError(f"plan {plan_hash} is of {plan.uri}, not of {store.uri}")
    if progress_of(context.artifacts, plan_hash) and any(
        record.plan_hash == plan_hash and record.status in ("open", "approved") for record in known_plans(context)
    ):
        decide(context, plan_hash, False, person, f"undone: {why}")
    skew_ms = store.rules.clock_skew_seconds * 1000
    markers = Markers(open_store(store.uri, context.connections[conn_id]), _THREADS, skew_ms)
    markers.remove(context.artifacts, plan, names)
    counts = markers.counts
    if not counts["found"]:
        raise ConfigError(
            f"plan {plan_hash} of store {store.name} has deleted nothing of this selection; see ticdc-replay deletion show"
        )
    undone = Undone(
        store=store.name,
        uri=store.uri,
        plan_hash=plan_hash,
        person=person.strip(),
        why=why.strip(),
        at_ms=now_ms(),
        names=None if names is None else tuple(sorted(names)),
        restored=counts["restored"],
        without_marker=counts["without_marker"],
        not_undoable=counts["not_undoable"] + (len(names) - counts["found"] if names is not None else 0),
        failed=counts["failed"],
        failures=tuple(sorted(markers.failures)),
    )
    put_undone(context.artifacts, undone)
    return undone


def _objections(context: StoreContext, record: DeletionPlanRecord) -> list[str]:
    """Objections to the plan of *record*, assuming that people approve it."""
    plan = plans.read_plan(context.artifacts, record.plan_hash)
    asked = record.status == "open" and context.store.deletion.policy == "approval"
    decided = msgspec.structs.replace(record, status="approved") if asked else record
    return list(objections(context.store, context.loaded.owners_complete, plan, decided, now_ms()))


def _plan_of(context: StoreContext, reconciliation_id: str) -> DeletionPlanRecord | None:
    known = known_plans(context)
    return next((record for record in known if record.reconciliation_id == reconciliation_id), None)


def _deleted_since(context: StoreContext, evidence: Evidence) -> pa.Array:
    """Names of objects that deletions removed since the inventory began, which may have them still (S3's own are days old)."""
    since_ms = evidence.listed_ms - context.store.rules.clock_skew_seconds * 1000
    executions = context.state.deletion_plans.executions(context.store.name)
    lately = {run.plan_hash for run in executions if run.finished_at_ms is None or run.finished_at_ms >= since_ms}
    names = [
        result.name
        for plan_hash in sorted(lately)
        for results in all_results(context.artifacts, plan_hash)
        for result in results.values()
        if result.outcome == Outcome.DELETED and result.at_ms >= since_ms
    ]
    return pa.array(names, pa.string())


def _outdated(context: StoreContext, reconciliation_id: str, evidence: Evidence) -> Iterator[str]:
    """Why nothing is planned any more by the reconciliation, for people; none where it may be."""
    newest = context.state.reconciliations.all(context.store.name)[-1:]
    if newest and newest[0].totals.get("unlisted", 0):
        yield (
            f"the inventory of reconciliation {newest[0].reconciliation_id} lacks objects that exist and are older than it: find "
            "out what the store did not list, and reconcile again"
        )
    if newest and newest[0].reconciliation_id != reconciliation_id:
        yield f"reconciliation {newest[0].reconciliation_id} is newer: plan that one"
    if now_ms() > evidence.bounds_ms + PLANNING_MAX_AGE_MS:
        yield f"it read Kafka's offsets more than {PLANNING_MAX_AGE_MS // _HOUR_MS} hours ago: reconcile again"


def _started(context: StoreContext, plan_hash: str, execution_id: str) -> int:
    for known in context.state.deletion_plans.executions(context.store.name, plan_hash):
        if known.execution_id == execution_id:
            return known.started_at_ms
    return now_ms()


def _note_unfinished(context: StoreContext, record: DeletionPlanRecord) -> None:
    """Record what the last execution of a rejected plan did, if it did not come to its end: no other will follow."""
    executions = context.state.deletion_plans.executions(record.store, record.plan_hash)
    if not executions or executions[-1].audit is not None:
        return
    try:
        plan = plans.read_plan(context.artifacts, record.plan_hash)
        _note_stopped(context, plan, executions[-1], f"rejected by {record.decided_by}: {record.decided_why}")
    except (ArtifactCorruptError, ArtifactNotFoundError):
        return  # a plan that was changed is rejected all the same; nothing can be counted by it


def _note_stopped(context: StoreContext, plan: plans.DeletionPlan, execution: DeletionExecution, why: str) -> None:
    audit = audit_of(
        context.artifacts,
        plan,
        execution.execution_id,
        started_at_ms=execution.started_at_ms,
        finished_at_ms=now_ms(),
        stopped=why,
    )
    put_stopped(context.artifacts, audit)


def _finish(context: StoreContext, audit: Audit) -> Audit:
    """Record that the plan is executed."""
    context.state.deletion_plans.record_execution(
        DeletionExecution(
            store=audit.store,
            plan_hash=audit.plan_hash,
            execution_id=audit.execution_id,
            started_at_ms=audit.started_at_ms,
            finished_at_ms=audit.finished_at_ms,
            audit=audit_name(audit.plan_hash, audit.execution_id),
            counts=audit.counts,
        )
    )
    context.state.deletion_plans.finish(audit.store, audit.plan_hash)
    return audit
