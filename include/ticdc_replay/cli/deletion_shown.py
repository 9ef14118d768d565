"""Deletion plans and what came of them, in the width of a terminal."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ticdc_replay.cli.rendering import size
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.reconcile.delete.audit import Audit
from ticdc_replay.reconcile.delete.undo import Undone
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.storage import ObjectStore
from ticdc_replay.store_stages.deletion import PlanDescription

FIRST = 20
"""How many objects are shown."""

_WHOLE = ("plan", "object", "objects", "bytes", "due (UTC)", "status", "newest", "oldest")
"""Columns that are never broken."""


def show_plans(plans: Iterable[tuple[DeletionPlanRecord, int]]) -> None:
    """One line a plan, with when it is due (Unix ms)."""
    table = _table("plan", "due (UTC)", "objects", "bytes", "status", "decided by")
    for plan, due in plans:
        decided = f"{plan.decided_by}: {plan.decided_why}" if plan.decided_by else ""
        table.add_row(plan.plan_hash[:12], moment(due), f"{plan.objects:,}", size(plan.bytes), plan.status, decided)
    _print(table)


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
    _print(groups)
    first = _table("object", "bytes", "newest", "table")
    for each in plan.first:
        first.add_row(each.name, size(each.size), _day(each.last_modified_ms), each.table or each.kind)
    first.columns[2].header = "modified"
    first.columns[3].header = "table or class"
    _print(first)
    if record.objects > len(plan.first):
        say(f"and {record.objects - len(plan.first):,} objects more")


def show_audit(audit: Audit, artifacts: ObjectStore, undos: Sequence[Undone]) -> None:
    """What the execution did, and what was undone of it since. *artifacts*: of the store."""
    say(f"{audit.status} {moment(audit.started_at_ms)} to {moment(audit.finished_at_ms)} UTC")
    if audit.stopped:
        say(f"stopped, because: {audit.stopped}")
    table = _table("result", "objects", "bytes")
    for outcome, count in sorted(audit.counts.items()):
        table.add_row(outcome, f"{count:,}", size(audit.bytes[outcome]))
    _print(table)
    if audit.untold:
        say(f"{audit.untold:,} objects more may have been deleted: there was no time to say so")
    restored = 0
    for undone in undos:
        restored += undone.restored
        say(
            f"undone {moment(undone.at_ms)} UTC by {undone.person}: {undone.restored:,} objects came back; {undone.why}"
        )
    if undos:
        left = audit.counts.get("deleted", 0) + audit.counts.get("gone", 0) - restored
        say(f"of the objects that went, {restored:,} came back and {left:,} are still away")
    if audit.undoable > restored:
        say(f"{audit.undoable - restored:,} of them can be brought back: ticdc-replay deletion undo")
    for trouble in audit.trouble[:FIRST]:
        say(f"{trouble.outcome}: {trouble.name} {trouble.detail}")
    for folder in sorted({file.name.rpartition("/")[0] for file in audit.files}):
        say(f"results {artifacts.uri(folder)}")


def print_json(value: Any) -> None:
    """Print *value* on a line of its own."""
    typer.echo(msgspec.json.encode(value).decode())


def moment(ms: int) -> str:
    """*ms* (Unix) in UTC, to the minute."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def say(text: str) -> None:
    """Print *text* as it is."""
    terminal(soft_wrap=True).print(text)


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in ("objects", "bytes") else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in _WHOLE)
    return table


def _print(table: Table) -> None:
    terminal().print(table)
