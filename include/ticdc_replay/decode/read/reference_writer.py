"""Records the claim-check references of a split, and how each was used."""

from collections.abc import Sequence

from ticdc_replay.changelog.files.identity import NO_KEY, row_key
from ticdc_replay.changelog.files.side_files import SideFile
from ticdc_replay.codecs.base import Codec
from ticdc_replay.decode.read.unread_references import NO_ORDINAL, Unsearched, unread_references
from ticdc_replay.domain.events import Event, Reference, RowEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.large_messages.claim_check import Fetched


class ReferenceWriter:
    """The references of one split, also in what *codec* could not read."""

    def __init__(self, file: SideFile, codec: Codec) -> None:
        self._file = file
        self._codec = codec
        self._unsearched = Unsearched()

    @property
    def unsearched(self) -> tuple[OffsetRange, ...]:
        """Messages that may need objects which nobody knows: references can't be found in their bytes, or name no object."""
        return self._unsearched.ranges

    def add(
        self,
        message: RawMessage,
        event: RowEvent | Undecodable,
        reference: Reference,
        status: str,
        fetched: Fetched | None = None,
    ) -> None:
        """Keep that *event* of *message* has *reference*. *status* is "used", "not_needed", or why the object was of no use."""
        if not reference.object_name:
            self._unsearched.add(message)
        key = row_key(event) if isinstance(event, RowEvent) else NO_KEY
        self._file.add(
            (
                message.topic,
                message.partition,
                message.offset,
                NO_ORDINAL if event.ordinal is None else event.ordinal,
                event.commit_ts,
                event.schema or "",
                event.table or "",
                reference.location,
                reference.object_name,
                status,
                fetched.etag if fetched else None,
                fetched.size if fetched else None,
                fetched.sha256 if fetched else None,
                message.timestamp_ms,
                key.hash,
                key.text,
            )
        )

    def search(self, message: RawMessage, decoded: Sequence[Event], unread: Undecodable) -> None:
        """Keep the references in what could not be read of *message*, such as *unread*."""
        found = unread_references(message, decoded, self._codec)
        for reference in found.references:
            self.add(message, unread, reference, unread.reason)
        if not found.complete:
            self._unsearched.add(message)

    def close(self) -> str | None:
        """Finish the file; its name, or None where there is no reference."""
        return self._file.close()
