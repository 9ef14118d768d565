"""``ticdc-replay reconcile``: which claim-check objects are needed, which are left over, which are missing."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from ticdc_replay.cli.rendering import size
from ticdc_replay.cli.replay import ConnectionsFile
from ticdc_replay.cli.store import PipelinesFolder, StoreFile, opened_store, stated_if_interrupted, survey_and_scan
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import print_json, say, table, tell
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
    master: Master = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
) -> None:
    """Reconcile a claim-check store with the changefeeds that write to it. Nothing is deleted.

    Exit code 1 where the report has alerts.
    """
    with (
        stated_if_interrupted(lambda: "nothing was deleted, and there is no report"),
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
            print_json({**msgspec.to_builtins(report), "totals": report.totals()})
        else:
            _show(context, report)
    if report.alerts:
        raise typer.Exit(1)


def _show(context: StoreContext, report: ReconciliationReport) -> None:
    say(f"{report.store} {report.uri}, reconciled as of {_moment(report.evidence.bounds_ms)}")
    say(_objects(report))
    say(_references(report))
    for counted in (_by_table(report), _by_day(report)):
        if counted.row_count:
            say(counted)
    deletable = sum(day.deletable_bytes for day in report.summary.by_day)
    say(f"{report.summary.deletable:,} objects may be deleted ({size(deletable)})")
    for obstacle in report.obstacles:
        say(f"nothing may be deleted: {obstacle}")
    for note in report.notes:
        say(f"note: {note}")
    for alert in report.alerts[:_ALERTS]:
        say(f"alert ({alert.kind}): {alert.text}")
        for place in alert.still_from:
            say(f"    still available from {place}")
    if len(report.alerts) > _ALERTS:
        say(f"and {len(report.alerts) - _ALERTS} more alerts, in the report")
    say(f"report {context.artifacts.uri(report_name(report.reconciliation_id))}")


def _objects(report: ReconciliationReport) -> Table:
    counts = table("objects", "count", "bytes", "count before", right=("count", "bytes", "count before"))
    totals = report.totals()
    for kind in ObjectClass:
        name = f"objects.{kind}"
        counts.add_row(kind.value, f"{totals[name]:,}", size(totals[f"bytes.{kind}"]), _before(report, name))
    return counts


def _references(report: ReconciliationReport) -> Table:
    counts = table("references", "count", "protecting", "count before", right=("count", "protecting", "count before"))
    totals = report.totals()
    for kind in ReferenceClass:
        name = f"references.{kind}"
        protecting = sum(found.protecting for found in report.summary.references_by_table if found.kind == kind)
        counts.add_row(kind.value, f"{totals[name]:,}", f"{protecting:,}", _before(report, name))
    return counts


def _by_table(report: ReconciliationReport) -> Table:
    counts = table("table", "objects", "bytes", "class", right=("objects", "bytes"))
    largest = sorted(report.summary.objects_by_table, key=lambda found: (-found.bytes, found.schema, found.table))
    for found in largest[:_TABLES]:
        name = f"{found.schema}.{found.table}" if found.table else "unknown"
        counts.add_row(name, f"{found.objects:,}", size(found.bytes), found.kind.value)
    return counts


def _by_day(report: ReconciliationReport) -> Table:
    counts = table("day", "objects", "bytes", "class", right=("objects", "bytes"))
    last = sorted({found.day for found in report.summary.by_day})[-_DAYS:]
    for found in sorted(report.summary.by_day, key=lambda each: (each.day, each.kind)):
        if found.day in last:
            counts.add_row(found.day, f"{found.objects:,}", size(found.bytes), found.kind.value)
    return counts


def _before(report: ReconciliationReport, name: str) -> str:
    return "" if report.previous is None else f"{report.previous.totals.get(name, 0):,}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
