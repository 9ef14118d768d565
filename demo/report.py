"""The demo's closing report."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from demo.verify import TableComparison
from ticdc_replay.domain import tso
from ticdc_replay.stages.publish import RunReport

DIFFERENCES_SHOWN = 5


class Outcome(NamedTuple):
    """What the backfill did: a report per window, the comparison of the tables."""

    reports: Sequence[RunReport]
    comparisons: Sequence[TableComparison]

    @property
    def equal(self) -> bool:
        """Whether every table is as expected."""
        return not any(comparison.differences for comparison in self.comparisons)


def read_report(content: bytes) -> RunReport:
    """A run report from its JSON."""
    return msgspec.json.decode(content, type=RunReport)


def show(console: Console, outcome: Outcome) -> None:
    """Print the report."""
    console.print(_windows(outcome.reports))
    console.print(_tables(outcome.comparisons))
    for comparison in outcome.comparisons:
        for difference in comparison.differences[:DIFFERENCES_SHOWN]:
            console.print(f"  {difference}", style="red", markup=False)
    if outcome.equal:
        console.print("The tables equal the expected state, cell for cell.", style="bold green")
    else:
        console.print("The tables differ from the expected state.", style="bold red")


def _windows(reports: Sequence[RunReport]) -> Table:
    targets = [target.target for target in reports[0].targets] if reports else []
    table = Table(title="Windows", title_justify="left")
    table.add_column("window (UTC)")
    for name in (
        "offsets read, by partition",
        "messages",
        "events",
        "outside",
        "duplicates",
        "claim checks",
        "quarantined",
    ):
        table.add_column(name, justify="right")
    for target in targets:
        table.add_column(f"rows → {target}", justify="right")
    for report in reports:
        events = report.events
        table.add_row(
            f"{_clock(report.window.from_ts)}-{_clock(report.window.to_ts)}",
            " ".join(f"{part.partition}:{part.start}-{part.end}" for part in report.ranges),
            *(f"{number:,}" for number in (report.messages.consumed, events.rows, events.outside_window)),
            *(f"{number:,}" for number in (events.duplicates, events.claim_checks_resolved)),
            f"{sum(report.quarantine_reasons.values()):,}",
            *(f"{target.applied:,}" for target in report.targets),
        )
    return table


def _tables(comparisons: Sequence[TableComparison]) -> Table:
    table = Table(title="Tables in PostgreSQL against the expected state", title_justify="left")
    table.add_column("table")
    for name in ("rows expected", "cells compared", "differences"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        differences = len(comparison.differences)
        style = "red" if differences else "green"
        table.add_row(
            comparison.table, f"{comparison.rows:,}", f"{comparison.cells:,}", f"[{style}]{differences:,}[/{style}]"
        )
    return table


def _clock(ts: int) -> str:
    moment: datetime = tso.to_datetime(ts)
    return moment.strftime("%H:%M")
