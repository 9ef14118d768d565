"""Writes the figures where the README can point at them."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Stage

RESULTS = Path(__file__).parent / "RESULTS.md"


def stages_table(
    stages: Sequence[Stage], events: int, size: int, ratios: Sequence[tuple[str, float, str]], command: str
) -> str:
    """*stages* and *ratios* (name, value, goal) as Markdown."""
    lines = [
        f"`{command}`: {events:,} events, {size / 1e6:,.0f} MB of messages, {len(stages[0].seconds)} runs, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, medians.",
        "",
        "| stage | s | k events/s | µs per event | min – max s | peak MB of a worker |",
        "|---|---|---|---|---|---|",
    ]
    for stage in stages:
        rate = events / stage.median
        lines.append(
            f"| {stage.name} | {stage.median:.2f} | {rate / 1e3:,.0f} | {1e6 / rate:.1f} | "
            f"{min(stage.seconds):.2f} – {max(stage.seconds):.2f} | {stage.peak:,.0f} |"
        )
    lines += ["", "| ratio | value | goal |", "|---|---|---|"]
    lines += [f"| {name} | {value:.2f} | {goal} |" for name, value, goal in ratios]
    return "\n".join(lines)


def replace_part(name: str, text: str) -> None:
    """Put *text* into the results file as its part *name*, which is added where there is none yet."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Results\n"
    if begin not in before:
        before = f"{before.rstrip()}\n\n{begin}\n{end}\n"
    head, _, rest = before.partition(begin)
    RESULTS.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
