"""Which commit timestamps lie in which stretch of offsets: what lets a later window start further on.

Watermarks don't count. A message that can't be read could be of any time, so its stretch reaches to the end of time.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ticdc_replay.changelog.files.side_files import SideFile
from ticdc_replay.domain.messages import RawMessage

STRETCH_MESSAGES = 1024


class SparseIndexWriter:
    """Collects, for ranges in offset order, the commitTs range of every ``STRETCH_MESSAGES`` messages."""

    def __init__(self, file: SideFile) -> None:
        self._file = file
        self._place: tuple[str, int] | None = None
        self._start = 0
        self._end = 0
        self._messages = 0
        self._first: int | None = None
        self._last: int | None = None

    def add(self, message: RawMessage, first: int | None, last: int) -> None:
        """Note *message*, whose rows and DDL have commit timestamps from *first* to *last* (TSO); *first* is None without any."""
        if self._messages == 0:
            self._place, self._start = (message.topic, message.partition), message.offset
        self._end = message.offset + 1
        self._messages += 1
        if first is not None:
            self._first = first if self._first is None else min(self._first, first)
            self._last = last if self._last is None else max(self._last, last)
        if self._messages == STRETCH_MESSAGES:
            self._write()

    def add_all(
        self, messages: Sequence[RawMessage], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
    ) -> None:
        """``add`` for each of *messages*, which are of one partition; *first* is -1 where a message has no rows and no DDL."""
        at = 0
        while at < len(messages):
            end = min(len(messages), at + STRETCH_MESSAGES - self._messages)
            if self._messages == 0:
                self._place, self._start = (messages[at].topic, messages[at].partition), messages[at].offset
            self._end = messages[end - 1].offset + 1
            self._messages += end - at
            there = first[at:end] >= 0
            if there.any():
                earliest, latest = int(first[at:end][there].min()), int(last[at:end][there].max())
                self._first = earliest if self._first is None else min(self._first, earliest)
                self._last = latest if self._last is None else max(self._last, latest)
            if self._messages == STRETCH_MESSAGES:
                self._write()
            at = end

    def end_range(self) -> None:
        """The next message is of another range: what was added up to now is a stretch of its own."""
        if self._messages:
            self._write()

    def close(self) -> str | None:
        """Finish the file; its name, or None where there was no message."""
        self.end_range()
        return self._file.close()

    def _write(self) -> None:
        assert self._place is not None
        self._file.add((*self._place, self._start, self._end, self._first, self._last))
        self._messages, self._first, self._last = 0, None, None
