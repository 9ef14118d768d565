"""Completes rows whose messages hold only a part of them: from claim-check objects, or from the source."""

from collections.abc import Iterator, Sequence
from itertools import repeat

from ticdc_replay.changelog.files.index import EventCounts
from ticdc_replay.changelog.files.writer import Located, Rejected
from ticdc_replay.codecs.base import Codec
from ticdc_replay.decode.plan.known_objects import KnownObjects
from ticdc_replay.decode.plan.tasks import SplitContext
from ticdc_replay.decode.read.native import NativeRows
from ticdc_replay.decode.read.reference_writer import ReferenceWriter
from ticdc_replay.decode.read.source_record import SourceRecord
from ticdc_replay.decode.read.source_rows import SourceRows
from ticdc_replay.domain.events import Event, LargeMessage, Operation, Reference, RowEvent, Undecodable
from ticdc_replay.large_messages.claim_check import ClaimCheckResolver, Fetched
from ticdc_replay.large_messages.source import RowUnreadable, SourceReader
from ticdc_replay.storage import ObjectStore, open_store

FEW_ROWS = 4
"""That refer to one object: it was sent again once or twice, and the native decoder still takes less time."""


class WholeRows:
    """Completes the rows of one split; what it used is counted in *events* and recorded in *references*."""

    def __init__(
        self,
        context: SplitContext,
        artifacts: ObjectStore,
        codec: Codec,
        native: NativeRows | None,
        references: ReferenceWriter,
        events: EventCounts,
    ) -> None:
        attempt, job, connections = context.attempt, context.job, context.connections
        filesystem, _ = artifacts.arrow_filesystem()
        self._codec = codec
        self._native = native
        self._references = references
        self._events = events
        self._object_bytes = 0
        self._known_objects = KnownObjects(filesystem, attempt.known_objects)
        self._source: SourceRows | None = None
        if job.source_connection is not None:
            record = SourceRecord(artifacts, job.input_hash, attempt.known_rows)
            reader = SourceReader(connections[job.source_connection], job.changefeed.timezone)
            self._source = SourceRows(job, reader, record)
        self._resolver: ClaimCheckResolver | None = None
        if job.changefeed.claim_check_uri is not None:
            self._resolver = ClaimCheckResolver(
                open_store(job.changefeed.claim_check_uri, connections.get(job.claim_check_connection)),
                max_bytes=job.limits.claim_check_max_bytes,
                in_flight_bytes=job.limits.claim_check_in_flight_bytes,
                connections=job.limits.claim_check_connections,
            )

    @property
    def bytes(self) -> int:
        """Bytes of the rows that were made whole so far, decompressed."""
        return self._object_bytes + (0 if self._source is None else self._source.bytes)

    def of(self, pending: Sequence[Located]) -> Iterator[Located | Rejected | None]:
        """The rows of *pending*, completed and in their order; or why one can't be completed.

        None for a row that waits in the native decoder. Rows that refer to one object come together: it is fetched and read once.
        """
        by_object: dict[str, list[tuple[Located, Reference]]] = {}
        for located in pending:
            if located.row.reference is not None:
                reference = located.row.reference
                by_object.setdefault(reference.object_name, []).append((located, reference))
        fetched = self._fetch(list(by_object))
        reread = self._reread(pending)
        for located in pending:
            message, row = located.message, located.row
            if row.reference is not None:
                referring = by_object.pop(row.reference.object_name, None)
                if referring is not None:
                    yield from self._resolve(referring, next(fetched))
            else:
                self._events.handle_key_only += row.operation is not Operation.DELETE
                outcome = next(reread)
                if isinstance(outcome, RowEvent):
                    self._events.reread += not outcome.partial
                    yield Located(message, outcome)
                else:
                    yield Rejected(located, outcome.reason, outcome.detail)

    def close(self) -> None:
        """Finish the record of what was read from the source."""
        if self._source is not None:
            self._source.close()

    def _reread(self, pending: Sequence[Located]) -> Iterator[RowEvent | RowUnreadable]:
        """The rows of *pending* for which only the key was sent, read from the source. A delete needs no more than its key."""
        rows = [located for located in pending if located.row.large is LargeMessage.HANDLE_KEY_ONLY]
        if self._source is not None:
            return self._source.whole(rows)
        why = RowUnreadable("handle_key_only", "TiCDC sent only the handle key of this row")
        return (located.row if located.row.operation is Operation.DELETE else why for located in rows)

    def _fetch(self, names: Sequence[str]) -> Iterator[Fetched]:
        if not names:
            return iter(())
        if self._resolver is None:
            return repeat(Fetched.failed("claim_check_store_unknown", "the changefeed names no claim-check store"))
        return self._resolver.fetch(names, self._known_objects.among(names))

    def _resolve(
        self, referring: Sequence[tuple[Located, Reference]], fetched: Fetched
    ) -> Iterator[Located | Rejected | None]:
        """The rows that refer to one object, completed."""
        content = fetched.content
        if content is None:
            for located, reference in referring:
                self._references.add(*located[:2], reference, fetched.reason, fetched)
                yield Rejected(located, fetched.reason, fetched.detail)
            return
        expanded = self._codec.expanded
        found: Event | None = None
        # The native decoder reads the object for each row, and copies it; what Python reads once, all rows share.
        native = self._native if len(referring) <= FEW_ROWS else None
        for located, reference in referring:
            message, row = located.message, located.row
            if native is not None and native.read_object(message, row, content):
                whole: Event | None = None
            else:
                found = self._codec.read_object(content) if found is None else found
                whole = self._codec.made_whole(row, found)
            if isinstance(whole, Undecodable):
                self._references.add(message, row, reference, whole.reason, fetched)
                yield Rejected(located, whole.reason, f"object {reference.object_name}: {whole.detail}")
                continue
            assert whole is None or isinstance(whole, RowEvent), "an object is a row, or can't be read as one"
            self._references.add(message, row, reference, "used", fetched)
            self._events.claim_checks_resolved += 1
            self._events.claim_check_bytes += len(content)
            self._object_bytes += len(content) + self._codec.expanded - expanded
            if whole is None:
                yield None
                continue
            if self._native is not None:
                self._native.learn_object(message, whole, content)
            yield Located(message, whole)
