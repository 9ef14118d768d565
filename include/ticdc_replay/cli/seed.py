"""``ticdc-replay mirror seed``: the base load of mirrors."""

from enum import StrEnum
from typing import Annotated

import typer

from ticdc_replay.cli.replay import ConnectionsFile, PipelineFile, Tables, Targets, opened, show_report
from ticdc_replay.cli.submit import Master, submit
from ticdc_replay.cli.terminal import say
from ticdc_replay.domain import tso
from ticdc_replay.dumps.dialect import OUTPUT_DIALECTS, Dialect
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.seed.continuation import require_continuation
from ticdc_replay.stages.seed.jobs import check_base, seed_targets, write_seed_job
from ticdc_replay.stages.seed.pin import SeedRequest, dump_uri, pin_dump
from ticdc_replay.stages.window.jobs import write_load_job


class Consistency(StrEnum):
    """Values of Dumpling's ``--consistency``."""

    SNAPSHOT = "snapshot"
    AUTO = "auto"
    FLUSH = "flush"
    LOCK = "lock"
    NONE = "none"


class OutputDialect(StrEnum):
    """Values of Dumpling's ``--csv-output-dialect`` that are not its default."""

    SNOWFLAKE = "snowflake"
    REDSHIFT = "redshift"
    BIGQUERY = "bigquery"


def seed(
    pipeline: PipelineFile,
    dump: Annotated[
        str, typer.Option("--dump", help="The folder that Dumpling wrote to: a path, or s3://…, gs://…, az://…")
    ],
    consistency: Annotated[
        Consistency, typer.Option("--consistency", help="As Dumpling was given it, auto if it was not: no file says it")
    ],
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", help="Time zone of Dumpling's session, for TIMESTAMP columns, such as +00:00"),
    ] = None,
    separator: Annotated[str, typer.Option("--csv-separator", help="As Dumpling was given it")] = ",",
    delimiter: Annotated[str, typer.Option("--csv-delimiter", help="As Dumpling was given it")] = '"',
    null_value: Annotated[str, typer.Option("--csv-null-value", help="As Dumpling was given it")] = "\\N",
    line_terminator: Annotated[
        str, typer.Option("--csv-line-terminator", help="As Dumpling was given it: \\r\\n or \\n")
    ] = "\\r\\n",
    output_dialect: Annotated[
        OutputDialect | None, typer.Option("--csv-output-dialect", help="As Dumpling was given it")
    ] = None,
    no_header: Annotated[bool, typer.Option("--no-header", help="Dumpling was run with --no-header")] = False,
    escape_backslash: Annotated[
        bool,
        typer.Option(
            "--escape-backslash/--no-escape-backslash", help="Whether Dumpling escaped by backslashes (CSV, SQL)"
        ),
    ] = True,
    tables: Tables = None,
    targets: Targets = None,
    only_base: Annotated[
        bool,
        typer.Option("--only-base", help="Keep the dump as a base for `mirror rebuild`, and load it into no mirror"),
    ] = False,
    connections: ConnectionsFile = None,
    master: Master = None,
) -> None:
    """Fill empty mirrors from a dump of the upstream by Dumpling, at the TSO of its snapshot.

    Older windows change nothing in them afterwards, and newer ones continue from there. Repeat it after an error: what is
    loaded already is not loaded again.
    """
    request = SeedRequest(
        uri=dump_uri(dump),
        consistency=consistency.value,
        dialect=Dialect(
            separator=separator,
            delimiter=delimiter,
            null_value=null_value,
            line_terminator=line_terminator.replace("\\r", "\r").replace("\\n", "\n"),
            header=not no_header,
            escape_backslash=escape_backslash,
            binary=OUTPUT_DIALECTS[output_dialect.value if output_dialect is not None else ""],
        ),
        zone=timezone,
    )
    wanted = tuple(tables) if tables else None
    with opened(pipeline, connections) as context:
        names = seed_targets(context, targets)
        pinned = pin_dump(context, request, wanted)
        snapshot_ts = pinned.manifest.window.from_ts
        require_continuation(context, snapshot_ts)
        assert pinned.manifest.base is not None, "a dump was pinned"
        say(f"{request.uri}: {pinned.manifest.base.files.count} files, taken at {tso.describe(snapshot_ts)}")
        job = write_seed_job(context, pinned, request, wanted)
        submit(job.uri, context, master)
        say(check_base(context, job.run_hash, wanted).summary)
        if only_base:
            say(f"kept as base {job.run_hash}: ticdc-replay mirror rebuild … --dump-base {job.run_hash[:12]}")
            return
        for name in names:
            load = write_load_job(context, job.run_hash, name, wanted)
            begin_load(context, load.uri)
            submit(load.uri, context, master)
        show_report(publish(context, job.run_hash, names))
