"""What pinned ranges hold, judged by a few messages of each topic."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.events import LargeMessage, Operation, RowEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Partition
from ticdc_replay.kafka.settings import KafkaSettings

PLACES = 3
"""Of the longest ranges of each topic, as many places are looked at."""
_RANGES = 8
_MESSAGES = 32
_OBJECTS = 32


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """About how much pinned ranges hold; only ``messages``, the number of offsets, is exact where no offset is empty.

    ``rows`` are all row events, ``wanted`` those of the window and of wanted tables.
    """

    messages: int = 0
    bytes: int = 0
    rows: int = 0
    wanted: int = 0
    tables: dict[TableName, int] = {}
    """Of ``wanted``, by table."""
    references: int = 0
    """Claim-check references, of any row."""
    sampled: int = 0
    """Messages that were looked at."""
    objects: tuple[str, ...] = ()
    """Some objects that sampled rows of the window refer to."""
    only_keys: int = 0
    """Sampled rows among ``wanted`` for which only the key was sent."""
    undecodable: dict[str, int] = {}
    """What in the sample can't be decoded, by reason."""


class _Topic:
    """What was seen of one topic."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By member of ``Estimate``."""
        self.tables: Counter[TableName] = Counter()
        self.undecodable: Counter[str] = Counter()
        self.objects: list[str] = []


def estimate(
    ranges: Sequence[OffsetRange], kafka: KafkaSettings, codec: Codec, window: Window | None, tables: TablePatterns
) -> Estimate:
    """About what *ranges* hold. All of their rows belong where *window* is None.

    Reads some dozen messages at a few places of each topic. Raises what ``reader.read_range`` raises.
    """
    seen: dict[str, _Topic] = {part.topic: _Topic() for part in ranges if part.length > 0}

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        for message in messages:
            _note(seen[partition.topic], message, codec, window, tables)
        return False

    for samples in _samples(ranges):
        read_beginnings(kafka, samples, take)
    return _scaled(ranges, seen)


def _samples(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    by_topic: dict[str, list[OffsetRange]] = {}
    for part in sorted(ranges, key=lambda part: (-part.length, part)):
        if part.length > 0 and len(by_topic.setdefault(part.topic, [])) < _RANGES:
            by_topic[part.topic].append(part)
    chosen = [part for parts in by_topic.values() for part in parts]
    for place in range(PLACES):
        samples = []
        for part in chosen:
            length = part.length // PLACES
            start = part.start + place * length + max(0, length - _MESSAGES) // 2
            end = part.end if length < _MESSAGES and place == PLACES - 1 else start + min(length, _MESSAGES)
            samples.append(OffsetRange(part.topic, part.partition, start, end))
        yield samples


def _note(topic: _Topic, message: RawMessage, codec: Codec, window: Window | None, tables: TablePatterns) -> None:
    topic.counts["sampled"] += 1
    topic.counts["bytes"] += len(message.key or b"") + len(message.value or b"")
    for event in codec.decode(message):
        if not isinstance(event, RowEvent | Undecodable):
            continue
        if isinstance(event, Undecodable) and event.reason != "schema_unknown":
            topic.undecodable[event.reason] += 1
        if event.schema is None or event.table is None:
            continue
        topic.counts["rows"] += 1
        inside = window is None or event.commit_ts is None or event.commit_ts in window
        is_wanted = inside and tables.wants(event.schema, event.table)
        if event.reference is not None:
            topic.counts["references"] += 1
            if is_wanted and event.reference.object_name:
                topic.objects.append(event.reference.object_name)
        if is_wanted:
            topic.counts["wanted"] += 1
            topic.tables[TableName(event.schema, event.table)] += 1
            topic.counts["only_keys"] += isinstance(event, RowEvent) and _lacks_cells(event)


def _lacks_cells(row: RowEvent) -> bool:
    return row.large is LargeMessage.HANDLE_KEY_ONLY and row.operation is not Operation.DELETE


def _scaled(ranges: Sequence[OffsetRange], seen: dict[str, _Topic]) -> Estimate:
    sums: Counter[str] = Counter()
    tables: Counter[TableName] = Counter()
    for name, topic in seen.items():
        offsets = sum(part.length for part in ranges if part.topic == name)
        factor = offsets / (topic.counts["sampled"] or 1)
        sums["messages"] += offsets
        for member, count in topic.counts.items():
            sums[member] += count if member in ("sampled", "only_keys") else round(count * factor)
        for table, rows in topic.tables.items():
            tables[table] += round(rows * factor)
    objects = sorted({found for topic in seen.values() for found in topic.objects})
    undecodable: Counter[str] = sum((topic.undecodable for topic in seen.values()), Counter())
    return Estimate(
        **sums,
        tables=dict(sorted(tables.items())),
        objects=tuple(objects[:: max(1, len(objects) // _OBJECTS)][:_OBJECTS]),
        undecodable=dict(sorted(undecodable.items())),
    )
