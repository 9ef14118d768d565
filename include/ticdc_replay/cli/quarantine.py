"""``ticdc-replay quarantine``: what was set aside, and the ways back."""

from typing import Annotated

import typer
from rich.table import Table

from ticdc_replay.cli import rendering
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened, target_names, window_of
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import say, table
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import replaying
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.quarantine import entries as stage
from ticdc_replay.stages.quarantine.entries import RunQuarantine, Selection, Shown
from ticdc_replay.stages.quarantine.redrive import (
    RedriveReport,
    check_redrive,
    open_runs,
    pin_redrive,
    publish_redrive,
    write_redrive_loads,
)
from ticdc_replay.stages.window.jobs import write_decode_job

quarantine = typer.Typer(
    no_args_is_help=True, help="See what was set aside, decode it again, or accept that it is lost."
)

Run = Annotated[str | None, typer.Option("--run", help="Of this run only: its hash, or the beginning of it")]
From = Annotated[str | None, typer.Option("--from", help="Of one window only: its start, a TSO or an ISO 8601 time")]
To = Annotated[str | None, typer.Option("--to", help="The end of that window")]
Reasons = Annotated[list[str] | None, typer.Option("--reason", help="Only of this reason; repeatable")]
Tables = Annotated[list[str] | None, typer.Option("--table", help="Only of tables of this pattern; repeatable")]
Places = Annotated[
    list[str] | None,
    typer.Option("--at", help="Only this message or event: topic\\[partition]@offset#event; repeatable"),
]


@quarantine.command("list")
def list_(
    pipeline: PipelineFile,
    run: Run = None,
    from_: From = None,
    to: To = None,
    reasons: Reasons = None,
    tables: Tables = None,
    each: Annotated[bool, typer.Option("--each", help="Every entry, not only how many there are of a kind")] = False,
    connections: ConnectionsFile = None,
) -> None:
    """List what is in quarantine by reason and table, window by window, with its status."""
    with opened(pipeline, connections) as context:
        found = stage.list_quarantine(context, _selection(run, from_, to, reasons, tables, None))
        if not found:
            say("nothing is in quarantine")
        for of_run in found:
            held = f"loaded into {', '.join(of_run.targets)}" if of_run.targets else "not loaded"
            say(f"{of_run.window}\nrun {of_run.run_hash}, {held}")
            say(_entries(of_run) if each else _groups(of_run))


@quarantine.command()
def show(
    pipeline: PipelineFile,
    place: Annotated[str, typer.Argument(help="topic\\[partition]@offset, with #event for one of several")],
    run: Run = None,
    connections: ConnectionsFile = None,
) -> None:
    """Show one message in quarantine: its bytes, what this version makes of them, and where the error is."""
    with opened(pipeline, connections) as context:
        for shown in stage.show(context, place, run):
            _show(shown)


@quarantine.command()
def redrive(
    pipeline: PipelineFile,
    run: Run = None,
    from_: From = None,
    to: To = None,
    reasons: Reasons = None,
    tables: Tables = None,
    places: Places = None,
    targets: Annotated[list[str] | None, typer.Option("--target", help="Only into this target; repeatable")] = None,
    master: Master = None,
    connections: ConnectionsFile = None,
) -> None:
    """Decode what is in quarantine again, with the current version and configuration, and load what comes out.

    Exit code 1 where something is left.
    """
    left = False
    with opened(pipeline, connections) as context:
        target_names(context.pipeline, targets)  # refuses one that the pipeline does not have
        runs = open_runs(context, _selection(run, from_, to, reasons, tables, places))
        if not runs:
            say("nothing of this selection is open")
        for of_run in sorted(runs, key=lambda each: each.window):
            report = _redrive(context, of_run, targets, master)
            left |= any(report.open.values())
    if left:
        raise typer.Exit(1)


@quarantine.command()
def accept(
    pipeline: PipelineFile,
    by: Annotated[str, typer.Option("--by", help="Your name: it stays with the record")],
    why: Annotated[str, typer.Option("--why", help="Why the loss is acceptable: it stays with the record")],
    run: Run = None,
    from_: From = None,
    to: To = None,
    reasons: Reasons = None,
    tables: Tables = None,
    places: Places = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All open entries; needed if no other option selects any")
    ] = False,
    connections: ConnectionsFile = None,
) -> None:
    """Accept that what is in quarantine is lost: it counts as settled, and no longer stops a run."""
    selection = _selection(run, from_, to, reasons, tables, places)
    if selection == Selection() and not all_:
        raise ConfigError("this would accept the loss of everything in quarantine: choose entries, or use --all")
    with opened(pipeline, connections) as context:
        for record in stage.accept(context, selection, by, why):
            say(f"{record.window}: {len(record.entries)} accepted as lost by {record.person}: {record.why}")


def _redrive(
    context: ReplayContext, run: RunQuarantine, targets: list[str] | None, master: str | None
) -> RedriveReport:
    pinned = pin_redrive(context, run)
    job = write_decode_job(context, pinned)
    with replaying(context, pinned.name, job.run_hash):
        submit(job.uri, context, master)
        say(check_redrive(context, job.run_hash).summary)
    loads = write_redrive_loads(context, job.run_hash, targets)
    for load in loads:
        for uri in (load.window_job, load.redrive_job):
            if uri is not None:
                begin_load(context, uri)
                submit(uri, context, master)
    report = publish_redrive(context, job.run_hash, [load.target for load in loads])
    for target, still in report.open.items():
        left = ", ".join(f"{number} × {reason}" for reason, number in still.items())
        say(f"{run.window}, {target}: {f'still in quarantine: {left}' if left else 'complete'}")
    return report


def _selection(
    run: str | None,
    from_: str | None,
    to: str | None,
    reasons: list[str] | None,
    tables: list[str] | None,
    places: list[str] | None,
) -> Selection:
    if (from_ is None) != (to is None):
        raise ConfigError("--from and --to name a window together")
    window = None if from_ is None or to is None else window_of(from_, to)
    return Selection(run, window, tuple(reasons or ()), tuple(tables or ()), tuple(places or ())).checked()


def _groups(run: RunQuarantine) -> Table:
    groups = table("reason", "table", "status", "entries", "for example")
    for group in stage.grouped(run):
        groups.add_row(group.reason, group.table or "unknown", group.status, str(group.entries), group.example)
    return groups


def _entries(run: RunQuarantine) -> Table:
    entries = table("place", "reason", "table", "status", "detail")
    for listed in run.entries:
        entry, accepted = listed.entry, listed.accepted
        status = listed.status if accepted is None else f"accepted by {accepted.person}: {accepted.why}"
        entries.add_row(entry.coordinates, entry.reason, entry.table_name or "unknown", status, entry.detail)
    return entries


def _show(shown: Shown) -> None:
    for listed in shown.entries:
        entry, accepted = listed.entry, listed.accepted
        say(f"{entry.coordinates} in quarantine of run {entry.run_hash}: {listed.status}")
        if accepted is not None:
            say(f"accepted by {accepted.person}: {accepted.why}")
        say(f"{entry.reason}: {entry.detail}")
    say("\nas this version reads it:")
    say(rendering.message(shown.message, shown.events))
    # Of several the first: all are of one message, and the dump is short.
    named = rendering.byte_named_in(shown.entries[0].entry.detail)
    for name, content in (("key", shown.message.key), ("value", shown.message.value)):
        say(f"{name}:")
        say(rendering.hex_dump(content, named))
