"""``ticdc-replay verify``: whether mirrors are what the upstream was at a TSO."""

from enum import StrEnum
from typing import Annotated

import typer

from ticdc_replay.cli.mirror_names import Mirror, mirror_name
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, Tables, opened
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import print_json, say, table, tell
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.stages.upkeep.verify import verify
from ticdc_replay.stages.upkeep.verify_changelogs import verify_changelogs
from ticdc_replay.verify.compare import RANGE_ROWS, Pace
from ticdc_replay.verify.findings import TableVerification


class Against(StrEnum):
    """What mirrors are compared with."""

    SOURCE = "source"
    CHANGELOGS = "changelogs"


EXIT_DIFFERS = 1
"""A mirror is not what the upstream was."""
_SHOWN = 20
"""Differing rows of a table on the terminal; the report has up to 1,000."""


def verify_command(
    pipeline: PipelineFile,
    target: Mirror = None,
    tables: Tables = None,
    at: Annotated[
        str | None,
        typer.Option(help="TSO, or ISO 8601 time with a zone, of the upstream; the end of what is loaded if absent"),
    ] = None,
    share: Annotated[
        float, typer.Option(help="Share of the time that the upstream may work for this; 1: no pauses")
    ] = 0.5,
    range_rows: Annotated[int, typer.Option("--range-rows", min=1_000, help="Rows of one statement")] = RANGE_ROWS,
    against: Annotated[
        Against, typer.Option(help="What mirrors are compared with: the upstream, or their base and changelogs")
    ] = Against.SOURCE,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew; do not go on where an attempt broke")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON")] = False,
    connections: ConnectionsFile = None,
    master: Master = None,
) -> None:
    """Compare a target's mirrors with the upstream, by checksums in both databases, and row by row where these differ.

    Needs connections.source, and a tidb_gc_life_time that is longer than the comparison takes. With --against changelogs the
    upstream is not asked: base and changelogs are loaded into mirrors beside. Exit code 1 where a mirror differs.
    """
    if against is Against.CHANGELOGS and (at is not None or restart):
        raise ConfigError("--at and --restart are for comparisons with the upstream")
    if not 0 < share <= 1:
        raise ConfigError(f"--share: {share} is not above 0 and at most 1")
    try:
        moment = None if at is None else tso.parse(at)
    except ValueError as error:
        raise ConfigError(f"--at: {error}") from None
    with opened(pipeline, connections) as context:
        name, patterns, pace = mirror_name(context, target), tables or ("*.*",), Pace(share, range_rows)
        if against is Against.CHANGELOGS:
            report = verify_changelogs(
                context, name, lambda uri: submit(uri, context, master), patterns, pace=pace, tell=tell
            )
        else:
            report = verify(
                context,
                name,
                patterns,
                at=moment,
                pace=pace,
                restart=restart,
                submit=lambda uri: submit(uri, context, master),
                tell=tell,
            )
        uri = context.artifacts.uri(report.name)
    if json:
        print_json(report)
    else:
        _show(report)
    tell(f"report: {uri}")
    if not report.is_equal:
        raise typer.Exit(EXIT_DIFFERS)


def _show(report: Verification) -> None:
    counts = ("source rows", "mirror rows", "missing", "extra", "changed", "newer")
    summary = table("table", "as of", *counts, "outcome", right=counts)
    for each in report.tables:
        found = each.findings
        numbers = (found.source_rows, found.mirror_rows, found.missing, found.extra, found.changed, found.newer)
        summary.add_row(str(each.table), tso.describe(each.at), *(f"{number:,}" for number in numbers), each.outcome)
    say(summary)
    for each in report.tables:
        _show_table(each)
    if report.without_mirror:
        say(f"not compared, without a mirror: {', '.join(map(str, report.without_mirror))}")


def _show_table(found: TableVerification) -> None:
    for problem in found.problems:
        say(f"{found.table}: {problem}")
    differences = found.findings.differences
    if differences:
        rows = table("row", "key", "columns", "version in the mirror", "window")
        rows.title, rows.title_justify = f"{found.table} ({', '.join(found.key)})", "left"
        for each in differences[:_SHOWN]:
            version = tso.describe(each.version) if each.version else ""
            if each.kind == "missing" and version:
                version = f"deleted at {version}"
            window = "" if each.window is None else str(each.window)
            rows.add_row(each.kind, ", ".join(each.key), ", ".join(each.columns), version, window)
        say(rows)
    listed = len(differences)
    if listed > _SHOWN:
        say(f"{found.table}: {listed - _SHOWN:,} more differing rows are in the report")
    if found.findings.unexamined:
        say(f"{found.table}: {found.findings.unexamined:,} more ranges differ, with too many rows to list")
    for note in found.notes if found.outcome == "differs" or found.findings.newer else ():
        say(f"{found.table}: {note}")
