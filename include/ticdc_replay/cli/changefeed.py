"""``ticdc-replay changefeed``: what was understood of a changefeed's configuration."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from ticdc_replay.changefeed.sink_uri import ParsedChangefeed, from_info, from_sink_uri
from ticdc_replay.cli.terminal import wide_terminal
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.window.changefeed import ChangefeedSummary, summarize


def changefeed(
    pipeline: Annotated[Path | None, typer.Argument(help="Pipeline YAML", exists=True, dir_okay=False)] = None,
    sink_uri: Annotated[
        str | None, typer.Option(help="The changefeed's --sink-uri without secrets, instead of PIPELINE")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Its TOML file, with --sink-uri", exists=True, dir_okay=False)
    ] = None,
    schema_registry: Annotated[
        str | None, typer.Option(help="Its --schema-registry, with --sink-uri or --info")
    ] = None,
    info: Annotated[
        Path | None,
        typer.Option(help="What `cdc cli changefeed query` prints, instead of PIPELINE", exists=True, dir_okay=False),
    ] = None,
    timezone: Annotated[str, typer.Option(help="Zone of the TiCDC server, with --sink-uri or --info")] = "UTC",
    json: Annotated[bool, typer.Option("--json", help="As one JSON object")] = False,
) -> None:
    """Show what was understood of a changefeed's configuration.

    Its topics and dispatch, the best grade of windows, what the Kafka connection needs, and warnings.
    """
    if [pipeline, sink_uri, info].count(None) != 2:
        raise ConfigError("say what to show by exactly one of PIPELINE, --sink-uri and --info")
    if sink_uri is None and config is not None:
        raise ConfigError("--config goes with --sink-uri; a pipeline and --info have the changefeed's TOML in them")
    if pipeline is not None and schema_registry is not None:
        raise ConfigError(
            "--schema-registry goes with --sink-uri or --info; in a pipeline it is changefeed.schema_registry"
        )
    if pipeline is not None:
        loaded = load_pipeline(pipeline)
        parsed = ParsedChangefeed(
            loaded.changefeed, loaded.warnings, loaded.access, loaded.registry, loaded.start_ts, loaded.target_ts
        )
    elif info is not None:
        parsed = from_info(_text(info), timezone, str(info), schema_registry)
    else:
        assert sink_uri is not None
        toml = "" if config is None else _text(config)
        parsed = from_sink_uri(sink_uri, toml, timezone, "--sink-uri", str(config or "--config"), schema_registry)
    summary = summarize(parsed)
    if json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    else:
        _show(summary)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None


def _show(summary: ChangefeedSummary) -> None:
    console = wide_terminal()
    about = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    about.add_column(style="dim", no_wrap=True)
    about.add_column(overflow="fold")
    for name, text in _lines(summary):
        about.add_row(name, text)
    console.print(about)
    console.print(_rules(summary))
    fields = Table("field of the Kafka connection", "value", "", title="to reach the brokers as TiCDC does")
    for field in summary.kafka_connection:
        fields.add_row(field.name, field.value or "…", field.note)
    console.print(fields)
    for warning in summary.warnings:
        console.print(f"warning: {warning}", style="yellow")


def _lines(summary: ChangefeedSummary) -> list[tuple[str, str]]:
    partitions = "as many as it has" if summary.partition_num is None else str(summary.partition_num)
    lines = [
        ("protocol", summary.protocol),
        ("messages carry", ", ".join(summary.carries) or "rows and nothing else"),
        ("windows", "; ".join([summary.windows, *summary.windows_why])),
        ("default topic", f"{summary.default_topic}, partitions: {partitions}"),
        ("largest message", f"{summary.max_message_bytes:,} bytes, compressed inside: {summary.compression}"),
        ("large messages", ", ".join(filter(None, [summary.large_messages, summary.claim_check_uri]))),
        ("schema registry", summary.schema_registry or "none"),
        ("row checksums", "yes" if summary.row_checksum else "no"),
    ]
    if summary.column_selectors:
        lines.append(("column selectors", f"{summary.column_selectors}: events lack columns"))
    if summary.start_ts is not None:
        lines.append(("starts at", tso.describe(summary.start_ts)))
    if summary.target_ts is not None:
        lines.append(("ends at", tso.describe(summary.target_ts)))
    return lines


def _rules(summary: ChangefeedSummary) -> Table:
    table = Table("tables", "topic", "partition by", "in events", "versions of a row", title="the first rule counts")
    for rule in summary.rules:
        scattered = "scatter" if rule.scatters else "stay in one partition"
        table.add_row(
            ", ".join(rule.tables), rule.topic, rule.partition, rule.events_are_named or "as they are", scattered
        )
    return table
