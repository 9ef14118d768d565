"""Charts of the pages, as the points of SVG shapes: drawn on a field of ``WIDTH`` × ``HEIGHT`` that the page stretches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 1000, 120
_GAP = 0.1
"""Between columns, as a part of what one takes with it."""


class Band(NamedTuple):
    """One layer of a stacked area. ``points`` is for ``<polygon>``."""

    kind: str
    points: str


class Block(NamedTuple):
    """One part of a stacked column, for ``<rect>``."""

    kind: str
    column: int
    x: float
    y: float
    width: float
    height: float


def stacked_areas(times: Sequence[int], layers: Mapping[str, Sequence[int]]) -> list[Band]:
    """*layers* over *times*, which ascend, the first layer at the bottom; one value a time. Empty for fewer than two times."""
    top = max(map(sum, zip(*layers.values(), strict=True)), default=0)
    if len(times) < 2 or top == 0:
        return []
    xs = [WIDTH * (time - times[0]) / max(times[-1] - times[0], 1) for time in times]
    below = [0] * len(times)
    bands = []
    for kind, values in layers.items():
        above = [lower + value for lower, value in zip(below, values, strict=True)]
        if any(values):
            outline = [*zip(xs, above, strict=True), *reversed(list(zip(xs, below, strict=True)))]
            bands.append(Band(kind, " ".join(f"{x:.1f},{_y(value, top):.1f}" for x, value in outline)))
        below = above
    return bands


def stacked_columns(columns: Sequence[Mapping[str, int]]) -> Iterator[Block]:
    """One column for each of *columns*, its parts in their order from the bottom."""
    top = max((sum(column.values()) for column in columns), default=0)
    pitch = WIDTH / (len(columns) - _GAP)  # no gap after the last one
    for number, column in enumerate(columns):
        below = 0
        for kind, value in column.items():
            if value:
                y = _y(below + value, top)
                yield Block(kind, number, number * pitch, y, pitch * (1 - _GAP), _y(below, top) - y)
            below += value


def _y(value: int, top: int) -> float:
    return HEIGHT * (1 - value / top)
