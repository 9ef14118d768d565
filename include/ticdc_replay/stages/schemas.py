"""What is known of the tables before a window: declared definitions, earlier DDL, and a look back into Kafka for more.

Without it the first window after a CREATE TABLE would type its rows by the definition and every other one by the wire alone, and
windows of a backfill that run side by side would depend on which is faster. So the look back comes before pinning, reads
each stretch of a topic once, and what it finds is pinned with the window.
"""

import logging
from collections.abc import Iterable

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.decode.schema_pass import find_schemas
from ticdc_replay.domain import tso
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets, Partition, Topic
from ticdc_replay.schemas.ddl import definition_from_sql, key_of
from ticdc_replay.schemas.history import Epoch, SchemaHistory
from ticdc_replay.schemas.versions import TableVersions
from ticdc_replay.snapshot.topics import find_topics
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.watermark import pin_request
from ticdc_replay.state.records import SchemaScan

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


def known_schemas(context: ReplayContext, window: Window) -> SchemaHistory:
    """The table definitions that rows of *window* start from.

    Reads Kafka as far back as ``window.schema_look_back_hours`` says, once per stretch, in the first partition of each topic:
    every DDL is sent to that one at least (delivery semantics, section 6), if any is sent. Raises what reading a range raises.
    """
    request = pin_request(context, window, SchemaHistory())
    if carried_by(context.changefeed).ddl != "nowhere":
        with Offsets(context.kafka) as offsets:
            _look_back(context, offsets, find_topics(request, offsets, context.kafka), window)
    name = context.pipeline.name
    recorded = [record.epoch for record in context.state.schemas(name) if record.epoch.after < window.from_ts]
    history = _declared(context).with_epochs(recorded).since(window.from_ts)
    return history.with_versions(context.state.table_versions(name))


def recorded_schemas(context: ReplayContext, window: Window) -> SchemaHistory:
    """All that is known by now of the tables that rows of *window* are of, its own DDL included. Asks nothing of Kafka."""
    name = context.pipeline.name
    recorded = [record.epoch for record in context.state.schemas(name) if record.epoch.after < window.to_ts]
    history = _declared(context).with_epochs(recorded).since(window.from_ts)
    return history.with_versions(context.state.table_versions(name))


def all_schemas(context: ReplayContext) -> SchemaHistory:
    """All that is known of the pipeline's tables by now. Reads no message."""
    name = context.pipeline.name
    recorded = [record.epoch for record in context.state.schemas(name)]
    return _declared(context).with_epochs(recorded).with_versions(context.state.table_versions(name))


def record_ddl(context: ReplayContext, ddl: Iterable[DdlEvent]) -> None:
    """Add *ddl*, which must be complete from its first commitTs to its last, to the pipeline's schema history."""
    events = sorted(ddl, key=lambda event: event.commit_ts)
    if not events:
        return
    name = context.pipeline.name
    first, last = events[0].commit_ts, events[-1].commit_ts
    # What was recorded within the stretch came from less knowledge of what was before: it is worked out anew.
    earlier = [record.epoch for record in context.state.schemas(name) if record.epoch.after < first]
    history = _declared(context).with_epochs(earlier).with_ddls(events)
    context.state.record_schemas(name, [epoch for epoch in history.epochs if first <= epoch.after <= last], "ddl")


def record_more_ddl(context: ReplayContext, ddl: Iterable[DdlEvent]) -> None:
    """Add *ddl* that came along while another window was read; what is recorded already stays as it is.

    With replication lag a DDL may lie behind the point where the look back for its window ends, in a stretch that its window
    skips because it holds no row of it.
    """
    name = context.pipeline.name
    recorded = [record.epoch for record in context.state.schemas(name)]
    known = {(key_of(epoch.name), epoch.after) for epoch in recorded}
    history = _declared(context).with_epochs(recorded).with_ddls(ddl)
    added = [epoch for epoch in history.epochs if epoch.after and (key_of(epoch.name), epoch.after) not in known]
    context.state.record_schemas(name, added, "ddl")


def record_versions(context: ReplayContext, definitions: Iterable[TableDefinition]) -> None:
    """Add *definitions* that came over the wire to what is known of the pipeline's tables; the first of a version stays."""
    name = context.pipeline.name
    known = TableVersions(context.state.table_versions(name))
    fresh = TableVersions(
        definition
        for definition in definitions
        if known.find(definition.name.schema, definition.name.table, definition.valid_from) is None
    )
    context.state.record_table_versions(name, fresh)


def _declared(context: ReplayContext) -> SchemaHistory:
    definitions = []
    for declared in context.pipeline.definitions:
        schema, _, table = declared.name.partition(".")
        definitions.append(definition_from_sql(TableName(schema, table), declared.create_table))
    return SchemaHistory(Epoch(definition.name, 0, definition) for definition in definitions)


def _look_back(context: ReplayContext, offsets: Offsets, topics: Iterable[Topic], window: Window) -> None:
    """Record the DDL of *topics* before *window*, as far as it was not read before.

    A table's DDL is in its own topic and, before a RENAME, in that of its old name, so what is read now is told by time and not
    by topic. A topic that was never read, while others were, adds to what is recorded of them.
    """
    found: dict[bool, list[DdlEvent]] = {}
    scans = []
    name = context.pipeline.name
    firsts = {min(topic.partitions): topic for topic in topics}
    for partition, wanted in _wanted(context, offsets, firsts, window).items():
        topic = firsts[partition]
        if wanted.length <= 0:
            continue
        known_scans = context.state.schema_scans(name, topic.identity, partition.number)
        known = next((scan for scan in known_scans if scan.start <= wanted.start <= scan.end), None)
        start = wanted.start if known is None else known.end
        if start >= wanted.end:
            continue
        log.info("looking for DDL in %s, offsets %d to %d", partition, start, wanted.end - 1)
        part = OffsetRange(topic.name, partition.number, start, wanted.end)
        schemas = find_schemas(
            [part],
            context.changefeed,
            context.kafka,
            context.pipeline.limits.decompressed_max_bytes,
            context.connections.get(context.pipeline.connections.schema_registry),
        )
        found.setdefault(known is not None, []).extend(schemas.ddl)
        record_versions(context, schemas.definitions)
        first = wanted.start if known is None else known.start
        scans.append(SchemaScan(topic.identity, partition.number, first, wanted.end))
    if True in found:
        record_ddl(context, found.pop(True))
        record_more_ddl(context, found.pop(False, []))
    else:
        record_ddl(context, found.pop(False, []))
    for scan in scans:
        context.state.record_schema_scan(name, scan)


def _wanted(
    context: ReplayContext, offsets: Offsets, partitions: Iterable[Partition], window: Window
) -> dict[Partition, OffsetRange]:
    """From as far back as configured to where rows of the window begin: the ranges of all partitions start before that."""
    begin_ms = tso.physical_ms(window.from_ts)
    far_ms = max(0, begin_ms - context.pipeline.window.schema_look_back_hours * _HOUR_MS)
    bounds = offsets.bounds(partitions)
    starts = offsets.at_or_after(dict.fromkeys(bounds, far_ms))
    ends = offsets.at_or_after(dict.fromkeys(bounds, begin_ms))
    found = {}
    for partition, held in bounds.items():
        start, end = starts[partition], ends[partition]
        found[partition] = OffsetRange(
            partition.topic,
            partition.number,
            held.high if start is None else max(start.offset, held.low),
            held.high if end is None else end.offset,
        )
    return found
