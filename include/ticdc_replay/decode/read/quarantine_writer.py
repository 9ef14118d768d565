"""Keeps what could not be used, with its bytes and the reason, and counts it by reason."""

from collections import Counter

from ticdc_replay.changelog.files.side_files import SideFile
from ticdc_replay.domain.events import RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage

DDL_UNREAD = "ddl_unread"
"""Reason of a row whose types depend on DDL in a message that could not be read."""
SET_ASIDE = "set_aside"
"""Reason of a row whose message the pipeline file names in ``set_aside``."""

_DETAIL_CHARACTERS = 2_000


class QuarantineWriter:
    """The quarantine of one split."""

    def __init__(self, file: SideFile) -> None:
        self._file = file
        self.reasons: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """Name of the file, relative to the changelog's root."""
        return self._file.name

    def add(self, message: RawMessage, why: Undecodable) -> int:
        """Keep *message* because of *why*; the position of the entry in the file."""
        self.reasons[why.reason] += 1
        return self._file.add(
            (
                message.topic,
                message.partition,
                message.offset,
                why.ordinal,
                message.timestamp_ms,
                message.key,
                message.value,
                why.reason,
                _text(why.detail[:_DETAIL_CHARACTERS]),
                why.commit_ts,
                None if why.schema is None else _text(why.schema),
                None if why.table is None else _text(why.table),
            )
        )

    def close(self) -> str | None:
        """Finish the file; its name, or None where nothing is in quarantine."""
        return self._file.close()


def _text(text: str) -> str:
    """*text* without halves of surrogate pairs, which no file takes."""
    return text.encode(errors="backslashreplace").decode()


def about_row(row: RowEvent, reason: str, detail: str) -> Undecodable:
    """The quarantine entry of *row*, which was read but can't be used."""
    return Undecodable(row.ordinal, reason, detail, row.commit_ts, row.schema, row.table)
