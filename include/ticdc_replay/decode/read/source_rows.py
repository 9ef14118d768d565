"""Completes rows for which TiCDC sent only the handle key: from the record of the input, else from the source.

New images are read at commitTs, old ones at commitTs - 1.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ticdc_replay.changefeed.rules import SourceTable
from ticdc_replay.changelog.files.identity import ambiguous_key
from ticdc_replay.changelog.files.writer import KEY_LOSSY, Located
from ticdc_replay.decode.read.source_record import ReadPlace, SourceRecord
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError
from ticdc_replay.domain.events import Image, Operation, RowEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.large_messages.source import RowRequest, RowUnreadable, SourceReader
from ticdc_replay.large_messages.source_images import SourceRow, image_of

_ROWS_AT_A_TIME = 16
"""Rows held at a time, each with two images: TiDB allows rows of 6 MiB unless it is set otherwise."""


def check_source(job: DecodeJob, window: Window, connections: Connections) -> None:
    """Raise PermanentError where the source can't show rows as they were in *window*: older than its GC safe point."""
    if job.source_connection is None:
        return
    reader = SourceReader(connections[job.source_connection], job.changefeed.timezone)
    try:
        reader.check_safe_point(window.from_ts - 1)
    finally:
        reader.close()


class _Read(NamedTuple):
    """One image to be read, with the key that the message has of it."""

    place: ReadPlace
    request: RowRequest


class SourceRows:
    """Reads the rows of one split again."""

    def __init__(self, job: DecodeJob, reader: SourceReader, record: SourceRecord) -> None:
        self._dispatch = job.changefeed.dispatch
        self._reader = reader
        self._record = record
        self._answers: dict[tuple[Any, ...], SourceRow | RowUnreadable] = {}
        """To the last requests."""
        self.bytes = 0
        """Bytes of the cells that were read so far."""

    def whole(self, rows: Sequence[Located]) -> Iterator[RowEvent | RowUnreadable]:
        """Each of *rows* as a whole row, in their order, or why it can't be read.

        A delete whose old image can't be read stays as it is: a target needs only its key. Raises what ``SourceReader.rows``
        raises.
        """
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            yield from self._some(rows[start : start + _ROWS_AT_A_TIME])

    def close(self) -> None:
        """Write the rest of the record, and end the session."""
        self._record.flush()
        self._reader.close()

    def _some(self, rows: Sequence[Located]) -> Iterator[RowEvent | RowUnreadable]:
        planned = [self._reads(located) for located in rows]
        reads = [read for each in planned if not isinstance(each, RowUnreadable) for read in each]
        found: dict[ReadPlace, SourceRow | RowUnreadable] = {**self._record.among([read.place for read in reads])}
        unknown = [read for read in reads if read.place not in found]
        for read, answer in zip(unknown, self._answered(unknown), strict=True):
            found[read.place] = answer
            if not isinstance(answer, RowUnreadable) or answer.is_lasting:
                self._record.add(read.place, read.request.snapshot, answer)
        for located, each in zip(rows, planned, strict=True):
            if isinstance(each, RowUnreadable):
                outcome: RowEvent | RowUnreadable = each
            else:
                outcome = self._assembled(located.row, [(read, found[read.place]) for read in each])
            if isinstance(outcome, RowUnreadable) and located.row.operation is Operation.DELETE:
                outcome = located.row
            yield outcome

    def _answered(self, reads: Sequence[_Read]) -> list[SourceRow | RowUnreadable]:
        """What the source answers to each of *reads*; an error that is of one of them names its message."""
        try:
            return self._asked([read.request for read in reads])
        except (AuthenticationError, ConfigError):
            raise
        except PermanentError:
            for read in reads:
                try:
                    self._reader.rows([read.request])
                except PermanentError as error:
                    topic, partition, offset, ordinal, _ = read.place
                    raise PermanentError(f"{topic}[{partition}]@{offset}, event {ordinal}: {error}") from error
            raise

    def _asked(self, requests: Sequence[RowRequest]) -> list[SourceRow | RowUnreadable]:
        """What the source answers to each of *requests*; equal ones, also of the requests before, are asked for once."""
        # As text: equal cells of other types (1, 1.0) are other keys.
        names = [(*request[:3], repr(request.key)) for request in requests]
        fresh = {name: request for name, request in zip(names, requests, strict=True) if name not in self._answers}
        known = {**self._answers, **dict(zip(fresh, self._reader.rows([*fresh.values()]), strict=True))}
        self._answers = {name: known[name] for name in names}
        return [self._answers[name] for name in names]

    def _reads(self, located: Located) -> list[_Read] | RowUnreadable:
        row = located.row
        if row.commit_ts is None:
            return RowUnreadable(
                "handle_key_only", "TiCDC sent only the handle key of this row, and no commitTs to read it at"
            )
        ambiguous = ambiguous_key(row)
        if ambiguous is not None:
            return RowUnreadable(KEY_LOSSY, ambiguous)
        source = self._dispatch.source_of(row.schema, row.table)
        if source is None:
            return RowUnreadable(
                "source_row_missing", f"rules route several tables of the source to {row.schema}.{row.table}"
            )
        table = TableName(source.schema, source.table)
        wanted: list[tuple[str, int, Image | None]] = []
        if row.after is not None:
            wanted.append(("after", row.commit_ts, row.after))
        if row.operation in (Operation.UPDATE, Operation.DELETE):
            wanted.append(("before", row.commit_ts - 1, _keyed(row)))
        reads = []
        for side, snapshot, image in wanted:
            if image is None or not image.shape.handle_key:
                return RowUnreadable("source_row_missing", "the message has no key to find the row by")
            try:
                key = image.key()
            except ValueError as error:
                return RowUnreadable("bad_cell", f"{side}: {error}")
            place = ReadPlace(
                located.message.topic, located.message.partition, located.message.offset, row.ordinal, side
            )
            reads.append(_Read(place, RowRequest(table, snapshot, image.shape.handle_key, key)))
        return reads

    def _assembled(
        self, row: RowEvent, answers: Sequence[tuple[_Read, SourceRow | RowUnreadable]]
    ) -> RowEvent | RowUnreadable:
        images: dict[str, Image | None] = {"before": None, "after": None}
        for read, answer in answers:
            if isinstance(answer, RowUnreadable):
                return answer
            self.bytes += sum(len(value) for value in answer.values if value is not None)
            images[read.place.side] = image_of(answer, read.request.key_names, self._sent(read.request.table, answer))
        return row._replace(after=images["after"], before=images["before"], partial=False, before_unknown=())

    def _sent(self, table: TableName, row: SourceRow) -> tuple[str, ...]:
        """The columns that TiCDC would have sent, had the row fitted."""
        names = tuple(column.name for column in row.definition.schema().columns)
        selector = self._dispatch.selector_of(SourceTable(table.schema, table.table))
        return names if selector is None else tuple(name for name in names if selector.columns.keeps(name))


def _keyed(row: RowEvent) -> Image | None:
    """The image of *row* that has the key of its old state: the new one where the old was not sent."""
    if row.before is None or (row.after is not None and row.before.shape.handle_key != row.after.shape.handle_key):
        return row.after
    return row.before
