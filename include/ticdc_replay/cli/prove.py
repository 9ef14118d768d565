"""``ticdc-replay prove``: is what a window was pinned to still there?"""

from typing import Annotated

import msgspec
import typer

from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, opened, window_of
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.window.prove import Proof, prove, prove_manifest

EXIT_GONE = 1
"""Something is gone, and the window can be replayed all the same."""
EXIT_LOST = 3
"""The window can't be replayed any more, neither from Kafka nor from a changelog."""


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
    """Hold the manifest of a window against Kafka and the object stores, and say what of it is gone. Changes nothing.

    Exit code 0: all is there. 1: something is gone, but the window can be replayed, from Kafka or from a changelog. 3: it can't
    be replayed any more.
    """
    with opened(pipeline, connections) as context:
        if manifest is not None and from_ is None and to is None:
            proof = prove_manifest(context, manifest)
        elif manifest is None and from_ is not None and to is not None:
            proof = prove(context, window_of(from_, to))
        else:
            raise ConfigError("give a window by --from and --to, or a manifest by --manifest")
    if json:
        told = {**msgspec.to_builtins(proof), "is_replayable": proof.is_replayable}
        typer.echo(msgspec.json.encode(told).decode())
    else:
        _show(proof)
    if not proof.is_replayable:
        raise typer.Exit(EXIT_LOST)
    if proof.findings:
        raise typer.Exit(EXIT_GONE)


def _show(proof: Proof) -> None:
    console = terminal(soft_wrap=True)

    def line(text: str) -> None:
        console.print(text)

    line(f"{proof.pipeline} {proof.window}, {proof.grade or 'unreadable'}, pinned in {proof.manifest}")
    line(f"{proof.offsets:,} offsets of Kafka, {proof.objects:,} claim-check objects looked at")
    for finding in proof.findings:
        line(f"gone: {finding}")
    more = proof.missing_objects - sum(finding.kind == "object" for finding in proof.findings)
    if more > 0:
        line(f"gone: and {more:,} more objects")
    ways = []
    if proof.from_kafka:
        ways.append("from Kafka")
    if proof.from_others:
        ways.append("from what it is derived from")
    ways += [f"from changelog {run_hash}" for run_hash in proof.changelogs]
    line(f"can be replayed {', or '.join(ways)}" if ways else "can not be replayed any more")
