"""``ticdc-replay changelog`` and ``ticdc-replay mirror``: what a person does between windows."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.filesize import decimal

from ticdc_replay.cli.mirror_names import Mirror, UpstreamTable, mirror_name, table_name
from ticdc_replay.cli.rebuild import rebuild_command
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened
from ticdc_replay.cli.seed import seed
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import say, table, tell
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.upkeep import mirrors
from ticdc_replay.stages.upkeep.follow import follow as run_follow
from ticdc_replay.stages.upkeep.follow import how_to_follow, stopping_ddl
from ticdc_replay.stages.upkeep.prune import Stored, list_changelogs, prune

changelog = typer.Typer(
    no_args_is_help=True, help="List the changelogs of a pipeline, or remove those that nothing needs."
)
mirror = typer.Typer(
    no_args_is_help=True,
    help="Fill empty mirrors from a dump, build one again, follow a DDL that stopped a load, raise the floor of a mirror table, "
    "or forget a dropped one.",
)
mirror.command()(seed)
mirror.command("rebuild")(rebuild_command)


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
        bool, typer.Option("--execute", help="Remove them; otherwise only show what would be removed")
    ] = False,
) -> None:
    """Remove changelogs that are old enough and that nothing needs; without --execute nothing is removed."""
    with opened(pipeline, connections) as context:
        found = prune(context, keep_days=keep_days, even_if_last=even_if_last, execute=execute, tell=_say_removed)
    _show(found, kept=True)
    gone = [stored for stored in found if not stored.kept]
    counted = f"{len(gone)} of {len(found)} changelogs, {decimal(sum(stored.bytes for stored in gone))}"
    say(f"removed {counted}" if execute else f"would remove {counted}; --execute does it")


@mirror.command()
def floor(
    pipeline: PipelineFile,
    table: UpstreamTable,
    at: Annotated[str, typer.Option("--at", help="A TSO, or an ISO 8601 time with a zone")],
    holds_all_rows: Annotated[
        bool,
        typer.Option("--holds-all-rows", help="The mirror was filled from a dump and has all rows up to this commitTs"),
    ] = False,
    target: Mirror = None,
    connections: ConnectionsFile = None,
) -> None:
    """Raise a mirror's floor: ignore everything before this commitTs, as after a base load or a TRUNCATE done by hand."""
    floor_ts = _tso(at)
    with opened(pipeline, connections) as context:
        raised = mirrors.raise_floor(
            context, mirror_name(context, target), table_name(table), floor_ts, holds_all_rows=holds_all_rows
        )
    say(
        f"{raised.table}: nothing below {tso.describe(raised.now)} is applied"
        + (f"; the floor was there before, and {at} is lower" if raised.now == raised.before > floor_ts else ""),
    )
    if raised.newest_ts > raised.now:
        tell(
            f"warning: windows with rows up to {tso.describe(raised.newest_ts)} count as loaded. If you have filled the table "
            "again from an older dump, reload the windows after it",
        )


@mirror.command()
def follow(
    pipeline: PipelineFile,
    table: UpstreamTable,
    target: Mirror = None,
    at: Annotated[
        str | None, typer.Option("--at", help="The DDL's commitTs: a TSO. Otherwise the first DDL that is not followed")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done")] = False,
    connections: ConnectionsFile = None,
    master: Master = None,
) -> None:
    """Do to a mirror what a DDL did that stopped its load, and raise its floor to just above the DDL."""
    commit_ts = _tso(at) if at is not None else None
    with opened(pipeline, connections) as context:
        name = mirror_name(context, target)
        ddl = stopping_ddl(context, name, table_name(table), commit_ts)
        how = (how_to_follow if dry_run else run_follow)(context, name, ddl, lambda uri: submit(uri, context, master))
    say(f"{ddl.table}: the DDL at {tso.describe(ddl.commit_ts)}")
    for step in how.steps:
        say(f"- {step}")
    for each in how.tables:
        say(f"- {each}: floor {ddl.commit_ts + 1}")
    say("nothing was changed; without --dry-run it is" if dry_run else "followed: run the stopped load again")


def _tso(text: str) -> int:
    try:
        return tso.parse(text)
    except ValueError as error:
        raise ConfigError(f"--at: {error}") from None


@mirror.command()
def forget(
    pipeline: PipelineFile, table: UpstreamTable, target: Mirror = None, connections: ConnectionsFile = None
) -> None:
    """Forget a mirror or history table that was dropped, so that its windows can be loaded again and build it again."""
    with opened(pipeline, connections) as context:
        name = mirrors.forget(context, mirror_name(context, target), table_name(table))
    say(
        f"{name} is forgotten: load its windows again. If a base load has filled it, seed it before that, or run `ticdc-replay "
        "mirror rebuild`, which does both: its windows lack the rows of the base"
    )


def _say_removed(stored: Stored) -> None:
    say(f"removed {stored.run_hash[:12]} of {stored.window}")


def _show(found: Sequence[Stored], *, kept: bool) -> None:
    headings = ["run", "window", "decoded", "rows", "files", "size", "rows lie in", *(["kept, for"] if kept else [])]
    changelogs = table(*headings, right=("rows", "files", "size"))
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
        changelogs.add_row(*cells, *(["; ".join(stored.kept) or "goes"] if kept else []))
    say(changelogs)
