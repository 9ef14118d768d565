"""The pass before decoding: finds the DDL of the range, so that every split types its rows alike."""

from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings


def find_ddl(part: OffsetRange, changefeed: Changefeed, settings: KafkaSettings, max_bytes: int) -> list[DdlEvent]:
    """Every DDL in *part*, in offset order, copies included. Rows are not decoded.

    *max_bytes* caps a decompressed event. What can't be decoded is left to the decode itself, which quarantines it.
    """
    codec = codec_for(changefeed, max_bytes)
    found = []
    for messages in read_range(settings, part):
        for message in messages:
            if codec.is_schema_change(message):
                found += [event for event in codec.decode(message) if isinstance(event, DdlEvent)]
    return found
