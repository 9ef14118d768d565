"""``ticdc-replay maintain``: compaction of lake tables, and removal of what nothing needs."""

from typing import Annotated

import msgspec
import typer
from rich.filesize import decimal
from rich.table import Table

from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, Tables, Targets, opened
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import print_json, say, table
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.upkeep.maintenance import lake_targets, maintenance_of, write_maintain_job
from ticdc_replay.targets.lake.upkeep import MaintenanceReport, TableSize


def maintain(
    pipeline: PipelineFile,
    targets: Targets = None,
    tables: Tables = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sizes and what would be removed; write nothing")
    ] = False,
    connections: ConnectionsFile = None,
    master: Master = None,
    json: Annotated[bool, typer.Option("--json", help="Print the reports as JSON")] = False,
) -> None:
    """Compact the lake tables of a pipeline, and remove old snapshots, orphan files and replaced deletes.

    Loads may run meanwhile.
    """
    with opened(pipeline, connections) as context:
        names = targets or [target.name for target in lake_targets(context.pipeline)]
        if not names:
            raise ConfigError(f"pipeline {context.pipeline.name} has no target with lake tables")
        jobs = {name: write_maintain_job(context, name, tuple(tables or ()), dry_run=dry_run) for name in names}
        reports = []
        for name, job in jobs.items():
            submit(job.uri, context, master)
            reports.append(maintenance_of(context, name, job.run_hash))
    if json:
        print_json([{**msgspec.to_builtins(report), "counts": report.counts} for report in reports])
    else:
        say(_shown(reports))
        for report in reports:
            say(f"{report.target}: " + ", ".join(f"{name} {count}" for name, count in report.counts.items()))


def _shown(reports: list[MaintenanceReport]) -> Table:
    numbers = ("files", "delete files", "size", "snapshots removed", "orphans removed", "conflicts")
    shown = table("target", "table", "outcome", *numbers, right=numbers)
    for report in reports:
        for line in report.tables:
            before, after = line.before or TableSize(0, 0), line.after or TableSize(0, 0)
            shown.add_row(
                report.target,
                str(line.table),
                line.outcome,
                _change(before.files, after.files),
                _change(before.delete_files, after.delete_files),
                decimal(after.bytes),
                str(line.removed.snapshots),
                str(line.removed.files),
                str(line.conflicts),
            )
    return shown


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} to {after}"
