"""The console that every command prints to: what it prints is text, whoever wrote it.

Names and reasons come from topics, DDL and object stores. None of them is read as Rich's markup or as an emoji, and characters
that a terminal would obey are shown instead.
"""

from collections.abc import Container, Iterable
from typing import Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ticdc_replay.domain.visible import visible_lines

_WIDTH_WITHOUT_TERMINAL = 160


class _Terminal(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        # What is shown is longer than what it stands for: cells of tables are as wide as what they show.
        return super().render_str(visible_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(visible_lines(segment.text), segment.style)
            else:
                yield segment


def terminal(*, stderr: bool = False, soft_wrap: bool = False, width: int | None = None) -> Console:
    """A console on stdout or *stderr*; with *soft_wrap* the terminal itself breaks lines, so that what is copied stays whole."""
    return _Terminal(stderr=stderr, soft_wrap=soft_wrap, width=width, markup=False, emoji=False, highlight=False)


def wide_terminal() -> Console:
    """A console on stdout that has 160 columns if it is not a terminal."""
    console = terminal()
    return console if console.is_terminal else terminal(width=_WIDTH_WITHOUT_TERMINAL)


def say(shown: RenderableType) -> None:
    """Print a result."""
    terminal(soft_wrap=True).print(shown)


def tell(text: str) -> None:
    """Print progress or a warning: on stderr, so that stdout is the result."""
    terminal(stderr=True, soft_wrap=True).print(text)


def print_json(value: Any) -> None:
    """Print *value* as JSON on a line of its own."""
    typer.echo(msgspec.json.encode(value).decode())


def table(*headings: str, right: Container[str] = ()) -> Table:
    """A table with *headings*; columns in *right* are numbers. Long cells are folded."""
    result = Table()
    for heading in headings:
        result.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return result
