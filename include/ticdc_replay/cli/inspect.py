"""``ticdc-replay inspect``: Kafka messages as a person reads them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from msgspec.structs import replace

from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.cli import rendering
from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.terminal import terminal
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.registry import UsedSchemas, open_registry
from ticdc_replay.schemas.lookup import SchemaLookup

_WIDTH_WITHOUT_TERMINAL = 160


class Source(NamedTuple):
    """Messages, and the configuration they were written with."""

    changefeed: Changefeed
    schemas: SchemaLookup
    messages: Iterator[RawMessage]


def inspect(
    capture: Annotated[Path | None, typer.Option(help="Folder of a capture")] = None,
    pipeline: Annotated[Path | None, typer.Option(help="Pipeline YAML: its topic, with its protocol")] = None,
    connections: Annotated[Path | None, typer.Option(help="YAML of connections, for --pipeline")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="Brokers without a pipeline: host:port,…")] = None,
    topic: Annotated[
        str | None, typer.Option(help="Topic, for --bootstrap; for --pipeline if not the default one")
    ] = None,
    protocol: Annotated[str, typer.Option(help="As in the sink-uri, for --bootstrap")] = "open-protocol",
    partition: Annotated[int, typer.Option(min=0)] = 0,
    start: Annotated[int | None, typer.Option("--from", min=0, help="First offset; the oldest if absent")] = None,
    end: Annotated[int | None, typer.Option("--to", min=0, help="Offset after the last; the newest if absent")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Messages to show at most")] = 50,
) -> None:
    """Show messages of a capture, or of a range of one Kafka partition, with the events in them.

    Claim-check objects are not fetched: what is shown is what Kafka holds. Exit code 1 when anything could not be decoded.
    """
    if [capture, pipeline, bootstrap].count(None) != 2:
        raise ConfigError("say what to read by exactly one of --capture, --pipeline and --bootstrap")
    if capture is not None:
        source = _of_capture(Capture(capture), partition, start, end)
    elif pipeline is not None:
        loaded = load_pipeline(pipeline)
        named = loaded.pipeline.connections
        ids = [conn_id for conn_id in (named.kafka, named.schema_registry) if conn_id is not None]
        known = load_connections(connections, ids)
        schemas = SchemaLookup(writer_schemas=UsedSchemas(open_registry(known.get(named.schema_registry))))
        changefeed = loaded.changefeed if topic is None else replace(loaded.changefeed, topic=topic)
        source = _of_topic(known[named.kafka], changefeed, schemas, partition, start, end)
    else:
        if topic is None:
            raise ConfigError("--bootstrap needs --topic")
        kafka = Connection("--bootstrap", "kafka", extra={"bootstrap.servers": bootstrap})
        changefeed = Changefeed(protocol=protocol, topic=topic, timezone="UTC")
        source = _of_topic(kafka, changefeed, SchemaLookup(), partition, start, end)
    codec = codec_for(source.changefeed, LimitsSection().decompressed_max_bytes, source.schemas)
    console = terminal()
    if not console.is_terminal:
        console = terminal(width=_WIDTH_WITHOUT_TERMINAL)
    shown = bad = 0
    for raw in islice(source.messages, limit):
        events = codec.decode(raw)
        bad += sum(isinstance(event, Undecodable) for event in events)
        console.print(rendering.message(raw, events))
        shown += 1
    if not shown:
        terminal(stderr=True).print(f"partition {partition} holds no message in this range")
    if bad:
        raise typer.Exit(1)


def _of_capture(capture: Capture, partition: int, start: int | None, end: int | None) -> Source:
    messages = (
        message
        for message in capture.messages()
        if message.partition == partition and message.offset >= (start or 0) and (end is None or message.offset < end)
    )
    return Source(capture.changefeed(), lookup_in(capture, LimitsSection().decompressed_max_bytes), messages)


def _of_topic(
    kafka: Connection,
    changefeed: Changefeed,
    schemas: SchemaLookup,
    number: int,
    start: int | None,
    end: int | None,
) -> Source:
    from ticdc_replay.kafka.offsets import Offsets, Partition
    from ticdc_replay.kafka.reader import read_range
    from ticdc_replay.kafka.settings import KafkaSettings

    settings = KafkaSettings.from_connection(kafka, changefeed.max_message_bytes)
    partition = Partition(changefeed.topic, number)
    with Offsets(settings) as offsets:
        known = offsets.topics([changefeed.topic]).get(changefeed.topic)
        if known is None or partition not in known.partitions:
            raise ConfigError(f"{partition} does not exist at Kafka {settings.where}")
        held = offsets.bounds([partition])[partition]
    first = held.low if start is None else start
    last = held.high if end is None else end
    batches = read_range(settings, OffsetRange(changefeed.topic, number, first, last))
    return Source(changefeed, schemas, (message for batch in batches for message in batch))
