"""The ``ticdc-replay`` command. The verbs live in other modules and are only listed here.

A module is imported when one of its verbs is used: all of them together take two seconds, and ``--help`` needs none.
"""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from ticdc_replay import __version__
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.errors import TicdcReplayError

EXIT_ERROR = 2
"""The command could not do its work; 1 is for a command that did, and found something wrong."""


class Verb(NamedTuple):
    """A verb: its heading and summary in ``--help``, and its function or group of verbs."""

    panel: str
    place: str
    """Module of ``ticdc_replay.cli`` and name in it."""
    summary: str


_REPLAY, _CLOSER, _STORES, _MESSAGES = "Replay windows", "Look closer", "Claim-check stores", "Messages and changefeeds"
VERBS = {
    "plan": Verb(_REPLAY, "replay:plan_command", "What replaying windows would read and take. Nothing is kept"),
    "run": Verb(_REPLAY, "replay:run", "Replay a window into the pipeline's targets"),
    "coverage": Verb(_REPLAY, "coverage:coverage_command", "Which windows each target holds, and the gaps"),
    "quarantine": Verb(_REPLAY, "quarantine:quarantine", "What was set aside: list, decode again, accept as lost"),
    "trace": Verb(_CLOSER, "trace:trace_command", "Where the versions of one row are, and what became of each"),
    "snapshot": Verb(_CLOSER, "replay:snapshot", "Pin a window: find its offsets and write its manifest"),
    "prove": Verb(_CLOSER, "replay:prove_command", "Compare a pinned window with Kafka and the object stores"),
    "changelog": Verb(_CLOSER, "upkeep:changelog", "List changelogs, or remove those that nothing needs"),
    "maintain": Verb(_CLOSER, "maintain:maintain", "Compact lake tables, and remove what nothing needs"),
    "mirror": Verb(
        _CLOSER, "upkeep:mirror", "Fill mirrors from a dump, build them again, raise their floor, or forget one"
    ),
    "verify": Verb(_CLOSER, "verify:verify_command", "Compare mirrors with the upstream, row by row where they differ"),
    "reconcile": Verb(
        _STORES, "reconcile:reconcile", "Compare a store's objects with the messages. Nothing is deleted"
    ),
    "deletion": Verb(_STORES, "deletion:deletion", "Show, approve, reject, execute and undo plans to delete objects"),
    "changefeed": Verb(_MESSAGES, "changefeed:changefeed", "What was understood of a changefeed's configuration"),
    "decode": Verb(_MESSAGES, "messages:decode", "Write the events of a capture as JSON lines"),
    "inspect": Verb(
        _MESSAGES, "messages:inspect", "Show messages of a capture or a Kafka partition, with their events"
    ),
}


class _Group(TyperGroup):
    """Imports the verb that is used, and no other; shows errors of the library as their message."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What ``--help`` lists; ``resolve_command`` returns the verb itself."""
        verb = VERBS.get(cmd_name)
        return verb and TyperCommand(cmd_name, help=verb.summary, rich_help_panel=verb.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load(name) if listed and name else None, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TicdcReplayError as error:
            terminal(stderr=True, soft_wrap=True).print(Text.assemble(("error:", "bold red"), f" {error}"))
            raise typer.Exit(EXIT_ERROR) from None


def load(name: str) -> Any:
    """The verb *name* of ``VERBS`` as a command, its module imported."""
    module, attribute = VERBS[name].place.split(":")
    found = getattr(import_module(f"ticdc_replay.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


app = typer.Typer(cls=_Group, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal().print(f"ticdc-replay {__version__}")
        raise typer.Exit


@app.callback()
def _all_verbs(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Exact batch replay of TiCDC changefeeds."""
