"""``ticdc-replay coverage``: which windows the targets hold, and the gaps."""

from contextlib import closing
from typing import Annotated

import typer

from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, Targets, target_names
from ticdc_replay.cli.terminal import print_json, say, table
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import open_pipeline_state
from ticdc_replay.stages.load.coverage import Covered, Gap, TargetCoverage, coverage

EXIT_GAP = 1
"""A target that was asked about has a gap."""


def coverage_command(
    pipeline: PipelineFile,
    targets: Targets = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Show each table too, not only the target as a whole")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON: windows as pairs of TSO")] = False,
    connections: ConnectionsFile = None,
) -> None:
    """Show which windows each target holds, how well they are proven, and the gaps between them.

    Reads the state store alone. Exit code 1 where a target has a gap.
    """
    declared = load_pipeline(pipeline).pipeline
    names, named = target_names(declared, targets), declared.connections
    found = load_connections(connections, [named.state] if named.state else [], named.artifacts)
    with closing(open_pipeline_state(declared, found)) as state:
        covered = [each for each in coverage(declared, state) if each.target.name in names]
    if json:
        print_json(covered)
    else:
        for each in covered:
            _show(each, with_tables=tables)
    if any(each.target.gaps for each in covered):
        raise typer.Exit(EXIT_GAP)


def _show(found: TargetCoverage, *, with_tables: bool) -> None:
    shown = [found.target, *(found.tables if with_tables else ())]
    if not any(each.spans or each.gaps for each in shown):
        say(f"{found.target.name}: nothing is loaded yet")
        return
    windows = table(*(["table"] if with_tables else []), "from", "to", "state", "proof")
    windows.title, windows.title_justify = found.target.name, "left"
    for each in shown:
        name = [] if not with_tables else ["(all)" if each is found.target else each.name]
        for window, state, grade in _stretches(each):
            windows.add_row(*name, tso.describe(window.from_ts), tso.describe(window.to_ts), state, grade)
    say(windows)
    for window in found.derived:
        say(f"taken from changelogs, not from Kafka: {window}")


def _stretches(covered: Covered) -> list[tuple[Window, str, str]]:
    """Windows in order, each with its state and how well it is proven."""
    held = [(span.window, span.held.quality, span.held.grade) for span in covered.spans]
    return sorted([*held, *((gap.window, _missing(gap), "") for gap in covered.gaps)])


def _missing(gap: Gap) -> str:
    if gap.elsewhere:
        return f"gap: loaded elsewhere ({'; '.join(gap.elsewhere)})"
    return "gap: some tables only, or a load that did not end" if gap.partial else "gap"
