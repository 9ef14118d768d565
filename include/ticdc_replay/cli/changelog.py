"""``ticdc-replay changelog``: what a pipeline keeps, and removing what nothing needs."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.stages.upkeep.prune import Stored, list_changelogs, prune

changelog = typer.Typer(
    no_args_is_help=True, help="List the changelogs of a pipeline, or remove those that nothing needs."
)


@changelog.command("list")
def list_(pipeline: PipelineFile, connections: ConnectionsFile = None) -> None:
    """Every complete changelog, with its size."""
    with opened(pipeline, connections) as context:
        found = list_changelogs(context)
    _show(found, kept=False)


@changelog.command("prune")
def prune_(
    pipeline: PipelineFile,
    connections: ConnectionsFile = None,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", help="In place of changelog.keep_days of the pipeline")
    ] = None,
    even_if_last: Annotated[
        bool, typer.Option("--even-if-last", help="Also what neither Kafka nor another changelog can give again")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Remove them; otherwise it is only told what would be")
    ] = False,
) -> None:
    """Remove changelogs that are old enough and that nothing needs; without --execute nothing is removed."""
    with opened(pipeline, connections) as context:
        found = prune(context, keep_days=keep_days, even_if_last=even_if_last, execute=execute, tell=_tell_removed)
    _show(found, kept=True)
    gone = [stored for stored in found if not stored.kept]
    told = f"{len(gone)} of {len(found)} changelogs, {decimal(sum(stored.bytes for stored in gone))}"
    terminal().print(f"removed {told}" if execute else f"would remove {told}; --execute does it")


def _tell_removed(stored: Stored) -> None:
    terminal(soft_wrap=True).print(f"removed {stored.run_hash[:12]} of {stored.window}")


def _show(found: Sequence[Stored], *, kept: bool) -> None:
    table = Table()
    headings = ["run", "window", "decoded", "rows", "files", "size", "rows lie in"]
    for heading in [*headings, "kept, for"] if kept else headings:
        table.add_column(heading, justify="right" if heading in ("rows", "files", "size") else "left")
    for stored in found:
        cells = [
            stored.run_hash[:12],
            str(stored.window),
            f"{stored.decoded_at:%Y-%m-%d %H:%M}",
            str(stored.rows),
            str(stored.files),
            decimal(stored.bytes),
            ", ".join(run_hash[:12] for run_hash in stored.derived_from) or "its own files",
        ]
        table.add_row(*cells, *(["; ".join(stored.kept) or "goes"] if kept else []))
    terminal(soft_wrap=True).print(table)
