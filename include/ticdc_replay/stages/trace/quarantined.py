"""What decodes have set aside of one row, and how much else they have set aside that may be of it."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import messages_of
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.registry import UsedSchemas
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.entries import Listed, RunQuarantine, Selection, list_quarantine
from ticdc_replay.stages.set_aside import Status
from ticdc_replay.stages.trace.row_key import TypedKeys
from ticdc_replay.stages.window.schemas import recorded_schemas


class SetAsideVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the row in quarantine. ``commit_ts`` is a TSO; ``status`` is that in the targets that hold the run."""

    window: Window
    run_hash: str
    operation: str
    commit_ts: int | None
    place: EventPlace
    object_name: str | None
    """Of the claim-check object that the message refers to."""
    reason: str
    detail: str
    status: Status
    accepted_by: str | None
    accepted_why: str | None


class UnknownEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one run's quarantine that may be of the row, as nobody can read their keys. Those that were decoded again
    do not count."""

    window: Window
    run_hash: str
    of_table: int
    """Entries of the row's table."""
    of_unknown_table: int
    reasons: dict[str, int]


def set_aside_of(
    context: ReplayContext, table: TableName, keys: TypedKeys
) -> tuple[list[SetAsideVersion], list[UnknownEntries]]:
    """What is in quarantine of the row of *table* with *keys*, and what may be, in order of time.

    Messages are decoded by this version of the library, without claim-check objects. Raises ArtifactNotFoundError if a
    quarantine file is gone, and TransientError if a schema registry that is needed is away.
    """
    of_row: list[SetAsideVersion] = []
    unknown: list[UnknownEntries] = []
    for run in reversed(list_quarantine(context, Selection())):
        ours = [
            listed
            for listed in run.entries
            if listed.entry.table is None or (listed.entry.schema, listed.entry.table) == (table.schema, table.table)
        ]
        if not ours:
            continue
        rows = _rows_of(context, run, [each for each in ours if each.entry.table is not None])
        unread: list[Listed] = []
        for listed in ours:
            row = rows.get(_place(listed))
            is_of_row = None if row is None else keys.is_of(row)
            if row is not None and is_of_row:
                of_row.append(_version(run, listed, row))
            elif is_of_row is None and listed.status != "redriven":
                unread.append(listed)
        if unread:
            unknown.append(_unknown(run, unread))
    return of_row, unknown


def _rows_of(context: ReplayContext, run: RunQuarantine, entries: list[Listed]) -> Mapping[EventPlace, RowEvent]:
    """The row events of *entries* that can be read, by place."""
    by_run: dict[str, set[EventPlace]] = {}
    for listed in entries:
        if listed.entry.ordinal is not None:
            by_run.setdefault(listed.entry.run_hash, set()).add(_place(listed))
    found: dict[EventPlace, RowEvent] = {}
    codec = _codec(context, run) if by_run else None
    for run_hash, wanted in by_run.items():
        assert codec is not None, "there are entries"
        messages = {place.message for place in wanted}
        partitions = {(place.topic, place.partition) for place in wanted}
        for message in messages_of(context.artifacts, read_index(context.artifacts, run_hash), partitions):
            place = EventPlace(message.topic, message.partition, message.offset)
            if place not in messages:
                continue
            for event in codec.decode(message):
                if isinstance(event, RowEvent):
                    at = EventPlace(place.topic, place.partition, place.offset, event.ordinal)
                    if at in wanted:
                        found[at] = event
    return found


def _codec(context: ReplayContext, run: RunQuarantine) -> Codec:
    unread = read_index(context.artifacts, run.run_hash).unread_ddl
    lookup = SchemaLookup(recorded_schemas(context, run.window, unread), UsedSchemas(context.writer_schemas))
    return codec_for(context.changefeed, context.pipeline.limits.decompressed_max_bytes, lookup)


def _place(listed: Listed) -> EventPlace:
    entry = listed.entry
    return EventPlace(entry.topic, entry.partition, entry.offset, -1 if entry.ordinal is None else entry.ordinal)


def _version(run: RunQuarantine, listed: Listed, row: RowEvent) -> SetAsideVersion:
    entry, accepted = listed.entry, listed.accepted
    return SetAsideVersion(
        window=run.window,
        run_hash=run.run_hash,
        operation=row.operation.value,
        commit_ts=row.commit_ts,
        place=_place(listed),
        object_name=None if row.reference is None else row.reference.object_name,
        reason=entry.reason,
        detail=entry.detail,
        status=listed.status,
        accepted_by=None if accepted is None else accepted.person,
        accepted_why=None if accepted is None else accepted.why,
    )


def _unknown(run: RunQuarantine, entries: list[Listed]) -> UnknownEntries:
    without_table = sum(each.entry.table is None for each in entries)
    return UnknownEntries(
        window=run.window,
        run_hash=run.run_hash,
        of_table=len(entries) - without_table,
        of_unknown_table=without_table,
        reasons=dict(sorted(Counter(each.entry.reason for each in entries).items())),
    )
