"""``ticdc-replay mirror``: what a person tells the mirrors of a pipeline, between windows."""

from typing import Annotated

import typer

from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep import mirrors

mirror = typer.Typer(no_args_is_help=True, help="Tell a mirror from when on rows count, or that it is built anew.")

Table = Annotated[str, typer.Argument(help="The upstream's table: schema.table", metavar="TABLE")]
Target = Annotated[
    str | None, typer.Option("--target", help="The target's name, where the pipeline has several mirrors")
]


@mirror.command()
def floor(
    pipeline: PipelineFile,
    table: Table,
    at: Annotated[str, typer.Option("--at", help="A TSO, or an ISO 8601 time with a zone")],
    holds_all_rows: Annotated[
        bool,
        typer.Option("--holds-all-rows", help="The mirror was filled from a dump and has all rows up to this commitTs"),
    ] = False,
    target: Target = None,
    connections: ConnectionsFile = None,
) -> None:
    """Apply nothing from before a commitTs to a mirror any more, as after a base load or a TRUNCATE done by hand."""
    try:
        floor_ts = tso.parse(at)
    except ValueError as error:
        raise ConfigError(f"--at: {error}") from None
    with opened(pipeline, connections) as context:
        raised = mirrors.raise_floor(
            context, _target(context, target), _table(table), floor_ts, holds_all_rows=holds_all_rows
        )
    terminal().print(
        f"{raised.table}: nothing below {tso.describe(raised.now)} is applied"
        + (f"; the floor was there before, and {at} is lower" if raised.now == raised.before > floor_ts else ""),
    )
    if raised.newest_ts > raised.now:
        terminal(stderr=True).print(
            f"warning: windows with rows up to {tso.describe(raised.newest_ts)} count as loaded. If you have filled the table "
            "anew from an older dump, reload the windows after it",
        )


@mirror.command()
def forget(pipeline: PipelineFile, table: Table, target: Target = None, connections: ConnectionsFile = None) -> None:
    """Forget a mirror table that was dropped, so that its windows can be loaded again and build it anew."""
    with opened(pipeline, connections) as context:
        name = mirrors.forget(context, _target(context, target), _table(table))
    terminal().print(f"{name} is forgotten: load its windows again")


def _target(context: ReplayContext, name: str | None) -> str:
    if name is not None:
        return name
    found = [target.name for target in context.pipeline.targets if target.is_mirror]
    if len(found) != 1:
        raise ConfigError(f"--target: name one of the pipeline's mirrors: {', '.join(found) or 'it has none'}")
    return found[0]


def _table(text: str) -> TableName:
    schema, dot, table = text.partition(".")
    if not (schema and dot and table):
        raise ConfigError(f"{text!r} is not of the form schema.table")
    return TableName(schema, table)
