"""Writes the figures where the README can point at them."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Stage

RESULTS = Path(__file__).parent / "RESULTS.md"
_BEGIN, _END = "<!-- replay begin -->", "<!-- replay end -->"


def write_results(
    stages: Sequence[Stage], events: int, size: int, ratios: Sequence[tuple[str, float, str]], command: str
) -> str:
    """Put the table of *stages* and *ratios* (name, value, goal) into the results file; the text that was put there."""
    lines = [
        _BEGIN,
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
    lines.append(_END)
    text = "\n".join(lines)
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else f"# Results\n\n{_BEGIN}\n{_END}\n"
    head, _, rest = before.partition(_BEGIN)
    RESULTS.write_text(head + text + rest.partition(_END)[2], encoding="utf-8")
    return text
