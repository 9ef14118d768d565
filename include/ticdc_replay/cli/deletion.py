"""``ticdc-replay deletion``: plans to delete claim-check objects that no message needs."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from ticdc_replay.cli.replay import ConnectionsFile
from ticdc_replay.cli.store import Master, PipelinesFolder, StoreFile, opened_store, survey_and_scan, tell
from ticdc_replay.cli.submit import submit
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.reconcile.audit import Audit, read_audit
from ticdc_replay.reconcile.undo import undos_of
from ticdc_replay.stages import deletion as stage
from ticdc_replay.stages.reconcile import write_recheck_job
from ticdc_replay.stages.store_context import StoreContext
from ticdc_replay.state.records import DeletionPlanRecord

deletion = typer.Typer(
    no_args_is_help=True, help="See plans to delete what no message needs, decide about them, execute them, undo that."
)

_FIRST = 20
_SHORTEST = 4
"""Characters of a plan's hash that name it: an empty variable of a shell names no plan."""
Plan = Annotated[str, typer.Argument(help=f"The plan's hash, or the beginning of it: at least {_SHORTEST} characters")]
By = Annotated[str, typer.Option("--by", help="Your name: it stays with the record")]
Why = Annotated[str, typer.Option("--why", help="Why: it stays with the record")]


@deletion.command("list")
def list_(store: StoreFile, pipelines: PipelinesFolder = None, connections: ConnectionsFile = None) -> None:
    """List the plans of a store, the oldest first, and what people said to them."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        table = _table("plan", "made", "due", "objects", "bytes", "status", "decided by")
        for plan in context.state.deletion_plans(context.store.name):
            decided = f"{plan.decided_by}: {plan.decided_why}" if plan.decided_by else ""
            times = _moment(plan.made_at_ms), _moment(plan.due_at_ms)
            table.add_row(plan.plan_hash[:12], *times, f"{plan.objects:,}", f"{plan.bytes:,}", plan.status, decided)
        _console().print(table if table.row_count else "there is no plan")


@deletion.command()
def plan(
    store: StoreFile,
    reconciliation: Annotated[
        str | None, typer.Option("--reconciliation", help="Of this one: its id; else of the newest")
    ] = None,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
) -> None:
    """Plan to delete what a reconciliation found deletable. Nothing is deleted by that."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        if reconciliation is None:
            known = context.state.reconciliations(context.store.name)
            if not known:
                raise ConfigError(f"store {context.store.name} was never reconciled: ticdc-replay reconcile {store}")
            reconciliation = known[-1].reconciliation_id
        made = stage.make_plan(context, reconciliation)
        if made is None:
            _say("there is nothing to plan" if context.store.deletion.policy != "never" else "deletion.policy is never")
            return
        _say(f"plan {made.plan_hash}: {made.objects:,} objects, {made.bytes:,} bytes, due {_moment(made.due_at_ms)}")


@deletion.command()
def show(store: StoreFile, plan: Plan, pipelines: PipelinesFolder = None, connections: ConnectionsFile = None) -> None:
    """Show what a plan would delete and why, what is against it now, and what became of it."""
    with opened_store(store, pipelines, connections, "deciding") as context:
        record = _chosen(context, plan)
        for objection in _describe(context, record):
            _say(f"not executed now: {objection}")
        for execution in context.state.deletion_executions(context.store.name, record.plan_hash):
            if execution.audit is None:
                _say(f"an execution began {_moment(execution.started_at_ms)} and has not come to its end")
            else:
                _show_audit(read_audit(context.artifacts, record.plan_hash, execution.execution_id))
        for undone in undos_of(context.artifacts, record.plan_hash):
            _say(
                f"undone {_moment(undone.at_ms)} by {undone.person}: {undone.restored:,} objects came back; {undone.why}"
            )


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
    plan: Annotated[str | None, typer.Argument(help="The plan's hash, or the beginning of it; else the oldest")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
    master: Master = "local[*]",
) -> None:
    """Delete what a plan names and a recheck finds deletable again.

    Surveys Kafka, scans what nobody has searched, and judges the plan's objects once more before. Exit code 1 where objects could
    not be deleted as they were planned.
    """
    with opened_store(store, pipelines, connections) as context:
        chosen = stage.choose_plan(context, None if plan is None else _chosen(context, plan).plan_hash)
        if chosen is None:
            _say("no plan is due")
            return
        objections = _describe(context, chosen)
        if objections:
            raise PolicyStopError(f"plan {chosen.plan_hash} is not executed: {'; '.join(objections)}")
        if not yes:
            typed = typer.prompt(f"Type the number of objects ({chosen.objects}) to have them deleted", err=True)
            if typed.replace(",", "").strip() != str(chosen.objects):
                raise ConfigError("nothing is deleted: that is not the number of objects")
        job = write_recheck_job(context, survey_and_scan(context, master), chosen.plan_hash)
        tell("judging the plan's objects again")
        submit("reconcile", job.uri, context, master)
    # The files are read again, and only now the connection that may delete.
    with opened_store(store, pipelines, connections, "deleting") as context:
        audit = stage.execute(context, chosen.plan_hash, job.run_hash, progress=_progress)
    _show_audit(audit)
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
        undone = stage.undo(context, _chosen(context, plan).plan_hash, by, why, wanted)
    _say(f"{undone.restored:,} objects came back")
    for count, text in (
        (undone.without_marker, "have no delete marker any more: somebody removed it before"),
        (undone.not_undoable, "were not deleted by this plan, or the store kept no version of them"),
        (undone.failed, "failed"),
    ):
        if count:
            _say(f"{count:,} {text}")
    for failure in undone.failures[:_FIRST]:
        _say(f"    {failure}")
    if undone.failed:
        raise typer.Exit(1)


def _decide(
    store: Path, plan: str, by: str, why: str, pipelines: Path | None, connections: Path | None, *, approved: bool
) -> None:
    with opened_store(store, pipelines, connections, "deciding") as context:
        record = stage.decide(context, _chosen(context, plan).plan_hash, approved, by, why)
        _say(f"plan {record.plan_hash} is {record.status}")


def _chosen(context: StoreContext, beginning: str) -> DeletionPlanRecord:
    """The one plan whose hash begins so."""
    if len(beginning) < _SHORTEST:
        raise ConfigError(
            f"{beginning!r} names no plan: give at least the first {_SHORTEST} characters of its hash; "
            f"ticdc-replay deletion list shows them"
        )
    found = [plan for plan in context.state.deletion_plans(context.store.name) if plan.plan_hash.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError(
            f"{len(found)} plans of store {context.store.name} begin with {beginning!r}; ticdc-replay deletion list shows all"
        )
    return found[0]


def _describe(context: StoreContext, record: DeletionPlanRecord) -> tuple[str, ...]:
    """Show the plan; what is against it now."""
    described = stage.describe_plan(context, record.plan_hash, _FIRST)
    _say(f"plan {record.plan_hash} of store {described.store}, {described.uri}: {record.status}")
    _say(f"{record.objects:,} objects, {record.bytes:,} bytes; made {_moment(record.made_at_ms)}")
    groups = _table("class", "objects", "bytes", "last modified", "why")
    for group in described.groups:
        span = f"{_moment(group.oldest_ms)} to {_moment(group.newest_ms)}"
        groups.add_row(group.kind, f"{group.objects:,}", f"{group.bytes:,}", span, group.reason)
    first = _table("object", "bytes", "last modified", "class", "table")
    for each in described.first:
        first.add_row(each.name, f"{each.size:,}", _moment(each.last_modified_ms), each.kind, each.table)
    _console().print(groups, first)
    if record.objects > len(described.first):
        _say(f"and {record.objects - len(described.first):,} objects more")
    return described.objections


def _show_audit(audit: Audit) -> None:
    _say(f"executed {_moment(audit.started_at_ms)} to {_moment(audit.finished_at_ms)}")
    table = _table("result", "objects", "bytes")
    for outcome, count in sorted(audit.counts.items()):
        table.add_row(outcome, f"{count:,}", f"{audit.bytes[outcome]:,}")
    _console().print(table)
    if audit.undoable:
        _say(f"{audit.undoable:,} of them can be brought back: ticdc-replay deletion undo")
    for trouble in audit.trouble[:_FIRST]:
        _say(f"{trouble.outcome}: {trouble.name} {trouble.detail}")
    _say(f"results {', '.join(_folders(audit))}")


def _folders(audit: Audit) -> Iterable[str]:
    return sorted({file.name.rpartition("/")[0] for file in audit.files})


def _progress(done: int, all_: int) -> None:
    tell(f"{done:,} of {all_:,} objects done")


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in ("objects", "bytes") else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in ("plan", "object"))
    return table


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _say(text: str) -> None:
    _console().print(text, markup=False)


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False)
