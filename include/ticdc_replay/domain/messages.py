"""What Kafka delivers, and where it was."""

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
