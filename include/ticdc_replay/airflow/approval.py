"""The question that a person is asked before a plan is executed."""

from collections.abc import Iterator
from datetime import UTC, datetime

from ticdc_replay.airflow.markdown import code, plain
from ticdc_replay.store_stages.deletion import PlanDescription


def subject(plan: PlanDescription) -> str:
    """The headline."""
    return f"Delete {plan.record.objects:,} objects ({plan.record.bytes:,} bytes) of claim-check store {plan.store}?"


def body(plan: PlanDescription) -> str:
    """What is to be known to decide, as Markdown."""
    return "\n".join(_lines(plan))


def _lines(plan: PlanDescription) -> Iterator[str]:
    yield f"Objects in {code(plan.uri)} that no message needs, by reconciliation {code(plan.reconciliation_id)}."
    yield ""
    yield f"Plan `{plan.record.plan_hash}`, made {_moment(plan.record.made_at_ms)}, due since {_moment(plan.due_at_ms)}."
    yield ""
    for objection in plan.objections:
        yield f"**Not executed now, even if it is approved:** {plain(objection)}."
        yield ""
    yield "| class | reason | objects | bytes | last modified |"
    yield "|---|---|---:|---:|---|"
    for group in plan.groups:
        modified = f"{_moment(group.oldest_ms)} to {_moment(group.newest_ms)}"
        yield f"| {plain(group.kind)} | {plain(group.reason)} | {group.objects:,} | {group.bytes:,} | {modified} |"
    yield ""
    if len(plan.first) < plan.record.objects:
        yield f"The first {len(plan.first):,} of them; the plan's Parquet files have all:"
    else:
        yield "They are:"
    yield ""
    for each in plan.first:
        table = f", {code(each.table)}" if each.table else ""
        yield f"* {code(each.name)} ({each.kind}, {each.size:,} bytes, {_moment(each.last_modified_ms)}{table})"
    yield ""
    yield (
        "Each object is checked again before it is deleted: against every reference that is known then, and by its ETag. "
        "*Reject* ends this plan."
    )


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
