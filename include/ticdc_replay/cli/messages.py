"""``ticdc-replay decode`` and ``ticdc-replay inspect``: messages of a capture or of Kafka, and the events in them."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from msgspec.structs import replace

from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.cli import rendering
from ticdc_replay.cli.connections import load_connections
from ticdc_replay.cli.terminal import tell, wide_terminal
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import DdlEvent, Event, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.large_messages.claim_check import ClaimCheckResolver, Fetched
from ticdc_replay.registry import UsedSchemas, open_registry
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.storage import open_store

_MESSAGES_AT_A_TIME = 256


class Decoded(NamedTuple):
    """One event of one message, with its line where it has one."""

    message: RawMessage
    event: Event
    line: bytes


def decode(
    capture: Annotated[Path, typer.Option(help="Folder with messages.jsonl[.gz], meta.json and objects/")],
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="One line per row version and DDL, no watermarks, repeated copies dropped")
    ] = False,
) -> None:
    """Write every event of a capture as canonical JSON lines, in (topic, partition, offset, index) order.

    Claim-check objects are read from the capture's objects/.

    Exit code 1, and a list on stderr, if anything could not be decoded.
    """
    quarantined: list[Decoded] = []
    decoded = _good(_decoded(Capture(capture)), quarantined)
    for item in _deduplicated(decoded) if dedupe else decoded:
        sys.stdout.buffer.write(item.line + b"\n")
    sys.stdout.buffer.flush()
    if quarantined:
        for item in quarantined:
            assert isinstance(item.event, Undecodable)
            tell(f"{item.message.place} {item.event.reason}: {item.event.detail}")
        tell(f"{len(quarantined)} messages or events could not be decoded")
        raise typer.Exit(1)


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

    Claim-check objects are not fetched: what is shown is what Kafka holds.

    Exit code 1 if anything could not be decoded.
    """
    if [capture, pipeline, bootstrap].count(None) != 2:
        raise ConfigError("say what to read by exactly one of --capture, --pipeline and --bootstrap")
    limits = LimitsSection()
    if capture is not None:
        changefeed = Capture(capture).changefeed()
        schemas = lookup_in(Capture(capture), limits.decompressed_max_bytes)
        messages = _of_capture(Capture(capture), partition, start, end)
    elif pipeline is not None:
        loaded = load_pipeline(pipeline)
        named = loaded.pipeline.connections
        ids = [conn_id for conn_id in (named.kafka, named.schema_registry) if conn_id is not None]
        known = load_connections(connections, ids)
        schemas = SchemaLookup(writer_schemas=UsedSchemas(open_registry(known.get(named.schema_registry))))
        changefeed = loaded.changefeed if topic is None else replace(loaded.changefeed, topic=topic)
        messages = _of_topic(known[named.kafka], changefeed, partition, start, end)
    else:
        if topic is None:
            raise ConfigError("--bootstrap needs --topic")
        kafka = Connection("--bootstrap", "kafka", extra={"bootstrap.servers": bootstrap})
        changefeed = Changefeed(protocol=protocol, topic=topic, timezone="UTC")
        schemas = SchemaLookup()
        messages = _of_topic(kafka, changefeed, partition, start, end)
    codec = codec_for(changefeed, limits.decompressed_max_bytes, schemas)
    console = wide_terminal()
    shown = bad = 0
    for raw in islice(messages, limit):
        events = codec.decode(raw)
        bad += sum(isinstance(event, Undecodable) for event in events)
        console.print(rendering.message(raw, events))
        shown += 1
    if not shown:
        tell(f"partition {partition} holds no message in this range")
    if bad:
        raise typer.Exit(1)


def _decoded(capture: Capture) -> Iterator[Decoded]:
    """Every event of *capture*, large messages resolved."""
    changefeed = capture.changefeed()
    limits = LimitsSection()
    codec = codec_for(changefeed, limits.decompressed_max_bytes, lookup_in(capture, limits.decompressed_max_bytes))
    resolver = ClaimCheckResolver(
        open_store(capture.objects),
        max_bytes=limits.claim_check_max_bytes,
        in_flight_bytes=limits.claim_check_in_flight_bytes,
        connections=limits.claim_check_connections,
    )
    messages = capture.messages()
    while batch := [(message, codec.decode(message)) for message in islice(messages, _MESSAGES_AT_A_TIME)]:
        rows = (event for _, events in batch for event in events if isinstance(event, RowEvent))
        names = [row.reference.object_name for row in rows if row.reference is not None]
        fetched = resolver.fetch(names)
        for message, events in batch:
            for event in events:
                if isinstance(event, RowEvent) and event.reference is not None:
                    event = _resolved(codec, event, next(fetched))
                yield _with_line(message, event)


def _resolved(codec: Codec, small: RowEvent, fetched: Fetched) -> Event:
    if fetched.content is None:
        return Undecodable(small.ordinal, fetched.reason, fetched.detail, small.commit_ts, small.schema, small.table)
    return codec.decode_claim_check(small, fetched.content)


def _with_line(message: RawMessage, event: Event) -> Decoded:
    if isinstance(event, Undecodable):
        return Decoded(message, event, b"")
    try:
        return Decoded(message, event, line(message, event))
    except ValueError as error:
        return Decoded(message, Undecodable(event.ordinal, "bad_cell", f"event {event.ordinal}: {error}"), b"")


def _good(decoded: Iterable[Decoded], quarantined: list[Decoded]) -> Iterator[Decoded]:
    """*decoded* without what could not be decoded, which goes to *quarantined*."""
    for item in decoded:
        if isinstance(item.event, Undecodable):
            quarantined.append(item)
        else:
            yield item


def _deduplicated(decoded: Iterable[Decoded]) -> Iterator[Decoded]:
    """One of *decoded* for each row version and DDL: the first whole copy, else the first. Watermarks are left out.

    Rows of tables without a key can't be distinguished; all of them stay. Raises ConfigError for rows without commitTs.
    """
    kept: dict[tuple[Any, ...], Decoded] = {}
    for number, item in enumerate(decoded):
        event = item.event
        if isinstance(event, WatermarkEvent):
            continue
        identity = _identity(event) or (number,)
        other = kept.get(identity)
        if other is None or _partial(other.event) > _partial(event):
            kept[identity] = item
    yield from sorted(kept.values(), key=_place)


def _identity(event: Event) -> tuple[Any, ...] | None:
    """What equal events share; None for an event that is equal to no other."""
    if isinstance(event, DdlEvent):
        return (event.commit_ts, event.schema, event.table, event.query)
    if not isinstance(event, RowEvent):
        return None
    if event.commit_ts is None:
        raise ConfigError(
            f"--dedupe needs a commitTs in every row, but rows of {event.schema}.{event.table} have none: "
            "this protocol's deletes or all its rows carry none; decode without --dedupe"
        )
    image = event.after or event.before
    if image is None or not image.shape.handle_key:
        return None
    return (event.schema, event.table, event.commit_ts, event.after is None, image.key())


def _partial(event: Event) -> bool:
    return isinstance(event, RowEvent) and event.partial


def _place(item: Decoded) -> tuple[str, int, int, int]:
    message = item.message
    return (message.topic, message.partition, message.offset, item.event.ordinal or 0)


def _of_capture(capture: Capture, partition: int, start: int | None, end: int | None) -> Iterator[RawMessage]:
    for message in capture.messages():
        if message.partition == partition and message.offset >= (start or 0) and (end is None or message.offset < end):
            yield message


def _of_topic(
    kafka: Connection, changefeed: Changefeed, number: int, start: int | None, end: int | None
) -> Iterator[RawMessage]:
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
    for batch in read_range(settings, OffsetRange(changefeed.topic, number, first, last)):
        yield from batch
