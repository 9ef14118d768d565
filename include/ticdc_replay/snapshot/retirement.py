"""Whether TiCDC stopped to write to a topic because its table is gone.

A topic that no table goes to any more gets no resolved-ts either, and would be waited for without end; its silence
proves nothing. The DDL that ends a table is sent to the table's own topic, after all rows that committed before it; but
a RENAME that brings it back, to the topic of the name that the table had. Whatever can't be read may be such a DDL, so
silence after it shows nothing.
"""

from collections.abc import Collection, Iterator

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import DdlEvent, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.reader import backwards, read_range, read_ranges
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.ddl.reader import AppliedDdl, ParsedDdl, Tables, key_of
from ticdc_replay.schemas.ddl.statements import AlterTable, DropTables, RenameTables
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.resolved import ranges_of, tails_from
from ticdc_replay.snapshot.topics import find_topics


def retired_by_ddl(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, topic: str) -> bool:
    """Whether the last DDL in *topic* dropped its table or renamed it to another topic, and nothing brought it back.

    Only for topics of one table: those of a rule with both names. The DDL that drops a database is in the default topic and does
    not count here. Ask only once the default topic has reached the window's end, so that no later DDL is on its way.
    """
    if carried_by(request.changefeed).ddl == "nowhere":
        return False
    codec = request.codec()
    partition = min(offsets.topics([topic])[topic].partitions)
    held = offsets.bounds([partition])[partition]
    for tail in backwards(OffsetRange(topic, partition.number, held.low, held.high)):
        found = list(_ddl_in(kafka, codec, tail))
        ddl = [(event.commit_ts, -offset, event) for offset, event in found if isinstance(event, DdlEvent)]
        if ddl:
            _, before, last = max(ddl, key=lambda each: each[:2])
            ended = _ended(request, topic, last)
            after = OffsetRange(topic, partition.number, 1 - before, held.high)
            return (
                bool(ended)
                and not _goes_on(kafka, codec, after, last.commit_ts)
                and not _came_back(request, kafka, offsets, codec, ended, last.commit_ts)
            )
        if found:  # what can't be read may be a later DDL
            return False
    return False


def _goes_on(kafka: KafkaSettings, codec: Codec, after: OffsetRange, ended_ts: int) -> bool:
    """Whether anything in *after*, which follows the DDL of *ended_ts* (TSO), is later than that, or can't be read."""
    for messages in read_range(kafka, after):
        for event in (event for message in messages for event in codec.decode(message)):
            if isinstance(event, Undecodable):
                return True
            if isinstance(event, RowEvent | WatermarkEvent) and (event.commit_ts or 0) > ended_ts:
                return True
    return False


def _came_back(
    request: PinRequest,
    kafka: KafkaSettings,
    offsets: Offsets,
    codec: Codec,
    names: Collection[TableName],
    ended_ts: int,
) -> bool:
    """Whether DDL after *ended_ts* (TSO), in whichever topic, may have given a table one of *names*.

    DDL from before the window is not looked for: the topic then has resolved-ts of the window, and is not asked about.
    """
    keys = {key_of(name) for name in names}
    everything = msgspec.structs.replace(
        request, tables=("*.*",), retired_topics={name: ts for name, ts in request.retired_topics.items() if ts is None}
    )
    first = [min(topic.partitions) for topic in find_topics(everything, offsets, kafka)]
    since_ms = max(tso.physical_ms(ended_ts) - request.clock_skew_ms, request.read_from_ms)
    tails = tails_from(offsets.at_or_after(dict.fromkeys(first, since_ms)), offsets.bounds(first))
    for messages in read_ranges(kafka, ranges_of(tails)):
        for event in (event for message in codec.schema_changes(messages) for event in codec.decode(message)):
            if isinstance(event, Undecodable):
                return True
            if isinstance(event, DdlEvent) and event.commit_ts > ended_ts:
                ddl = ParsedDdl(event)
                if ddl.statement is None or not keys.isdisjoint(ddl.new_names):
                    return True
    return False


def _ended(request: PinRequest, topic: str, ddl: DdlEvent) -> list[TableName]:
    """The tables of *topic* that are gone with *ddl*, where no other goes there."""
    outcome = ParsedDdl(ddl).apply(Tables())
    if not isinstance(outcome, AppliedDdl):
        return []
    gone: tuple[TableName, ...] = outcome.gone
    come: tuple[TableName, ...] = ()
    match outcome.statement:
        case DropTables():
            pass
        case RenameTables() | AlterTable():
            # Of tables that are not known, a rename says first the old name and then the new one.
            gone, come = outcome.gone[::2], outcome.gone[1::2]
        case _:
            return []
    ended = [name for name in gone if _topic_of(request, name) == topic]
    is_end = all(_has_own_topic(request, name) for name in ended) and not any(
        _topic_of(request, name) in (topic, None) for name in come
    )
    return ended if is_end else []


def _topic_of(request: PinRequest, name: TableName) -> str | None:
    return request.changefeed.topic_of(name.schema, name.table)


def _has_own_topic(request: PinRequest, name: TableName) -> bool:
    source = request.changefeed.dispatch.source_of(name.schema, name.table)
    expression = None if source is None else request.changefeed.dispatch.rule_of(source).topic
    return expression is not None and len(expression.placeholders) == 2


def _ddl_in(kafka: KafkaSettings, codec: Codec, part: OffsetRange) -> Iterator[tuple[int, DdlEvent | Undecodable]]:
    """The DDL of *part*, and what may be some and can't be read, each with its offset."""
    for messages in read_range(kafka, part):
        for message in codec.schema_changes(messages):
            for event in codec.decode(message):
                if isinstance(event, DdlEvent | Undecodable):
                    yield message.offset, event
