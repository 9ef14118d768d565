"""``ticdc-replay snapshot`` and ``ticdc-replay run``: a window without Airflow, through the same stages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.submit import submit
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext, connection_ids
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.publish import RunReport, publish
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin, require_input
from ticdc_replay.stages.window.shared import decoding

PipelineFile = Annotated[Path, typer.Argument(help="The pipeline's YAML file", exists=True, dir_okay=False)]
From = Annotated[str, typer.Option("--from", help="Start of the window: a TSO, or an ISO 8601 time with a zone")]
To = Annotated[str, typer.Option("--to", help="End of the window, exclusive")]
ConnectionsFile = Annotated[
    Path | None,
    typer.Option("--connections", help="Private YAML file of connections by id; else AIRFLOW_CONN_<ID> variables"),
]
FromChangelog = Annotated[
    bool,
    typer.Option(
        "--from-changelog",
        help="Take the window from changelogs that hold it, not from Kafka; with --repin where it has a manifest",
    ),
]
Pin = Annotated[
    PinPolicy | None,
    typer.Option(
        "--pin", help="Where the window ends in Kafka, in place of window.pin; with --repin where it has a manifest"
    ),
]
Repin = Annotated[bool, typer.Option("--repin", help="Pin anew even if the window has a manifest, and decode anew")]


def snapshot(
    pipeline: PipelineFile,
    from_: From,
    to: To,
    connections: ConnectionsFile = None,
    repin: Repin = False,
    from_changelog: FromChangelog = False,
    policy: Pin = None,
) -> None:
    """Pin a window: find its offsets, prove that they are complete, write the manifest."""
    window = window_of(from_, to)
    with opened(pipeline, connections) as context:
        require_input(context, window, repin=repin, from_changelog=from_changelog)
        _show_pinned(context, pin(context, window, repin=repin, from_changelog=from_changelog, policy=policy))


def run(
    pipeline: PipelineFile,
    from_: From,
    to: To,
    connections: ConnectionsFile = None,
    repin: Repin = False,
    from_changelog: FromChangelog = False,
    policy: Pin = None,
    reload: Annotated[bool, typer.Option("--reload", help="Load again what the targets' ledgers say is done")] = False,
    tables: Annotated[list[str] | None, typer.Option("--table", help="Only tables of this pattern; repeatable")] = None,
    targets: Annotated[list[str] | None, typer.Option("--target", help="Only this target; repeatable")] = None,
    master: Annotated[str, typer.Option(help="Spark master URL")] = "local[*]",
) -> None:
    """Replay a window into the pipeline's targets: pin, decode, check, load, publish."""
    window = window_of(from_, to)
    with opened(pipeline, connections) as context:
        names = target_names(context.pipeline, targets)
        wanted = selected_tables(context.pipeline, tables)
        require_input(context, window, repin=repin, from_changelog=from_changelog)
        pinned = pin(context, window, repin=repin, from_changelog=from_changelog, policy=policy)
        _show_pinned(context, pinned)
        job = write_decode_job(context, pinned, wanted)
        with decoding(context, pinned.name, job.run_hash, job.shared):
            submit(job.uri, context, master)
            terminal().print(check(context, job.run_hash, wanted).summary)
        for name in names:
            load = write_load_job(context, job.run_hash, name, wanted, reload=reload)
            begin_load(context, load.uri)
            submit(load.uri, context, master)
        _show_report(publish(context, job.run_hash, names))


@contextmanager
def opened(pipeline: Path, file: Path | None) -> Iterator[ReplayContext]:
    """The context of *pipeline*, with connections out of *file* or the environment; its warnings are shown."""
    loaded = load_pipeline(pipeline)
    for warning in loaded.warnings:
        terminal(stderr=True).print(f"warning: {warning}")
    connections = load_connections(file, connection_ids(loaded.pipeline), loaded.pipeline.connections.artifacts)
    with ReplayContext(loaded, connections) as context:
        yield context


def window_of(from_: str, to: str) -> Window:
    """The window that the options say. Raises ConfigError where they say none."""
    try:
        return Window(tso.parse(from_), tso.parse(to))
    except ValueError as error:
        raise ConfigError(f"--from and --to: {error}") from None


def target_names(pipeline: Pipeline, wanted: list[str] | None) -> list[str]:
    """The targets that ``--target`` names, without it all. Raises ConfigError for one that the pipeline does not have."""
    known = [target.name for target in pipeline.targets]
    unknown = sorted(set(wanted or ()) - set(known))
    if unknown:
        raise ConfigError(f"--target: {', '.join(unknown)} is not in the pipeline; its targets: {', '.join(known)}")
    return list(dict.fromkeys(wanted)) if wanted else known


def _show_pinned(context: ReplayContext, pinned: PinnedManifest) -> None:
    manifest = pinned.manifest
    table = Table()
    for heading in ("topic", "partition", "start", "end", "messages", "resolved-ts"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for topic in manifest.topics:
        for partition in topic.partitions:
            part = partition.range
            resolved = "none" if partition.resolved_ts is None else str(partition.resolved_ts)
            cells = (part.partition, part.start, part.end, part.length, resolved)
            table.add_row(topic.topic, *[str(cell) for cell in cells])
    console = terminal(soft_wrap=True)  # what is to be copied stays in one piece
    console.print(f"{manifest.pipeline} {manifest.window}")
    console.print(table)
    console.print(f"{manifest.grade}, pinned in {context.artifacts.uri(pinned.name)}")
    for source in manifest.derived:
        console.print(f"{source.window} is taken from changelog {source.run_hash}")
    if manifest.shared is not None:
        console.print(f"taken from the decode of {manifest.shared.window}")
    for reason in manifest.reasons:
        console.print(f"not proven: {reason}")


def _show_report(report: RunReport) -> None:
    events = report.events
    console = terminal()
    console.print(
        f"run {report.run_hash}\n{report.messages.consumed} messages, {events.rows} row events, "
        f"{events.outside_window} outside the window, {events.duplicates} duplicates, "
        f"{events.claim_checks_resolved} claim checks resolved, {events.written} row versions, "
        f"{sum(report.quarantine_reasons.values())} quarantined; {report.grade}",
    )
    table = Table()
    for heading in ("target", "table", "outcome", "upserted", "deleted", "superseded", "quarantined"):
        table.add_column(heading)
    for target in report.targets:
        for line in target.tables:
            counts = (line.upserted, line.deleted, line.superseded, line.quarantined)
            table.add_row(target.target, line.destination, line.outcome, *[str(count) for count in counts])
    console.print(table)
