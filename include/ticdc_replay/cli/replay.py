"""A window without Airflow, through the same stages: ``ticdc-replay plan``, ``run``, ``snapshot`` and ``prove``."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import print_json, say, table, tell
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError, TicdcReplayError
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext, connection_ids
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.publish import RunReport, publish
from ticdc_replay.stages.load.recording import record_decode
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job, write_series
from ticdc_replay.stages.window.pin import pin, require_input
from ticdc_replay.stages.window.plan import plan
from ticdc_replay.stages.window.plan_text import lines
from ticdc_replay.stages.window.prove import Proof, prove, prove_manifest
from ticdc_replay.stages.window.shared import decoding

PipelineFile = Annotated[Path, typer.Argument(help="The pipeline's YAML file", exists=True, dir_okay=False)]
From = Annotated[str, typer.Option("--from", help="Start of the window: a TSO, or an ISO 8601 time with a zone")]
To = Annotated[str, typer.Option("--to", help="End of the window, exclusive")]
Every = Annotated[str | None, typer.Option(help="Split the range into windows of this length, such as 30m, 1h or 1d")]
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
Repin = Annotated[bool, typer.Option("--repin", help="Pin and decode the window again even if it has a manifest")]
Tables = Annotated[list[str] | None, typer.Option("--table", help="Only tables of this pattern; repeatable")]
Targets = Annotated[list[str] | None, typer.Option("--target", help="Only this target; repeatable")]

EXIT_REFUSED = 1
"""A planned window can't be replayed completely."""
EXIT_GONE = 1
"""Something is gone, but the window can be replayed."""
EXIT_LOST = 3
"""The window can no longer be replayed, neither from Kafka nor from a changelog."""
_MOST_WINDOWS = 1_000
_TOGETHER = 24
"""How many windows share the drivers of their jobs, at most."""
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def plan_command(
    pipeline: PipelineFile,
    from_: From,
    to: To,
    every: Every = None,
    connections: ConnectionsFile = None,
    repin: Repin = False,
    policy: Pin = None,
    tables: Tables = None,
    targets: Targets = None,
    cores: Annotated[
        int | None,
        typer.Option(min=1, help="Cores of the Spark workers, for the estimate without earlier runs"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON")] = False,
) -> None:
    """Show what replaying windows would read, how long it would take, and what would stop it. Nothing is pinned or kept.

    Exit code 1 where a window can't be replayed completely.
    """
    windows = _windows(window_of(from_, to), every)
    with opened(pipeline, connections) as context:
        names = target_names(context.pipeline, targets)
        made = plan(context, windows, tables, targets=names, policy=policy, repin=repin, cores=cores)
    if json:
        print_json({**msgspec.to_builtins(made), "is_refused": made.is_refused})
    else:
        for line in lines(made):
            say(line)
    if made.is_refused:
        raise typer.Exit(EXIT_REFUSED)


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
    every: Every = None,
    connections: ConnectionsFile = None,
    repin: Repin = False,
    from_changelog: FromChangelog = False,
    policy: Pin = None,
    reload: Annotated[bool, typer.Option("--reload", help="Load again what the targets' ledgers say is done")] = False,
    tables: Tables = None,
    targets: Targets = None,
    master: Master = None,
) -> None:
    """Replay windows into the pipeline's targets: pin, decode, check, load, publish.

    Each driver decodes, or loads into one target, up to 24 of the windows, one after the other.
    """
    windows = _windows(window_of(from_, to), every)
    with opened(pipeline, connections) as context:
        names = target_names(context.pipeline, targets)
        wanted = selected_tables(context.pipeline, tables)
        for begin in range(0, len(windows), _TOGETHER):
            pinned: list[PinnedManifest] = []
            failures: list[TicdcReplayError] = []
            with _noted(failures):
                for window in windows[begin : begin + _TOGETHER]:
                    require_input(context, window, repin=repin, from_changelog=from_changelog)
                    pinned.append(pin(context, window, repin=repin, from_changelog=from_changelog, policy=policy))
                    _show_pinned(context, pinned[-1])
            failures = _replay(context, pinned, wanted, names, master, reload=reload) + failures
            if failures:
                raise failures[0]


def _replay(
    context: ReplayContext,
    windows: list[PinnedManifest],
    wanted: tuple[str, ...],
    targets: list[str],
    master: str | None,
    *,
    reload: bool,
) -> list[TicdcReplayError]:
    """Decode and load the pinned *windows*. What failed: windows before it are loaded all the same, those after it are not."""
    failures: list[TicdcReplayError] = []
    jobs = [write_decode_job(context, window, wanted) for window in windows]
    with _noted(failures), ExitStack() as held:
        leases: dict[object, AbstractContextManager[object]] = {}
        for window, job in zip(windows, jobs, strict=True):
            leases.setdefault(job.shared or job.run_hash, decoding(context, window.name, job.run_hash, job.shared))
        for lease in leases.values():
            held.enter_context(lease)
        if jobs:
            submit(write_series(context, jobs), context, master)
        for job in jobs:
            record_decode(context, read_index(context.artifacts, job.run_hash))
    runs: list[str] = []
    if failures and len(jobs) == 1:
        return failures
    with _noted(failures):
        for job in jobs:
            say(check(context, job.run_hash, wanted).summary)
            runs.append(job.run_hash)
    for name in targets if runs else ():
        with _noted(failures):
            loads = [write_load_job(context, run_hash, name, wanted, reload=reload) for run_hash in runs]
            # A reload that has begun says so of its window: of one alone, in case it fails.
            for together in [[load] for load in loads] if reload else [loads]:
                for load in together:
                    begin_load(context, load.uri)
                submit(write_series(context, together), context, master)
    with _noted(failures):
        for run_hash in runs:
            show_report(publish(context, run_hash, targets))
    return failures


@contextmanager
def _noted(failures: list[TicdcReplayError]) -> Iterator[None]:
    """Adds what fails inside, and ends it, to *failures*."""
    try:
        yield
    except TicdcReplayError as error:
        failures.append(error)


def prove_command(
    pipeline: PipelineFile,
    from_: Annotated[str | None, typer.Option("--from", help="Start of the window: a TSO, or an ISO 8601 time")] = None,
    to: Annotated[str | None, typer.Option("--to", help="End of the window, exclusive")] = None,
    manifest: Annotated[
        str | None, typer.Option("--manifest", help="In place of a window: a manifest's URI, file name or input_hash")
    ] = None,
    connections: ConnectionsFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON")] = False,
) -> None:
    """Compare the manifest of a window with Kafka and the object stores, and list what is gone. Changes nothing.

    Exit code 0: all is there.
    1: something is gone, but the window can be replayed, from Kafka or from a changelog.
    2: it could not look.
    3: the window can no longer be replayed.
    """
    with opened(pipeline, connections) as context:
        if manifest is not None and from_ is None and to is None:
            proof = prove_manifest(context, manifest)
        elif manifest is None and from_ is not None and to is not None:
            proof = prove(context, window_of(from_, to))
        else:
            raise ConfigError("give a window by --from and --to, or a manifest by --manifest")
    if json:
        print_json({**msgspec.to_builtins(proof), "is_replayable": proof.is_replayable})
    else:
        _show_proof(proof)
    if not proof.is_replayable:
        raise typer.Exit(EXIT_LOST)
    if proof.findings:
        raise typer.Exit(EXIT_GONE)


@contextmanager
def opened(pipeline: Path, file: Path | None) -> Iterator[ReplayContext]:
    """The context of *pipeline*, with connections out of *file* or the environment; its warnings are shown."""
    loaded = load_pipeline(pipeline)
    for warning in loaded.warnings:
        tell(f"warning: {warning}")
    named = loaded.pipeline.connections
    connections = load_connections(file, connection_ids(loaded.pipeline), named.artifacts, named.spark)
    with ReplayContext(loaded, connections) as context:
        yield context


def window_of(from_: str, to: str) -> Window:
    """The window of the options. Raises ConfigError where they name none."""
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
    numbers = ("partition", "start", "end", "messages", "resolved-ts")
    partitions = table("topic", *numbers, right=numbers)
    for topic in manifest.topics:
        for partition in topic.partitions:
            part = partition.range
            resolved = "none" if partition.resolved_ts is None else str(partition.resolved_ts)
            cells = (part.partition, part.start, part.end, part.length, resolved)
            partitions.add_row(topic.topic, *[str(cell) for cell in cells])
    say(f"{manifest.pipeline} {manifest.window}")
    say(partitions)
    say(f"{manifest.grade}, pinned in {context.artifacts.uri(pinned.name)}")
    for source in manifest.derived:
        say(f"{source.window} is taken from changelog {source.run_hash}")
    if manifest.shared is not None:
        say(f"taken from the decode of {manifest.shared.window}")
    for reason in manifest.reasons:
        say(f"not proven: {reason}")


def show_report(report: RunReport) -> None:
    """Print what a run did."""
    events = report.events
    say(
        f"run {report.run_hash}\n{report.messages.consumed} messages, {events.rows} row events, "
        f"{events.outside_window} outside the window, {events.duplicates} duplicates, "
        f"{events.claim_checks_resolved} claim checks resolved, {events.written} row versions, "
        f"{sum(report.quarantine_reasons.values())} quarantined; {report.grade}",
    )
    tables = table("target", "table", "outcome", "upserted", "deleted", "superseded", "quarantined")
    for target in report.targets:
        for line in target.tables:
            counts = (line.upserted, line.deleted, line.superseded, line.quarantined)
            tables.add_row(target.target, line.destination, line.outcome, *[str(count) for count in counts])
    say(tables)


def _windows(whole: Window, every: str | None) -> list[Window]:
    if every is None:
        return [whole]
    given = re.fullmatch(r"([1-9]\d*)([mhd])", every)
    if given is None:
        raise ConfigError(f"--every: {every!r} is not the length of a window, such as 30m, 1h or 1d")
    length = tso.from_ms(int(given[1]) * _UNITS_MS[given[2]])
    starts = range(whole.from_ts, whole.to_ts, length)
    if len(starts) > _MOST_WINDOWS:
        raise ConfigError(f"--every: {every} gives {len(starts)} windows; {_MOST_WINDOWS} at most")
    return [Window(start, min(start + length, whole.to_ts)) for start in starts]


def _show_proof(proof: Proof) -> None:
    say(f"{proof.pipeline} {proof.window}, {proof.grade or 'unreadable'}, pinned in {proof.manifest}")
    say(f"{proof.offsets:,} offsets of Kafka, {proof.objects:,} claim-check objects looked at")
    for finding in proof.findings:
        say(f"gone: {finding}")
    more = proof.missing_objects - sum(finding.kind == "object" for finding in proof.findings)
    if more > 0:
        say(f"gone: and {more:,} more objects")
    ways = []
    if proof.from_kafka:
        ways.append("from Kafka")
    if proof.from_others:
        ways.append("from what it is taken from")
    ways += [f"from changelog {run_hash}" for run_hash in proof.changelogs]
    say(f"can be replayed {', or '.join(ways)}" if ways else "can no longer be replayed")
