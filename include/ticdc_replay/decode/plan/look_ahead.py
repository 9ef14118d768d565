"""Searches after the ranges for table versions that rows name and nothing before defines (Simple).

A bootstrap precedes a table's rows only as one producer sends them: where a table moved to another node, rows of the
new one may come before it. The next bootstrap of a table that has rows comes after ``send-bootstrap-interval-in-sec``,
two minutes if nothing is configured.
"""

import logging
import time
from collections.abc import Iterable, Iterator

from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.tso import MAX_MS, physical_ms
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.versions import MissingVersion, TableVersions

log = logging.getLogger(__name__)

LOOK_AHEAD_MS = 30 * 60_000
"""How long after a range or its window, whichever is later, is searched, in record time. TiCDC stops the bootstraps of a table
that had no row for as long."""
_LATER_IN_A_ROW = 100
"""Records that must all be later than that before the search ends: a single one may claim any time."""


def seek_versions(
    missing: Iterable[MissingVersion],
    ranges: Iterable[OffsetRange],
    window: Window,
    job: DecodeJob,
    settings: KafkaSettings,
) -> tuple[TableDefinition, ...]:
    """Those definitions of *missing* versions that are in the messages that follow *ranges* of *window* for ``LOOK_AHEAD_MS``.

    Reading ends as soon as all are found. Raises what reading a range raises.
    """
    wanted = {(each.name.schema, each.name.table, each.version) for each in missing}
    found: list[TableDefinition] = []
    for part in ranges:
        if not wanted:
            break
        following, until_ms = _following(part, physical_ms(window.to_ts), settings)
        log.info(
            "looking for %d table versions after %s[%d], offsets %d to %d at most",
            len(wanted), part.topic, part.partition, following.start, following.end - 1,
        )  # fmt: skip
        codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes)
        for messages in recorded_by(until_ms, read_range(settings, following)):
            for definition in schemas_in([messages], codec).definitions:
                key = (definition.name.schema, definition.name.table, definition.valid_from)
                if key in wanted:
                    wanted.discard(key)
                    found.append(definition)
            if not wanted:
                break
    return tuple(TableVersions(found))


def _following(part: OffsetRange, window_end_ms: int, settings: KafkaSettings) -> tuple[OffsetRange, int]:
    """All offsets after *part*, and the record time (ms) up to which they are searched.

    The time of its last record does not count if it is before the window's end or in the future.
    """
    partition = Partition(part.topic, part.partition)
    with Offsets(settings) as offsets:
        held = offsets.bounds([partition])[partition]
    until_ms = MAX_MS
    last = OffsetRange(part.topic, part.partition, max(held.low, part.end - 1), min(part.end, held.high))
    for messages in read_range(settings, last):
        last_ms = messages[-1].timestamp_ms
        until_ms = max(window_end_ms, last_ms if last_ms <= time.time() * 1000 else 0) + LOOK_AHEAD_MS
    return OffsetRange(part.topic, part.partition, min(part.end, held.high), held.high), until_ms


def recorded_by(until_ms: int, batches: Iterable[list[RawMessage]]) -> Iterator[list[RawMessage]]:
    """The messages of *batches* that were recorded at *until_ms* or before; ends where many in a row were later."""
    later = 0
    for messages in batches:
        timely = []
        for message in messages:
            if message.timestamp_ms <= until_ms:
                timely.append(message)
                later = 0
            else:
                later += 1
        yield timely
        if later >= _LATER_IN_A_ROW:
            return
