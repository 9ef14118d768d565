"""Shows how runs of a DAG go on, live on a terminal, as lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.airflow_api import RunState

POLL_SECONDS = 1.5
FINAL = {"success", "failed"}
SIGNS = {
    "success": "[green]done[/green]",
    "failed": "[bold red]failed[/bold red]",
    "running": "[yellow]running[/yellow]",
    "deferred": "[magenta]waiting[/magenta]",
    "up_for_retry": "[red]retry[/red]",
    "skipped": "skipped",
    "upstream_failed": "[red]—[/red]",
}


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Say what goes on, and how long it took."""
    started = time.monotonic()
    with console.status(text):
        yield
    console.print(f"[green]✓[/green] {text} [dim]({time.monotonic() - started:.1f} s)[/dim]")


class Watched(NamedTuple):
    """Runs to follow: what they are called, what the moment of a run is, and the tasks to show, in order."""

    title: str
    moment: str
    tasks: Sequence[str]
    raises: str = ""
    """The task that fails where the run found what it is there to find."""


def follow(
    console: Console, watched: Watched, expected_runs: int, look: Callable[[], list[RunState]], deadline: float
) -> list[RunState]:
    """Show what *look* gives until *expected_runs* runs ended, and return them.

    Raises TimeoutError when *deadline* (``time.monotonic``) passes first.
    """
    told: set[tuple[str, str, str]] = set()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            runs = look()
            if console.is_terminal:
                live.update(_table(watched, runs), refresh=True)
            else:
                _tell(console, watched, runs, told)
            if len(runs) == expected_runs and all(run.state in FINAL for run in runs):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{watched.title}: not done in time; look at the runs in the Airflow UI")
            time.sleep(POLL_SECONDS)
    console.print(_table(watched, runs))
    return runs


def _sign(watched: Watched, task: str, state: str) -> str:
    if task == watched.raises and state == "failed":
        return "[yellow]raised[/yellow]"
    return SIGNS.get(state, f"[dim]{state}[/dim]")


def _table(watched: Watched, runs: Sequence[RunState]) -> Table:
    table = Table(title=watched.title, title_justify="left")
    table.add_column(watched.moment)
    for task in watched.tasks:
        table.add_column(task.removeprefix("await_").replace("load_", "→ "))
    for run in runs:
        states = [run.tasks[task].state if task in run.tasks else "" for task in watched.tasks]
        table.add_row(f"{run.start:%H:%M}", *map(partial(_sign, watched), watched.tasks, states))
    return table


def _tell(console: Console, watched: Watched, runs: Sequence[RunState], told: set[tuple[str, str, str]]) -> None:
    for run in runs:
        for task in run.tasks.values():
            news = (run.run_id, task.task_id, task.state)
            if task.state in SIGNS and news not in told:
                told.add(news)
                console.print(f"  {run.start:%H:%M} {task.task_id}: {_sign(watched, task.task_id, task.state)}")
