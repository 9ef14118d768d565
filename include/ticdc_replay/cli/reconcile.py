"""``ticdc-replay reconcile``: which claim-check objects are needed, which are left over, which are missing."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ticdc_replay.cli.rendering import size
from ticdc_replay.cli.replay import ConnectionsFile
from ticdc_replay.cli.store import (
    Master,
    PipelinesFolder,
    StoreFile,
    opened_store,
    survey_and_scan,
    tell,
    told_if_interrupted,
)
from ticdc_replay.cli.submit import submit
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.reconcile.judge.report import ReconciliationReport, report_name
from ticdc_replay.reconcile.judge.rules import ObjectClass, ReferenceClass
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.reconcile import take_inventory, write_reconcile_job
from ticdc_replay.store_stages.reconcile_report import publish_reconciliation

_ALERTS, _TABLES, _DAYS = 20, 30, 14
"""How much of each is shown; the report has it all."""


def reconcile(
    store: StoreFile,
    pipelines: PipelinesFolder = None,
    connections: ConnectionsFile = None,
    master: Master = "local[*]",
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
) -> None:
    """Reconcile a claim-check store with the changefeeds that write to it. Nothing is deleted.

    Exit code 1 where the report has alerts.
    """
    with (
        told_if_interrupted(lambda: "nothing was deleted, and there is no report"),
        opened_store(store, pipelines, connections) as context,
    ):
        survey = survey_and_scan(context, master)
        tell("taking the inventory of the store")
        inventory = take_inventory(context, survey)
        job = write_reconcile_job(context, survey, inventory)
        tell("joining objects with references")
        submit(job.uri, context, master)
        report = publish_reconciliation(context, job.run_hash)
        if json:
            typer.echo(msgspec.json.encode({**msgspec.to_builtins(report), "totals": report.totals()}).decode())
        else:
            _show(terminal(soft_wrap=True), context, report)
    if report.alerts:
        raise typer.Exit(1)


def _show(console: Console, context: StoreContext, report: ReconciliationReport) -> None:
    def line(text: str) -> None:
        console.print(text)

    line(f"{report.store} {report.uri}, reconciled as of {_moment(report.bounds_ms)}")
    console.print(_objects(report))
    console.print(_references(report))
    for table in (_by_table(report), _by_day(report)):
        if table.row_count:
            console.print(table)
    deletable = sum(day.deletable_bytes for day in report.summary.by_day)
    line(f"{report.summary.deletable:,} objects may be deleted ({size(deletable)})")
    for obstacle in report.obstacles:
        line(f"nothing may be deleted: {obstacle}")
    for note in report.notes:
        line(f"note: {note}")
    for alert in report.alerts[:_ALERTS]:
        line(f"alert ({alert.kind}): {alert.text}")
        for place in alert.still_from:
            line(f"    still to be had from {place}")
    if len(report.alerts) > _ALERTS:
        line(f"and {len(report.alerts) - _ALERTS} more alerts, in the report")
    line(f"report {context.artifacts.uri(report_name(report.reconciliation_id))}")


def _objects(report: ReconciliationReport) -> Table:
    table = _table("objects", "count", "bytes", "count before")
    totals = report.totals()
    for kind in ObjectClass:
        name = f"objects.{kind}"
        table.add_row(kind.value, f"{totals[name]:,}", size(totals[f"bytes.{kind}"]), _before(report, name))
    return table


def _references(report: ReconciliationReport) -> Table:
    table = _table("references", "count", "protecting", "count before")
    totals = report.totals()
    for kind in ReferenceClass:
        name = f"references.{kind}"
        protecting = sum(found.protecting for found in report.summary.references_by_table if found.kind == kind)
        table.add_row(kind.value, f"{totals[name]:,}", f"{protecting:,}", _before(report, name))
    return table


def _by_table(report: ReconciliationReport) -> Table:
    table = _table("table", "objects", "bytes", "class")
    largest = sorted(report.summary.objects_by_table, key=lambda found: (-found.bytes, found.schema, found.table))
    for found in largest[:_TABLES]:
        name = f"{found.schema}.{found.table}" if found.table else "unknown"
        table.add_row(name, f"{found.objects:,}", size(found.bytes), found.kind.value)
    return table


def _by_day(report: ReconciliationReport) -> Table:
    table = _table("day", "objects", "bytes", "class")
    last = sorted({found.day for found in report.summary.by_day})[-_DAYS:]
    for found in sorted(report.summary.by_day, key=lambda each: (each.day, each.kind)):
        if found.day in last:
            table.add_row(found.day, f"{found.objects:,}", size(found.bytes), found.kind.value)
    return table


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        right = heading not in (headings[0], "class")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    return table


def _before(report: ReconciliationReport, name: str) -> str:
    return "" if report.previous is None else f"{report.previous.totals.get(name, 0):,}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
