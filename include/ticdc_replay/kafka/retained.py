"""Reading what is left of an offset range while Kafka removes its oldest messages."""

from collections.abc import Iterator

from ticdc_replay.domain.errors import ExpiredRangeError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings


class RetainedReader:
    """Iterates over the messages of *offset_range* that are still there when they are read, as ``reader.read_range`` does.

    Only for readers to whom a message that is gone does not matter. Raises what ``read_range`` raises but ExpiredRangeError.
    """

    def __init__(self, settings: KafkaSettings, offset_range: OffsetRange) -> None:
        self._settings = settings
        self._range = offset_range
        self.removed: list[OffsetRange] = []
        """Parts of the range that Kafka had removed before they could be read."""

    def __iter__(self) -> Iterator[list[RawMessage]]:
        part, position = self._range, self._range.start
        while position < part.end:
            try:
                left = OffsetRange(part.topic, part.partition, position, part.end)
                for messages in read_range(self._settings, left):
                    position = messages[-1].offset + 1
                    yield messages
                return
            except ExpiredRangeError:
                oldest = min(self._oldest(), part.end)
                if oldest <= position:
                    raise  # what is to be read is there, so that it was refused has another reason
                self.removed.append(OffsetRange(part.topic, part.partition, position, oldest))
                position = oldest

    def _oldest(self) -> int:
        partition = Partition(self._range.topic, self._range.partition)
        with Offsets(self._settings) as offsets:
            return offsets.bounds([partition])[partition].low
