"""The demo's closing report."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from demo.sample import contents
from demo.verify import TableCheck
from ticdc_replay.domain import tso
from ticdc_replay.stages.load.publish import RunReport


class Outcome(NamedTuple):
    """What the backfill did: a report per window, and how the tables are."""

    reports: Sequence[RunReport]
    checks: Sequence[TableCheck]

    @property
    def miscounted(self) -> list[str]:
        """Windows with more or fewer row versions than upstream committed, one line each."""
        expected = {window.from_ts: window.row_versions for window in contents.windows()}
        return [
            f"{_clock(report.window.from_ts)}: {report.events.written} row versions, {expected[report.window.from_ts]} expected"
            for report in self.reports
            if report.events.written != expected[report.window.from_ts]
        ]

    @property
    def right(self) -> bool:
        """Whether every window and every table is as expected."""
        return not self.miscounted and all(check.equal for check in self.checks)


def read_report(content: bytes) -> RunReport:
    """A run report from its JSON."""
    return msgspec.json.decode(content, type=RunReport)


def show(console: Console, outcome: Outcome) -> None:
    """Print the report."""
    console.print(_windows(outcome.reports))
    console.print(_tables(outcome.checks))
    for check in outcome.checks:
        for difference in check.differences:
            console.print(f"  {check.system}: {check.table} {difference}", style="red", markup=False)
    for line in outcome.miscounted:
        console.print(f"  {line}", style="red", markup=False)
    if outcome.right:
        console.print("The tables equal the expected state, cell for cell.", style="bold green")
    else:
        console.print("The result differs from the expected state.", style="bold red")


def _windows(reports: Sequence[RunReport]) -> Table:
    table = Table(title="Windows", title_justify="left")
    table.add_column("window (UTC)")
    for name in (
        "offsets read, by partition",
        "messages",
        "events",
        "outside",
        "duplicates",
        "row versions",
        "claim checks",
        "quarantined",
    ):
        table.add_column(name, justify="right")
    table.add_column("rows → target", justify="right", no_wrap=True)
    for report in reports:
        events = report.events
        table.add_row(
            f"{_clock(report.window.from_ts)}-{_clock(report.window.to_ts)}",
            "\n".join(f"{part.partition}: {part.start}-{part.end}" for part in report.ranges),
            *(f"{number:,}" for number in (report.messages.consumed, events.rows, events.outside_window)),
            *(f"{number:,}" for number in (events.duplicates, events.written, events.claim_checks_resolved)),
            f"{sum(report.quarantine_reasons.values()):,}",
            "\n".join(f"{target.target}: {target.applied:,}" for target in report.targets),
        )
    return table


def _tables(checks: Sequence[TableCheck]) -> Table:
    table = Table(title="Tables", title_justify="left")
    table.add_column("in")
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("equal to the expected state")
    for check in checks:
        table.add_row(
            check.system,
            check.table,
            f"{check.rows:,}",
            "[green]yes[/green]" if check.equal else "[bold red]no[/bold red]",
        )
    return table


def _clock(ts: int) -> str:
    moment: datetime = tso.to_datetime(ts)
    return moment.strftime("%H:%M")
