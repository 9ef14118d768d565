"""What the verbs that work on a claim-check store have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.submit import submit
from ticdc_replay.cli.terminal import tell
from ticdc_replay.config.load_store import LoadedStore, load_store
from ticdc_replay.store_stages.context import StoreContext, store_connection_ids
from ticdc_replay.store_stages.reconcile import record_scan, survey

StoreFile = Annotated[Path, typer.Argument(help="The store's YAML file", exists=True, dir_okay=False)]
PipelinesFolder = Annotated[
    Path | None,
    typer.Option(
        "--pipelines", help="Folder of the pipelines' YAML files; else pipelines beside the folder of the store's file"
    ),
]

_EXIT_INTERRUPTED = 130
"""The exit code that a shell gives a command that Ctrl-C ended."""

Doing = Literal["reconciling", "deciding", "deleting", "undoing"]
"""What a verb does: it resolves only the connections for that."""


@contextmanager
def opened_store(
    file: Path, pipelines: Path | None, connections: Path | None, doing: Doing = "reconciling"
) -> Iterator[StoreContext]:
    """The context of the store in *file*, with connections out of the file *connections* or the environment.

    Warnings are shown.
    """
    loaded = load_store(file, pipelines if pipelines is not None else file.resolve().parent.parent / "pipelines")
    warnings = [warning for listed in loaded.pipelines for warning in listed.warnings]
    for warning in [*warnings, *(f"owners are not complete: {each}" for each in loaded.unlisted)]:
        tell(f"warning: {warning}")
    ids = [each for each in _connections(loaded, doing) if each is not None]
    named = loaded.store.connections
    with StoreContext(loaded, load_connections(connections, ids, named.artifacts, named.spark)) as context:
        yield context


def _connections(loaded: LoadedStore, doing: Doing) -> list[str | None]:
    named = loaded.store.connections
    match doing:
        case "reconciling":
            return [*store_connection_ids(loaded)]
        case "deciding":
            return [named.artifacts, named.state]
        case "deleting":
            return [*store_connection_ids(loaded), named.deletion]
        case "undoing":
            return [named.artifacts, named.state, named.undo]


def survey_and_scan(context: StoreContext, master: str | None) -> str:
    """Survey Kafka, and scan what nobody has searched for references; the survey's name."""
    tell(f"surveying {len(context.pipelines)} changefeeds")
    surveyed = survey(context)
    if surveyed.scan_job is None:
        tell("every retained offset has been searched before")
        return surveyed.name
    submit(surveyed.scan_job.uri, context, master)
    for feed in record_scan(context, surveyed.scan_job.uri).feeds:
        tell(
            f"scanned {feed.pipeline}: {feed.counts.messages} messages, {feed.counts.references} references, "
            f"{len(feed.unsearched)} that can't be searched"
        )
    return surveyed.name


@contextmanager
def stated_if_interrupted(state: Callable[[], str]) -> Iterator[None]:
    """Where Ctrl-C ends the verb, print *state* in one line and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        tell(f"interrupted: {state()}")
        raise typer.Exit(_EXIT_INTERRUPTED) from None
