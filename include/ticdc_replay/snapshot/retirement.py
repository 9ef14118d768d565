"""Whether TiCDC stopped to write to a topic because its table is gone.

A topic that no table goes to any more gets no resolved-ts either, and would be waited for without end; that it is silent proves
nothing. The DDL that ends a table is sent to the table's own topic, after all rows that committed before it (protocols:
delivery semantics, sections 2 and 6).
"""

from collections.abc import Iterator

from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.ddl import AppliedDdl, apply_ddl
from ticdc_replay.schemas.statements import AlterTable, DropTables, RenameTables
from ticdc_replay.snapshot.request import PinRequest

_TAIL = 1_024
_TAIL_GROWTH = 16


def retired_by_ddl(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, topic: str) -> bool:
    """Whether the last DDL in *topic* dropped its table or renamed it to another topic.

    Only for topics of one table: those of a rule with both names. Where a database was dropped, the DDL is in the default topic
    and tells nothing here. Ask only once the default topic has reached the window's end, so that no later DDL is on its way.
    """
    if carried_by(request.changefeed).ddl == "nowhere":
        return False
    codec = request.codec()
    partition = min(offsets.topics([topic])[topic].partitions)
    held = offsets.bounds([partition])[partition]
    end, size = held.high, _TAIL
    while end > held.low:
        start = max(held.low, end - size)
        ddl = list(_ddl_in(kafka, codec, OffsetRange(topic, partition.number, start, end)))
        if ddl:
            return _ends_topic(request, topic, max(ddl, key=lambda event: event.commit_ts))
        end, size = start, size * _TAIL_GROWTH
    return False


def _ends_topic(request: PinRequest, topic: str, ddl: DdlEvent) -> bool:
    outcome = apply_ddl({}, ddl)
    if not isinstance(outcome, AppliedDdl):
        return False
    gone: tuple[TableName, ...] = outcome.gone
    come: tuple[TableName, ...] = ()
    match outcome.statement:
        case DropTables():
            pass
        case RenameTables() | AlterTable():
            # Of tables that are not known, a rename says first the old name and then the new one.
            gone, come = outcome.gone[::2], outcome.gone[1::2]
        case _:
            return False
    ended = [name for name in gone if _topic_of(request, name) == topic]
    return (
        bool(ended)
        and all(_has_own_topic(request, name) for name in ended)
        and not any(_topic_of(request, name) in (topic, None) for name in come)
    )


def _topic_of(request: PinRequest, name: TableName) -> str | None:
    return request.changefeed.topic_of(name.schema, name.table)


def _has_own_topic(request: PinRequest, name: TableName) -> bool:
    source = request.changefeed.dispatch.source_of(name.schema, name.table)
    expression = None if source is None else request.changefeed.dispatch.rule_of(source).topic
    return expression is not None and len(expression.placeholders) == 2


def _ddl_in(kafka: KafkaSettings, codec: Codec, part: OffsetRange) -> Iterator[DdlEvent]:
    for messages in read_range(kafka, part):
        for message in messages:
            if codec.is_schema_change(message):
                yield from (event for event in codec.decode(message) if isinstance(event, DdlEvent))
