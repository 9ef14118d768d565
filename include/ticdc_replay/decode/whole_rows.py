"""Makes rows whole of which their messages hold a part: from claim-check objects, or from the source."""

from collections.abc import Iterator, Sequence
from itertools import count

from ticdc_replay.changelog.index import EventCounts
from ticdc_replay.changelog.writer import Located, Rejected
from ticdc_replay.codecs.base import Codec
from ticdc_replay.decode.known_objects import KnownObjects
from ticdc_replay.decode.native import NativeRows
from ticdc_replay.decode.references import References
from ticdc_replay.decode.source_record import SourceRecord
from ticdc_replay.decode.source_rows import SourceRows
from ticdc_replay.decode.tasks import Attempt
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import LargeMessage, Operation, Reference, RowEvent, Undecodable
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.large_messages.claim_check import ClaimCheckResolver, Fetched
from ticdc_replay.large_messages.source import RowUnreadable, SourceReader
from ticdc_replay.storage import ObjectStore, open_store


class WholeRows:
    """What makes rows of one split whole. It counts in *events* and *references* what it used."""

    def __init__(
        self,
        job: DecodeJob,
        attempt: Attempt,
        artifacts: ObjectStore,
        connections: Connections,
        codec: Codec,
        native: NativeRows | None,
        references: References,
        events: EventCounts,
    ) -> None:
        filesystem, _ = artifacts.arrow_filesystem()
        self._codec = codec
        self._native = native
        self._references = references
        self._events = events
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
        """Bytes that came from elsewhere than Kafka so far, decompressed."""
        source = 0 if self._source is None else self._source.bytes
        return self._events.claim_check_bytes + self._codec.expanded + source

    def of(self, pending: Sequence[Located]) -> Iterator[Located | Rejected | None]:
        """The rows of *pending*, which came in part, whole and in their order; or why one can't be made so.

        None for one that waits in the native decoder.
        """
        fetched = self._fetch(pending)
        reread = self._reread(pending)
        for located in pending:
            message, row = located.message, located.row
            if row.reference is not None:
                yield self._resolve(located, row.reference, next(fetched))
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
        """What becomes of those rows of *pending* of which only the key was sent. A delete needs no more."""
        rows = [located for located in pending if located.row.large is LargeMessage.HANDLE_KEY_ONLY]
        if self._source is not None:
            return self._source.whole(rows)
        why = RowUnreadable("handle_key_only", "TiCDC sent only the handle key of this row")
        return (located.row if located.row.operation is Operation.DELETE else why for located in rows)

    def _fetch(self, pending: Sequence[Located]) -> Iterator[Fetched]:
        names = [located.row.reference.object_name for located in pending if located.row.reference is not None]
        if not names:
            return iter(())
        if self._resolver is None:
            return (
                Fetched.failed("claim_check_store_unknown", "the changefeed names no claim-check store")
                for _ in count()
            )
        return self._resolver.fetch(names, self._known_objects.among(names))

    def _resolve(self, located: Located, reference: Reference, fetched: Fetched) -> Located | Rejected | None:
        message, row = located.message, located.row
        content = fetched.content
        if content is None:
            self._references.add(message, row, reference, fetched.reason, fetched)
            return Rejected(located, fetched.reason, fetched.detail)
        whole = None
        if self._native is None or not self._native.read_object(message, row, content):
            whole = self._codec.decode_claim_check(row, content)
        if isinstance(whole, Undecodable):
            self._references.add(message, row, reference, whole.reason, fetched)
            return Rejected(located, whole.reason, f"object {reference.object_name}: {whole.detail}")
        assert whole is None or isinstance(whole, RowEvent), "an object is a row, or can't be read as one"
        self._references.add(message, row, reference, "used", fetched)
        self._events.claim_checks_resolved += 1
        self._events.claim_check_bytes += len(content)
        if whole is None:
            return None
        if self._native is not None:
            self._native.learn_object(message, whole, content)
        return Located(message, whole)
