"""``ticdc-replay deletion``: plans to delete claim-check objects that no message needs."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ticdc_replay.cli.rendering import size
from ticdc_replay.cli.replay import ConnectionsFile
from ticdc_replay.cli.store import PipelinesFolder, StoreFile, opened_store, stated_if_interrupted, survey_and_scan
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import print_json, say, tell, terminal
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.reconcile.delete.audit import Audit, read_audit, stopped_of
from ticdc_replay.reconcile.delete.release import due_ms
from ticdc_replay.reconcile.delete.undo import Undone, undos_of
from ticdc_replay.state.deletion_plans import DeletionExecution, DeletionPlanRecord
from ticdc_replay.storage import ObjectStore
from ticdc_replay.store_stages import deletion as stage
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.deletion import PlanDescription
from ticdc_replay.store_stages.reconcile import write_recheck_job

deletion = typer.Typer(no_args_is_help=True, help="Show, approve, reject, execute and undo plans to delete objects.")

FIRST = 20
"""How many objects are shown."""
_WHOLE = ("plan", "object", "objects", "bytes", "due (UTC)", "status", "newest", "oldest", "modified")
"""Columns that are never broken."""
_SHORTEST = 4
"""Characters of a plan's hash that name it: an empty variable of a shell names no plan."""
Plan = Annotated[str, typer.Argument(help=f"The plan's hash, or the beginning of it: at least {_SHORTEST} characters")]
By = Annotated[str, typer.Option("--by", help="Your name: it stays with the record")]
Why = Annotated[str, typer.Option("--why", help="Why: it stays with the record")]
Json = Annotated[bool, typer.Option("--json", help="Print it as JSON, with times in Unix ms")]


@deletion.command("list")
def list_(
    store: StoreFile, pipelines: PipelinesFolder = None, connections: ConnectionsFile = None, json: Json = False
) -> None:
    """List the plans of a store, the oldest first, and people's decisions."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        known = [(plan, due_ms(context.store, plan)) for plan in context.state.deletion_plans.all(context.store.name)]
        if json:
            print_json([{**msgspec.to_builtins(plan), "due_at_ms": due} for plan, due in known])
        elif known:
            show_plans(known)
        else:
            say("there is no plan")


@deletion.command()
def plan(
    store: StoreFile,
    reconciliation: Annotated[
        str | None, typer.Option("--reconciliation", help="Id of the reconciliation; default: the newest")
    ] = None,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
) -> None:
    """Plan to delete what a reconciliation found deletable. Nothing is deleted by that."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        if reconciliation is None:
            known = context.state.reconciliations.all(context.store.name)
            if not known:
                raise ConfigError(f"store {context.store.name} was never reconciled: ticdc-replay reconcile {store}")
            reconciliation = known[-1].reconciliation_id
        made = stage.make_plan(context, reconciliation)
        if made is None:
            say("there is nothing to plan" if context.store.deletion.policy != "never" else "deletion.policy is never")
            return
        say(
            f"plan {made.plan_hash}: {made.objects:,} objects, {made.bytes:,} bytes, "
            f"due {moment(due_ms(context.store, made))} UTC"
        )


@deletion.command()
def show(
    store: StoreFile,
    plan: Plan,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
    json: Json = False,
) -> None:
    """Show what a plan would delete and why, what is against it now, and the results of its executions."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        record = _chosen(context, plan)
        described = stage.describe_plan(context, record.plan_hash, FIRST)
        executions = context.state.deletion_plans.executions(context.store.name, record.plan_hash)
        audits = _audits(context, executions)
        stopped = stopped_of(context.artifacts, record.plan_hash)
        undos = undos_of(context.artifacts, record.plan_hash)
        if json:
            became = {"executions": executions, "stopped": stopped, "audits": audits, "undos": undos}
            print_json({"plan": described, **became})
            return
        show_description(described)
        for objection in described.objections:
            say(f"not executed now: {objection}")
        for execution in executions:
            if execution.audit is None:
                say(f"an execution began {moment(execution.started_at_ms)} UTC and has not ended")
        ended = [*stopped, *audits]
        for audit in ended:
            show_audit(audit, context.artifacts, undos if audit is ended[-1] else [])


@deletion.command()
def approve(
    store: StoreFile,
    plan: Plan,
    by: By,
    why: Why,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
) -> None:
    """Release a plan: it may be executed when its grace period is over."""
    _decide(store, plan, by, why, pipelines, connections, approved=True)


@deletion.command()
def reject(
    store: StoreFile,
    plan: Plan,
    by: By,
    why: Why,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
) -> None:
    """Reject a plan for good; an execution that runs stops."""
    _decide(store, plan, by, why, pipelines, connections, approved=False)


@deletion.command()
def execute(
    store: StoreFile,
    plan: Annotated[
        str | None, typer.Argument(help="The plan's hash, or the beginning of it; default: the oldest")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
    master: Master = None,
) -> None:
    """Delete what a plan names and a recheck finds deletable again.

    Surveys Kafka, scans what nobody has searched, and judges the plan's objects once more before.

    If the plan was executed before, shows the result of that.

    Exit code 1 if objects could not be deleted as they were planned, 130 after Ctrl-C.
    """
    done = 0

    def progress(count: int, all_: int) -> None:
        nonlocal done
        done = count
        tell(f"{count:,} of {all_:,} objects done")

    with stated_if_interrupted(lambda: _interrupted(done)):
        with opened_store(store, pipelines, connections) as context:
            named = None if plan is None else _chosen(context, plan)
            if named is not None and named.status == "executed":
                raise typer.Exit(_show_executed(context, named))
            chosen = stage.choose_plan(context, None if named is None else named.plan_hash)
            if chosen is None:
                say(_nothing_due(context))
                return
            described = stage.describe_plan(context, chosen.plan_hash, FIRST)
            show_description(described)
            if described.objections:
                raise PolicyStopError(f"plan {chosen.plan_hash} is not executed: {'; '.join(described.objections)}")
            if not yes:
                _ask(chosen.objects)
            job = write_recheck_job(context, survey_and_scan(context, master), chosen.plan_hash)
            tell("judging the plan's objects again")
            submit(job.uri, context, master)
        # The files are read again, and only now the connection that may delete.
        with opened_store(store, pipelines, connections, "deleting") as context:
            audit = stage.execute(context, chosen.plan_hash, job.run_hash, progress=progress)
            show_audit(audit, context.artifacts, [])
    if audit.trouble:
        raise typer.Exit(1)


@deletion.command()
def undo(
    store: StoreFile,
    plan: Plan,
    by: By,
    why: Why,
    names: Annotated[list[str] | None, typer.Option("--name", help="Only this object; repeatable")] = None,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
) -> None:
    """Bring back what a plan's execution deleted, in a bucket that keeps versions. Exit code 1 where some did not come back."""
    with opened_store(store, pipelines, connections, "undoing") as context:
        wanted = frozenset(names) if names else None
        plan_hash = _chosen(context, plan).plan_hash
        strangers = _not_planned(context, plan_hash, wanted or frozenset())
        undone = stage.undo(context, plan_hash, by, why, wanted)
    say(f"{undone.restored:,} objects came back")
    for name in strangers:
        say(f"{name} is not in the plan")
    for count, text in (
        (undone.without_marker, "no longer have a delete marker: somebody removed it before"),
        (undone.not_undoable - len(strangers), "were not deleted by this plan, or the store kept no version of them"),
        (undone.failed, "failed"),
    ):
        if count:
            say(f"{count:,} {text}")
    for failure in undone.failures[:FIRST]:
        say(f"    {failure}")
    if undone.failed or (names and undone.not_undoable):
        raise typer.Exit(1)


def _ask(objects: int) -> None:
    """Have the number of objects typed. Raises ConfigError where it is not, or nobody answers."""
    try:
        typed = typer.prompt(f"Type the number of objects ({objects}) to delete them", err=True)
    except typer.Abort:
        raise ConfigError(
            "nothing is deleted: nobody typed the number of objects; use --yes to skip the question"
        ) from None
    if typed.replace(",", "").strip() != str(objects):
        raise ConfigError("nothing is deleted: that is not the number of objects")


def _show_executed(context: StoreContext, record: DeletionPlanRecord) -> int:
    """Show the result of a plan that was executed before; the exit code."""
    say(f"plan {record.plan_hash} was executed before; nothing is deleted now")
    undos = undos_of(context.artifacts, record.plan_hash)
    audits = _audits(context, context.state.deletion_plans.executions(context.store.name, record.plan_hash))
    for audit in audits:
        show_audit(audit, context.artifacts, undos)
    return int(any(audit.trouble for audit in audits))


def _audits(context: StoreContext, executions: Iterable[DeletionExecution]) -> list[Audit]:
    return [
        read_audit(context.artifacts, execution.plan_hash, execution.execution_id)
        for execution in executions
        if execution.audit is not None
    ]


def _nothing_due(context: StoreContext) -> str:
    """Why no plan is executed, and which one is next."""
    known = context.state.deletion_plans.all(context.store.name)
    waiting = [plan for plan in known if plan.status in ("open", "approved")]
    if not waiting:
        return "no plan is due: none is open or approved; ticdc-replay deletion plan makes one"
    following = min(waiting, key=lambda plan: due_ms(context.store, plan))
    against = stage.describe_plan(context, following.plan_hash, 0).objections
    due = moment(due_ms(context.store, following))
    return f"no plan is due; the next is {following.plan_hash[:12]}, due {due} UTC: {'; '.join(against)}"


def _interrupted(done: int) -> str:
    if done:
        return f"{done:,} objects of the plan are done, or a few more; execute it again to go on, or undo it"
    return "nothing was deleted, or a first few objects if the deletion had begun; execute the plan again to go on"


def _not_planned(context: StoreContext, plan_hash: str, names: frozenset[str]) -> list[str]:
    """Those of *names* that the plan does not have."""
    if not names:
        return []
    planned = plans.names_in(context.artifacts, [plans.read_plan(context.artifacts, plan_hash)])
    return sorted(names.difference(planned.to_pylist()))


def _decide(
    store: Path, plan: str, by: str, why: str, pipelines: Path | None, connections: Path | None, *, approved: bool
) -> None:
    with opened_store(store, pipelines, connections, "deciding") as context:
        record = stage.decide(context, _chosen(context, plan).plan_hash, approved, by, why)
        say(f"plan {record.plan_hash} is {record.status}")


def _chosen(context: StoreContext, beginning: str) -> DeletionPlanRecord:
    """The one plan whose hash begins so."""
    if len(beginning) < _SHORTEST:
        raise ConfigError(
            f"{beginning!r} names no plan: give at least the first {_SHORTEST} characters of its hash; "
            f"ticdc-replay deletion list shows them"
        )
    found = [
        plan for plan in context.state.deletion_plans.all(context.store.name) if plan.plan_hash.startswith(beginning)
    ]
    if len(found) != 1:
        raise ConfigError(
            f"{len(found)} plans of store {context.store.name} begin with {beginning!r}; ticdc-replay deletion list shows all"
        )
    return found[0]


def show_plans(plans: Iterable[tuple[DeletionPlanRecord, int]]) -> None:
    """One line a plan, with when it is due (Unix ms)."""
    table = _table("plan", "due (UTC)", "objects", "bytes", "status", "decided by")
    for plan, due in plans:
        decided = f"{plan.decided_by}: {plan.decided_why}" if plan.decided_by else ""
        table.add_row(plan.plan_hash[:12], moment(due), f"{plan.objects:,}", size(plan.bytes), plan.status, decided)
    terminal().print(table)


def show_description(plan: PlanDescription) -> None:
    """What the plan would delete and why."""
    record = plan.record
    say(f"plan {record.plan_hash} of store {plan.store}, {plan.uri}: {record.status}")
    say(
        f"{record.objects:,} objects, {record.bytes:,} bytes; made {moment(record.made_at_ms)}, "
        f"due {moment(plan.due_at_ms)} UTC"
    )
    groups = _table("class", "objects", "bytes", "oldest", "newest", "why")
    for group in plan.groups:
        days = _day(group.oldest_ms), _day(group.newest_ms)
        groups.add_row(group.kind, f"{group.objects:,}", size(group.bytes), *days, group.reason)
    terminal().print(groups)
    first = _table("object", "bytes", "modified", "table or class")
    for each in plan.first:
        first.add_row(each.name, size(each.size), _day(each.last_modified_ms), each.table or each.kind)
    terminal().print(first)
    if record.objects > len(plan.first):
        say(f"and {record.objects - len(plan.first):,} objects more")


def show_audit(audit: Audit, artifacts: ObjectStore, undos: Sequence[Undone]) -> None:
    """What the execution did, and which objects came back since. *artifacts*: of the store."""
    say(f"{audit.status} {moment(audit.started_at_ms)} to {moment(audit.finished_at_ms)} UTC")
    if audit.stopped:
        say(f"stopped, because: {audit.stopped}")
    table = _table("result", "objects", "bytes")
    for outcome, count in sorted(audit.counts.items()):
        table.add_row(outcome, f"{count:,}", size(audit.bytes[outcome]))
    terminal().print(table)
    if audit.untold:
        say(f"{audit.untold:,} objects more may have been deleted, without a result")
    restored = 0
    for undone in undos:
        restored += undone.restored
        say(
            f"undone {moment(undone.at_ms)} UTC by {undone.person}: {undone.restored:,} objects came back; {undone.why}"
        )
    if undos:
        left = audit.counts.get("deleted", 0) + audit.counts.get("gone", 0) - restored
        say(f"of the deleted objects, {restored:,} are back and {left:,} are still missing")
    if audit.undoable > restored:
        say(f"{audit.undoable - restored:,} of them can be brought back: ticdc-replay deletion undo")
    for trouble in audit.trouble[:FIRST]:
        say(f"{trouble.outcome}: {trouble.name} {trouble.detail}")
    for folder in sorted({file.name.rpartition("/")[0] for file in audit.files}):
        say(f"results {artifacts.uri(folder)}")


def moment(ms: int) -> str:
    """*ms* (Unix) in UTC, to the minute."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in ("objects", "bytes") else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in _WHOLE)
    return table
