"""Estimates how large messages are, so that splits hold about the same number of bytes."""

from collections.abc import Sequence

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.retained import RetainedReader
from ticdc_replay.kafka.settings import KafkaSettings

SAMPLED_RANGES = 4
SAMPLED_MESSAGES = 32


def messages_per_split(ranges: Sequence[OffsetRange], settings: KafkaSettings, split_bytes: int) -> int:
    """How many messages make about *split_bytes*, judged by the middle of the longest ranges; at least 1."""
    count, size = 0, 0
    for part in sorted(ranges, key=lambda part: -part.length)[:SAMPLED_RANGES]:
        middle = part.start + max(0, part.length - SAMPLED_MESSAGES) // 2
        sample = OffsetRange(part.topic, part.partition, middle, min(part.end, middle + SAMPLED_MESSAGES))
        for messages in RetainedReader(settings, sample):
            count += len(messages)
            size += sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    return max(1, split_bytes * count // size) if size else max(1, split_bytes)
