"""``ticdc-replay mirror rebuild``: a mirror out of changelogs, beside the old one."""

from functools import partial
from typing import Annotated

import typer

from ticdc_replay.cli.mirror_names import Mirror, mirror_name, table_name
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import say, tell
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.upkeep.rebuild import abandon, rebuild


def rebuild_command(
    pipeline: PipelineFile,
    tables: Annotated[list[str], typer.Argument(help="The upstream's tables: schema.table", metavar="TABLE…")],
    target: Mirror = None,
    base: Annotated[
        str | None, typer.Option("--dump-base", help="Begin with this base: the beginning of its run's hash")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Only windows up to this TSO, or ISO 8601 time with a zone")
    ] = None,
    without_deleted_rows: Annotated[
        bool,
        typer.Option(
            "--without-deleted-rows",
            help="Also if rows that `deletes: soft` keeps were deleted before the base, and go",
        ),
    ] = False,
    abandoned: Annotated[
        bool, typer.Option("--abandon", help="Remove what a rebuild that was given up has left; the mirror stays")
    ] = False,
    connections: ConnectionsFile = None,
    master: Master = None,
) -> None:
    """Fill mirrors anew, out of the newest base or CREATE TABLE and the changelogs of loaded windows, then swap old and new.

    Kafka is not needed. The old mirror stays as it is until the swap. Repeat it after an error: it goes on where it was.
    """
    try:
        to_ts = None if to is None else tso.parse(to)
    except ValueError as error:
        raise ConfigError(f"--to: {error}") from None
    with opened(pipeline, connections) as context:
        name = mirror_name(context, target)
        run = partial(submit, context=context, master=master)
        for table in map(table_name, tables):
            if abandoned:
                begun = abandon(context, name, table, run)
                say(f"{table}: {'removed what was built' if begun else 'nothing was built'}")
                continue
            done = rebuild(context, name, table, run, say, base, to_ts, without_deleted_rows=without_deleted_rows)
            for index in done.lost_indexes:
                tell(f"warning: {done.table}: the new table can't have the index {index}")
            say(f"{done.table} is built again, with all changes up to {tso.describe(done.end_ts)}")
