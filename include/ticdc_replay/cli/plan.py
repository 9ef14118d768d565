"""``ticdc-replay plan``: what replaying windows would cost, and what it would stop at."""

import re
from typing import Annotated

import msgspec
import typer

from ticdc_replay.cli.replay import ConnectionsFile, From, Pin, PipelineFile, Repin, To, opened, target_names, window_of
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.window.plan import plan
from ticdc_replay.stages.window.plan_text import lines

EXIT_REFUSED = 1
"""Something stands against one of the windows."""
_MOST = 1_000
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def plan_command(
    pipeline: PipelineFile,
    from_: From,
    to: To,
    every: Annotated[
        str | None, typer.Option(help="Several windows, as a backfill has: their length, such as 30m, 1h or 1d")
    ] = None,
    connections: ConnectionsFile = None,
    repin: Repin = False,
    policy: Pin = None,
    tables: Annotated[list[str] | None, typer.Option("--table", help="Only tables of this pattern; repeatable")] = None,
    targets: Annotated[list[str] | None, typer.Option("--target", help="Only this target; repeatable")] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores of the Spark workers, where no run has shown how long they take")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON")] = False,
) -> None:
    """Tell what replaying windows would read, how long it would take, and what it would stop at. Nothing is pinned or kept.

    Exit code 1 where a window can't be replayed completely.
    """
    windows = _windows(window_of(from_, to), every)
    with opened(pipeline, connections) as context:
        names = target_names(context.pipeline, targets)
        made = plan(context, windows, tables, targets=names, policy=policy, repin=repin, cores=cores)
    if json:
        typer.echo(msgspec.json.encode({**msgspec.to_builtins(made), "is_refused": made.is_refused}).decode())
    else:
        console = terminal(soft_wrap=True)
        for line in lines(made):
            console.print(line)
    if made.is_refused:
        raise typer.Exit(EXIT_REFUSED)


def _windows(whole: Window, every: str | None) -> list[Window]:
    if every is None:
        return [whole]
    told = re.fullmatch(r"([1-9]\d*)([mhd])", every)
    if told is None:
        raise ConfigError(f"--every: {every!r} is no length of a window, such as 30m, 1h or 1d")
    length = tso.from_ms(int(told[1]) * _UNITS_MS[told[2]])
    starts = range(whole.from_ts, whole.to_ts, length)
    if len(starts) > _MOST:
        raise ConfigError(f"--every: {every} gives {len(starts)} windows; {_MOST} at most")
    return [Window(start, min(start + length, whole.to_ts)) for start in starts]
