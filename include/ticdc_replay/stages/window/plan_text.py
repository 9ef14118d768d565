"""A plan as people read it, in a terminal and in the log of a task alike."""

from collections.abc import Iterator, Sequence

from ticdc_replay.stages.window.plan import PlannedTable, ReplayPlan, WindowPlan

_TABLES = 20
_INPUTS = {
    "kafka": "is read from Kafka",
    "manifest": "is pinned already, and is read from Kafka as its manifest says",
    "changelogs": "is taken from changelogs, not from Kafka",
}


def lines(plan: ReplayPlan) -> Iterator[str]:
    """*plan*, a line at a time."""
    for window in plan.windows:
        yield from _window(window)
    measured = [window for window in plan.windows if window.messages]
    if len(plan.windows) > 1:
        seconds = sum(window.seconds for window in measured)
        yield f"{len(plan.windows)} windows: {_amounts(measured)}; about {_duration(seconds)} one after the other"
    yield f"tables {', '.join(plan.selection)} into {', '.join(plan.targets)}; {plan.rates}"
    refused = sum(bool(window.refusals) for window in plan.windows)
    if refused:
        yield f"refused: {refused} of {len(plan.windows)} windows can't be replayed completely"


def _window(window: WindowPlan) -> Iterator[str]:
    yield f"{window.window} {_INPUTS[window.input]}" + (f"; grade {window.grade}" if window.grade else "")
    if window.waits_for is not None:
        yield f"  not complete in Kafka yet, the run would wait: {window.waits_for}"
    if window.messages:
        yield f"  {window.partitions:,} partitions, {_amounts([window])}; about {_duration(window.seconds)}"
        yield from _tables(window.tables, window.wanted)
    for reason in window.reasons:
        yield f"  not proven: {reason}"
    for note in window.notes:
        yield f"  note: {note}"
    for refusal in window.refusals:
        yield f"  refused: {refusal}"


def _amounts(windows: Sequence[WindowPlan]) -> str:
    def total(name: str) -> int:
        return sum(getattr(window, name) for window in windows)

    text = (
        f"{total('messages'):,} messages of {_size(total('bytes'))}, about {total('rows'):,} row events, {total('wanted'):,} of "
        "them of the window and its tables"
    )
    if total("claim_checks"):
        text += f", {total('claim_checks'):,} claim-check objects of {_size(total('claim_check_bytes'))}"
    return text


def _tables(tables: Sequence[PlannedTable], wanted: int) -> Iterator[str]:
    for table in [each for each in tables if each.rows][:_TABLES]:
        unknown = "" if table.is_known else "; its definition is not known yet"
        yield f"    {table.table}: {100 * table.rows / max(1, wanted):.0f} %, about {table.rows:,} rows{unknown}"
    quiet = [each.table for each in tables if not each.rows]
    if quiet:
        more = f" and {len(quiet) - _TABLES} more" if len(quiet) > _TABLES else ""
        yield f"    without rows in the sample: {', '.join(quiet[:_TABLES])}{more}"


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:,.0f} minutes" if seconds < 5_400 else f"{seconds / 3600:,.1f} hours"
