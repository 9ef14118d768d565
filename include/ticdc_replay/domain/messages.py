"""What Kafka delivers, and where it was."""

import re
from typing import NamedTuple

import msgspec


class RawMessage(NamedTuple):
    """One Kafka record as it was read. ``timestamp_ms`` is the record's time, -1 where the broker gave none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> str:
        """Where the message is, for people."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class EventPlace(msgspec.Struct, frozen=True, order=True):
    """A message of a topic, or one event of it: *ordinal* counts from 0, -1 stands for all."""

    topic: str
    partition: int
    offset: int
    ordinal: int = -1

    @classmethod
    def parse(cls, text: str) -> "EventPlace":
        """The place in *text*, ``topic[partition]@offset`` or that with ``#ordinal``. Raises ValueError for another text."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(
                "must be a place topic[partition]@offset, with #ordinal for one event, such as shop[2]@4711#3"
            )
        topic, partition, offset, ordinal = found.groups()
        return cls(topic, int(partition), int(offset), -1 if ordinal is None else int(ordinal))

    def __str__(self) -> str:
        place = f"{self.topic}[{self.partition}]@{self.offset}"
        return place if self.ordinal == -1 else f"{place}#{self.ordinal}"

    @property
    def message(self) -> "EventPlace":
        """All of the message."""
        return EventPlace(self.topic, self.partition, self.offset)

    def lies_in(self, part: "OffsetRange") -> bool:
        """Whether the message may be in *part*."""
        return (self.topic, self.partition) == (part.topic, part.partition) and part.start <= self.offset < part.end


_PLACE = re.compile(r"([^\[\]]+)\[(\d{1,9})\]@(\d{1,18})(?:#(\d{1,9}))?", re.ASCII)


class OffsetRange(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of offsets, an upper bound of the number of messages (compaction and transactions leave gaps)."""
        return self.end - self.start
