"""The ``ticdc-replay`` command. Each verb lives in a file of its own and is only registered here."""

from typing import Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from ticdc_replay.cli.changefeed import changefeed
from ticdc_replay.cli.changelog import changelog
from ticdc_replay.cli.decode import decode
from ticdc_replay.cli.deletion import deletion
from ticdc_replay.cli.inspect import inspect
from ticdc_replay.cli.mirror import mirror
from ticdc_replay.cli.plan import plan_command
from ticdc_replay.cli.prove import prove_command
from ticdc_replay.cli.quarantine import quarantine
from ticdc_replay.cli.reconcile import reconcile
from ticdc_replay.cli.replay import run, snapshot
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.errors import TicdcReplayError

EXIT_ERROR = 2
"""The command could not do its work; 1 is for a command that did, and found something wrong."""


class _Group(TyperGroup):
    """Shows errors of the library as their message."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TicdcReplayError as error:
            terminal(stderr=True, soft_wrap=True).print(Text.assemble(("error:", "bold red"), f" {error}"))
            raise typer.Exit(EXIT_ERROR) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    help="Exact batch replay of TiCDC changefeeds.",
    pretty_exceptions_show_locals=False,
)
app.command()(changefeed)
app.command()(decode)
app.command()(inspect)
app.command("plan")(plan_command)
app.command()(snapshot)
app.command()(run)
app.command("prove")(prove_command)
app.command()(reconcile)
app.add_typer(changelog, name="changelog")
app.add_typer(mirror, name="mirror")
app.add_typer(quarantine, name="quarantine")
app.add_typer(deletion, name="deletion")
