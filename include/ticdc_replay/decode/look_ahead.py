"""Looks behind the ranges for table versions that rows in them name and nothing before has defined (Simple).

A bootstrap precedes a table's rows only as one producer sends them: where a table moved to another node, rows of the new one
may come before it (protocols: simple, section 6). The next bootstrap of a table that has rows comes after
``send-bootstrap-interval-in-sec``, two minutes if nothing is configured.
"""

import logging
from collections.abc import Iterable, Iterator

import msgspec

from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.schema_pass import schemas_in
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.versions import MissingVersion, TableVersions

log = logging.getLogger(__name__)

LOOK_AHEAD_MS = 30 * 60_000
"""How far behind the end of a range, in record time. TiCDC stops bootstraps of a table that had no row for as long."""
_BATCH = 10_000

_DEFINITIONS = msgspec.json.Decoder(tuple[TableDefinition, ...])


def seek_versions(
    missing: Iterable[MissingVersion], ranges: Iterable[OffsetRange], job: DecodeJob, settings: KafkaSettings
) -> tuple[TableDefinition, ...]:
    """Definitions of *missing* versions, from the messages that follow *ranges* for ``LOOK_AHEAD_MS``; those that are there.

    Reading ends as soon as all are found. Raises what reading a range raises.
    """
    wanted = {(each.name.schema, each.name.table, each.version) for each in missing}
    found: list[TableDefinition] = []
    for part in ranges:
        if not wanted:
            break
        behind = _behind(part, settings)
        log.info(
            "looking for %d table versions behind %s[%d], offsets %d to %d",
            len(wanted), part.topic, part.partition, behind.start, behind.end - 1,
        )  # fmt: skip
        for messages in _batches(behind, settings):
            codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes)
            for definition in schemas_in([messages], codec).definitions:
                key = (definition.name.schema, definition.name.table, definition.valid_from)
                if key in wanted:
                    wanted.discard(key)
                    found.append(definition)
            if not wanted:
                break
    return tuple(TableVersions(found))


def decode_definitions(content: bytes) -> tuple[TableDefinition, ...]:
    """Definitions from canonical JSON. Raises msgspec.ValidationError with the path inside the document."""
    return _DEFINITIONS.decode(content)


def _behind(part: OffsetRange, settings: KafkaSettings) -> OffsetRange:
    partition = Partition(part.topic, part.partition)
    with Offsets(settings) as offsets:
        held = offsets.bounds([partition])[partition]
        end = held.high
        last = OffsetRange(part.topic, part.partition, max(held.low, part.end - 1), min(part.end, held.high))
        for messages in read_range(settings, last):
            until = offsets.at_or_after({partition: messages[-1].timestamp_ms + LOOK_AHEAD_MS})[partition]
            end = held.high if until is None else until.offset
    return OffsetRange(part.topic, part.partition, min(part.end, end), end)


def _batches(part: OffsetRange, settings: KafkaSettings) -> Iterator[list[RawMessage]]:
    waiting: list[RawMessage] = []
    for messages in read_range(settings, part):
        waiting += messages
        if len(waiting) >= _BATCH:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
