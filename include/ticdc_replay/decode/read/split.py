"""Decodes one split: from Kafka to the files of a changelog.

Every consumed message and event ends in exactly one of the counts of the result; see ``changelog.files.index.EventCounts``.
"""

from collections.abc import Callable, Sequence
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from ticdc_replay.changelog.cells.columnar import ColumnarRows
from ticdc_replay.changelog.files import side_files
from ticdc_replay.changelog.files.index import Ddl, EventCounts, MessageCounts
from ticdc_replay.changelog.files.layout import quarantine_file
from ticdc_replay.changelog.files.side_files import SideFile
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.changelog.files.writer import ROW_DAMAGED, ChangelogWriter, Located, Rejected
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.tasks import Split, SplitContext, SplitResult
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.native import NativeRows, extension_for
from ticdc_replay.decode.read.placement import WRONG_TOPIC, ForeignNames, PlacementCheck
from ticdc_replay.decode.read.quarantine_writer import DDL_UNREAD, SET_ASIDE, QuarantineWriter, about_row
from ticdc_replay.decode.read.reference_writer import ReferenceWriter
from ticdc_replay.decode.read.sparse_index_writer import SparseIndexWriter
from ticdc_replay.decode.read.whole_rows import WholeRows
from ticdc_replay.domain.errors import PermanentError, TicdcReplayError
from ticdc_replay.domain.events import BootstrapEvent, DdlEvent, Event, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.messages import EventPlace, RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.domain.window import ALL_TIME
from ticdc_replay.kafka.reader import read_ranges
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.registry import UsedSchemas, open_registry
from ticdc_replay.schemas.layout_check import LayoutCheck
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.resolve import ResolvedSchema, brings_types
from ticdc_replay.schemas.unread import UnreadDdl
from ticdc_replay.storage import open_store

_Positions = npt.NDArray[np.int64]

# Hot: a NamedTuple's constructor takes twice the time.
_new_located = tuple.__new__

_NAMED = "the pipeline file names it in set_aside"

BATCH_ROWS = 10_000
"""Rows that are converted to Arrow at a time, at least. With 20,000 a twentieth more time goes to fresh pages of memory."""
CHECKED_MESSAGES = 256
"""After so many messages of a range it is asked whether there are as many rows."""
LEARNT_TOGETHER = 8
"""Messages that Python decodes, so that the native decoder learns, before it is asked again."""
BATCH_BYTES = 32 * 1024 * 1024
"""Bytes of the messages and claim-check objects of such a batch, at most about: one column must stay below 2 GiB."""


def decode_split(split: Split, context: SplitContext) -> SplitResult:
    """Read the ranges of *split*, decode them and write its files below the changelog's root.

    Raises PermanentError where rows are ordered by place and a dispatcher scatters the versions of a row over partitions, or
    where the registry refuses us; TransientError when Kafka, a store or the registry is away; ExpiredRangeError when retention
    has passed the range.
    """
    decoder = SplitDecoder(split, context)
    job = context.job
    settings = KafkaSettings.from_connection(
        context.connections[job.kafka_connection], job.changefeed.max_message_bytes
    )
    with no_cycle_search():
        for messages in read_ranges(settings, split.ranges):
            decoder.add(messages)
        return decoder.finish()


class SplitDecoder:
    """The state of one split while it is decoded."""

    def __init__(self, split: Split, context: SplitContext, *, natively: bool = True) -> None:
        """*natively* is whether the native extension may read what it can."""
        attempt, job, window, history, connections = context
        artifacts = open_store(job.artifacts, connections.get(job.artifacts_connection))
        filesystem, base = artifacts.arrow_filesystem()
        root = f"{base}/{job.changelog_root}"
        stem = f"{attempt.id}-{split.number:05d}-{uuid4().hex[:12]}"
        self._split = split
        self._history = history
        self._window = ALL_TIME if window is None else window
        self._filter = TablePatterns(job.tables)
        self._accept_damaged = job.accept_damaged
        self._named: dict[tuple[str, int, int], set[int]] = {}
        """The events that the pipeline file names, by message; -1 for all of one."""
        for place in job.set_aside:
            self._named.setdefault((place.topic, place.partition, place.offset), set()).add(place.ordinal)
        self._acting: set[EventPlace] = set()
        self._writer_schemas = UsedSchemas(open_registry(connections.get(job.schema_registry_connection)))
        lookup = SchemaLookup(history, writer_schemas=self._writer_schemas)
        self._codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes, lookup)
        self._decode: Callable[[RawMessage], Sequence[Event]] = self._codec.decode
        self._messages = MessageCounts()
        self._events = EventCounts()
        self._ddl: list[Ddl] = []
        self._other_unread: list[UnreadDdl] = []
        self._place: tuple[str, int] | None = None
        self._since_begin = 0
        self._pending: list[Located] = []
        self._pending_bytes = 0
        self._pending_large = False
        self._quarantine = QuarantineWriter(
            SideFile(filesystem, root, quarantine_file(stem), side_files.QUARANTINE, 64)
        )
        self._references = ReferenceWriter(
            SideFile(filesystem, root, f"references/{stem}.parquet", side_files.REFERENCES), self._codec
        )
        self._sparse_index = SparseIndexWriter(
            SideFile(filesystem, root, f"sparse_index/{stem}.parquet", side_files.SPARSE_INDEX)
        )
        self._order: VersionOrder = "place" if window is None else "commit_ts"
        self._changefeed = job.changefeed
        check = None if job.accept_damaged or job.filters_ddl else LayoutCheck.of(job.changefeed)
        self._writer = ChangelogWriter(
            filesystem, root, stem, history, job.changefeed.timezone, job.limits.file_rows, self._order, check
        )
        self._native: NativeRows | None = None
        extension = extension_for(job.changefeed) if natively and window is not None else None
        if extension is not None:
            self._native = NativeRows(
                extension,
                job.changefeed,
                self._window,
                history,
                self._filter.wants,
                self._writer.resolve,
                job.limits.decompressed_max_bytes,
            )
        self._foreign = ForeignNames(job.changefeed)
        self._placement = PlacementCheck(job.changefeed, split.partitions, split.sampled, history)
        self._whole_rows = WholeRows(context, artifacts, self._codec, self._native, self._references, self._events)

    def add(self, messages: Sequence[RawMessage]) -> None:
        """Decode *messages*, which are of one range and follow those added before."""
        if messages and (place := messages[0][:2]) != self._place:
            self._begin(place)
        at = 0
        while at < len(messages):
            consumed = self._messages.bytes
            end = self._stretch(messages, at)
            self._add_stretch(list(messages[at:end]), self._messages.bytes - consumed)
            at = end
            full = self._pending_bytes >= BATCH_BYTES
            if full or (self._since_begin % CHECKED_MESSAGES == 0 and self._pending_rows >= BATCH_ROWS):
                self._flush()

    @property
    def _pending_rows(self) -> int:
        return len(self._pending) + (0 if self._native is None else self._native.rows)

    def _stretch(self, messages: Sequence[RawMessage], at: int) -> int:
        """The end of those of *messages* from *at* on that are decoded together; counts their sizes.

        Where a batch ends does not depend on how messages arrive, nor on what decodes them.
        """
        end = min(len(messages), at + CHECKED_MESSAGES - self._since_begin % CHECKED_MESSAGES)
        size = _bytes(messages[at:end])
        if self._pending_bytes + size >= BATCH_BYTES:
            size = 0
            for number in range(at, end):
                size += _bytes(messages[number : number + 1])
                if self._pending_bytes + size >= BATCH_BYTES:
                    end = number + 1
                    break
        self._messages.consumed += end - at
        self._messages.bytes += size
        self._pending_bytes += size
        self._since_begin += end - at
        return end

    def _add_stretch(self, messages: list[RawMessage], size: int) -> None:
        """Decode *messages* of *size* bytes together. One of them may be too large to be decoded: that is for Python to judge."""
        if self._native is None or size > self._codec.decompressed_max_bytes:
            for message in messages:
                expanded = self._codec.expanded
                self._sparse_index.add(message, *self._add_one(message))
                if self._codec.expanded > expanded:
                    self._pending_bytes += self._codec.expanded - expanded
                    if self._pending_bytes >= BATCH_BYTES:
                        self._flush()
            return
        first, last = np.empty(len(messages), np.int64), np.empty(len(messages), np.int64)
        waiting = np.arange(len(messages))
        if self._named:
            named = np.array([message[:3] in self._named for message in messages])
            self._add_each(messages, np.flatnonzero(named), first, last)
            waiting = waiting[~named]
        while len(waiting):
            waiting = self._add_natively(self._native, messages, waiting, first, last)
        self._sparse_index.add_all(messages, first, last)

    def _add_natively(
        self,
        native: NativeRows,
        messages: list[RawMessage],
        waiting: _Positions,
        first: _Positions,
        last: _Positions,
    ) -> _Positions:
        """Decode those of *messages* that are *waiting*; returns those that *native* may be able to read now.

        *first* and *last* get the commitTs of each (-1 and 0 without any). *native* learns forms from what Python reads, and is
        asked again as soon as it knows more: Python takes six times the time.
        """
        asked = messages if len(waiting) == len(messages) else [messages[at] for at in waiting.tolist()]
        took = native.read(asked)
        self._messages.decoded += len(asked) - len(took.left)
        self._events.rows += took.rows
        self._events.outside_window += took.outside
        self._events.filtered += took.filtered
        first[waiting], last[waiting] = took.first, took.last
        for at in sorted(set(self._placement.sample(asked)).difference(took.left)):
            self._placement.look_at(asked[at], self._decode(asked[at]))
        left, known = waiting[took.left], native.forms
        for start in range(0, len(left), LEARNT_TOGETHER):
            end = start + LEARNT_TOGETHER
            self._add_each(messages, left[start:end], first, last)
            if native.forms > known:
                return left[end:]
        return left[:0]

    def _add_each(self, messages: list[RawMessage], places: _Positions, first: _Positions, last: _Positions) -> None:
        """Decode those of *messages* at *places* in Python; *first* and *last* as ``_add_natively`` has them."""
        for at in places.tolist():
            start, end = self._add_one(messages[at])
            first[at], last[at] = -1 if start is None else start, end

    def _add_one(self, message: RawMessage) -> tuple[int | None, int]:
        """Decode *message*; the first and the last commitTs (TSO) of its rows and DDL, None and 0 without any."""
        decoded = self._decoded(message)
        if len(decoded) == 1 and isinstance(decoded[0], Undecodable) and decoded[0].ordinal is None:
            self._messages.quarantined += 1
            self._keep(message, decoded[0])
            self._references.search(message, decoded, decoded[0])
            return 0, MAX_TSO
        self._messages.decoded += 1
        self._placement.look_at(message, decoded)
        if self._native is not None:
            self._native.learn(message, decoded)
        return self._add_events(message, decoded)

    def _decoded(self, message: RawMessage) -> Sequence[Event]:
        """The events of *message*. Raises what the codec does, unless the pipeline file names the message.

        Anybody can write a message with the id of a schema that we may not read.
        """
        try:
            return self._decode(message)
        except (TicdcReplayError, MemoryError) as error:
            if {-1, 0} & self._named.get(message[:3], set()):
                why = str(error) or "there is not the memory for it"
                return [Undecodable(None, SET_ASIDE, f"{_NAMED}, and it can't be read: {why}")]
            raise type(error)(
                f"{message.place}: {error}. If only this message causes the error, and another program wrote it, name "
                "it in set_aside of the pipeline file"
            ) from error

    def finish(self) -> SplitResult:
        """Write what is left and close the files. Raises PermanentError where a row that was read is in none of the counts."""
        self._flush()
        self._whole_rows.close()
        files, keys_file = self._writer.close()
        self._events.written = sum(file.file.rows for file in files)
        self._events.duplicates = self._writer.duplicates
        self._events.split_updates = self._writer.split_updates
        self._events.unkeyed = self._writer.unkeyed
        self._events.placed = self._placement.checked
        lost = self._events.unaccounted
        if lost:
            raise PermanentError(
                f"{lost} of {self._events.rows} rows of split {self._split.number} were read but neither written nor left out: "
                "a defect of ticdc-replay. Nothing was published; please report it with the log of this task"
            )
        return SplitResult(
            number=self._split.number,
            files=tuple(files),
            keys_file=keys_file,
            quarantine_file=self._quarantine.close(),
            references_file=self._references.close(),
            sparse_index_file=self._sparse_index.close(),
            ddl=tuple(self._ddl),
            other_unread=tuple(self._other_unread),
            messages=self._messages,
            events=self._events,
            quarantine_reasons=dict(self._quarantine.reasons),
            missing_versions=tuple(sorted(self._codec.missing_versions)),
            writer_schemas=self._writer_schemas.hashes,
            elsewhere=self._placement.found(),
            acting=tuple(sorted(self._acting)),
            unsearched=self._references.unsearched,
        )

    def _begin(self, place: tuple[str, int]) -> None:
        """The next messages are of the topic and partition *place*."""
        if self._place is not None:
            self._flush()
            self._sparse_index.end_range()
            if self._place[0] != place[0]:
                self._writer.end_topic()
        self._place = place
        self._since_begin = 0

    def _add_events(self, message: RawMessage, decoded: Sequence[Event]) -> tuple[int | None, int]:
        """Take in the events of *message*; the first and last commitTs (TSO) of its rows and DDL, None and 0 without any.

        Runs for every event: about 0.6 µs.
        """
        counts, pending, window = self._events, self._pending, self._window
        times: list[int] = []
        schema, table, wanted = "", "", False
        unread: Undecodable | None = None
        for event in decoded:
            if isinstance(event, RowEvent):
                counts.rows += 1
                commit_ts = event.commit_ts
                if commit_ts is None:
                    times += (0, MAX_TSO)
                else:
                    times.append(commit_ts)
                if event.table != table or event.schema != schema:
                    schema, table = event.schema, event.table
                    wanted = self._filter.wants(schema, table)
                if commit_ts is not None and not window.from_ts <= commit_ts < window.to_ts:
                    counts.outside_window += 1
                elif not wanted:
                    counts.filtered += 1
                else:
                    pending.append(_new_located(Located, (message, event, 0)))
                    self._pending_large |= event.large is not None
                    continue
                if event.reference is not None:
                    self._references.add(message, event, event.reference, "not_needed")
            elif isinstance(event, WatermarkEvent):
                counts.watermarks += 1
            elif isinstance(event, DdlEvent):
                self._add_ddl(message, event)
                times.append(event.commit_ts)
            elif isinstance(event, BootstrapEvent):
                counts.bootstraps += 1
            else:
                self._add_undecodable(message, event)
                unread = event
                times += (0, MAX_TSO) if event.commit_ts is None else (event.commit_ts,)
        if unread is not None:
            self._references.search(message, decoded, unread)
        return (min(times), max(times)) if times else (None, 0)

    def _refuse_scattered(self, rows: Sequence[Located]) -> None:
        """Raise PermanentError where the dispatcher rules scatter a table of *rows*, which are ordered by their place."""
        tables: dict[tuple[str, str], RawMessage] = {}
        for located in rows:
            tables.setdefault((located.row.schema, located.row.table), located.message)
        for (schema, table), message in tables.items():
            if self._changefeed.scatters(schema, table):
                raise PermanentError(
                    f"{message.place}: {schema}.{table}: the changefeed's dispatcher rules scatter the changes of one row over "
                    "partitions, and not all rows carry a commitTs, so nothing shows which change came last. Take the table out "
                    "of `tables`, or choose another dispatcher or protocol (docs/protocols.md). Where the message is another "
                    "program's, name it in set_aside of the pipeline file"
                )

    def _add_undecodable(self, message: RawMessage, event: Undecodable) -> None:
        """Quarantine *event*, unless what could be read of it shows that it does not concern this run."""
        events = self._events
        if event.commit_ts is not None and event.commit_ts not in self._window:
            status = "not_needed"
            events.rows += 1
            events.outside_window += 1
        elif event.schema and event.table and not self._filter.wants(event.schema, event.table):
            status = "not_needed"
            events.rows += 1
            events.filtered += 1
        else:
            status = event.reason
            events.undecodable += 1
            self._keep(message, event)
        if status == "not_needed" and event.commit_ts is not None and self._codec.is_schema_change(message):
            at, about = event.commit_ts, (event.schema or "", event.table or "")
            self._other_unread.append(UnreadDdl(*message[:3], at, at, *about))
        if event.reference is not None:
            self._references.add(message, event, event.reference, status)

    def _add_ddl(self, message: RawMessage, event: DdlEvent) -> None:
        """Every DDL is kept, whatever its table and time: a RENAME names only the new table, and later windows need all."""
        self._events.ddl += 1
        place = (message.topic, message.partition, message.offset)
        self._ddl.append(
            Ddl(event.commit_ts, event.schema, event.table, event.query, event.type, *place, event.rounded)
        )

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if self._foreign.possible:
            pending = self._without(pending, WRONG_TOPIC, self._why_foreign)
        if self._named:
            pending = self._without(pending, SET_ASIDE, self._why_named)
        if self._order == "place":
            self._refuse_scattered(pending)
        if self._history.has_unread:
            pending = self._without(pending, DDL_UNREAD, self._why_untyped)
        if not self._pending_large:
            self._write(pending)
            return
        self._pending_large = False
        # What is whole goes first, with what was read natively: so it does not matter to files which of it was.
        self._write([located for located in pending if located.row.large is None])
        ready: list[Located] = []
        fetched_bytes = self._whole_rows.bytes
        for found in self._whole_rows.of([located for located in pending if located.row.large is not None]):
            if isinstance(found, Rejected):
                self._set_aside(*found)
                continue
            if found is not None:
                ready.append(found)
            if self._whole_rows.bytes - fetched_bytes >= BATCH_BYTES:
                self._write(ready)
                ready, fetched_bytes = [], self._whole_rows.bytes
        self._write(ready)

    def _write(self, rows: list[Located]) -> None:
        """Write *rows* and what was read natively since the last time."""
        if not self._accept_damaged:
            rows = self._without_damaged(rows)
        columnar: list[tuple[ResolvedSchema, ColumnarRows]] = []
        if self._native is not None and self._place is not None:
            columnar = self._native.take(*self._place)
        for rejected in self._writer.write(rows, columnar):
            self._set_aside(*rejected)

    def _without(self, rows: list[Located], reason: str, why: Callable[[Located], str | None]) -> list[Located]:
        """*rows* without those that *why* finds a fault with, which go to quarantine; their objects are not looked for."""
        others = []
        for located in rows:
            fault = why(located)
            if not fault:
                others.append(located)
                continue
            if located.row.reference is not None:
                self._references.add(located.message, located.row, located.row.reference, reason)
            self._set_aside(located, reason, fault)
        return others

    def _why_foreign(self, located: Located) -> str:
        """Why a row is of a table that belongs to another topic."""
        return self._foreign.why(located.message.topic, located.row.schema, located.row.table)

    def _why_untyped(self, located: Located) -> str | None:
        """Why the types of a row depend on DDL that could not be read."""
        row = located.row
        if row.commit_ts is None or brings_types(row):
            return None
        return self._history.unread_at(row.schema, row.table, row.commit_ts)

    def _why_named(self, located: Located) -> str | None:
        """That the pipeline file names a row."""
        events = self._named.get(located.message[:3], ())
        return _NAMED if -1 in events or located.row.ordinal in events else None

    def _without_damaged(self, rows: list[Located]) -> list[Located]:
        """*rows* without those that are known to be damaged, which go to quarantine."""
        sound = [located for located in rows if not located.row.damage]
        if len(sound) < len(rows):
            for located in rows:
                if located.row.damage:
                    self._set_aside(located, ROW_DAMAGED, located.row.damage)
        return sound

    def _set_aside(self, located: Located, reason: str, detail: str) -> None:
        """Quarantine a row, and leave its key so that a copy in another split that can be used clears it."""
        self._events.quarantined += 1
        position = self._keep(located.message, about_row(located.row, reason, detail))
        self._writer.add_quarantined_copy(located, self._quarantine.name, position)

    def _keep(self, message: RawMessage, why: Undecodable) -> int:
        """Put *message* into quarantine because of *why*; the position of the entry."""
        for ordinal in self._named.get(message[:3], ()):
            if ordinal == -1 or why.ordinal is None or why.ordinal == ordinal:
                self._acting.add(EventPlace(*message[:3], ordinal))
        return self._quarantine.add(message, why)


def _bytes(messages: Sequence[RawMessage]) -> int:
    """Bytes of the keys and values of *messages*, at least one."""
    _, _, _, _, keys, values = zip(*messages, strict=True)
    return sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))
