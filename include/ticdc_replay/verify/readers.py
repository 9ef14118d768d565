"""A side of a comparison as ``scan`` reads it: many ranges or rows at a time, whether or not it has an index."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.verify import forms
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.findings import RangeDigest
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, Range, ScannedSide, Side

MOST_RANGES = 1_000
"""Ranges of one statement at a side without an index."""
SMALL = 1_000
"""A range of at most so many rows is fetched; of each row the key, an MD5 and a version."""
SORTED_RANGES = 16
"""In so many parts a range is cut if the source has no suitable index: it reads the whole table for each part."""
_SPARE = 4
"""So many keys are fetched for one that cuts a range: parts are of more even size then."""

T = TypeVar("T")


class ToCut(NamedTuple):
    """A range of so many ``rows``, which is to be cut in about so many ``parts``."""

    part: Range
    rows: int
    parts: int


class Reader(ABC):
    """A side of which many ranges or rows are asked for at a time. Methods without a description are those of ``ScannedSide``."""

    sorts = False
    """Whether each range takes a look at the whole table, as no index has their order."""

    @abstractmethod
    def ranges(self, lower: Key | None, most: int) -> Iterator[RangeDigest]:
        """The ranges from *lower* on, up to the end of the table or, about, so many (*most*)."""

    @abstractmethod
    def cuts(self, asked: Sequence[ToCut]) -> list[list[Key]]:
        """Of each range the sorted keys that cut it."""

    @abstractmethod
    def digests(self, parts: Sequence[Range]) -> list[Digest]: ...

    @abstractmethod
    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]: ...

    @abstractmethod
    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]: ...

    @abstractmethod
    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]: ...


class Scanned(Reader):
    """A side without an index."""

    def __init__(self, side: ScannedSide, pace: Pace) -> None:
        self._side, self._pace = side, pace

    def ranges(self, lower: Key | None, most: int) -> Iterator[RangeDigest]:
        part = Range(lower)
        [held] = self.digests([part])
        keys = self.cuts([ToCut(part, held.rows, -(-held.rows // self._pace.range_rows))])[0]
        uppers = [*(key for key in keys if key != lower), None][:most]
        digests = self.digests([Range(*pair) for pair in pairwise([lower, *uppers])])
        yield from map(RangeDigest, uppers, digests)

    def cuts(self, asked: Sequence[ToCut]) -> list[list[Key]]:
        if not asked:
            return []
        ratios = [max(1, each.rows // (max(1, each.parts) * _SPARE)) for each in asked]
        found = self._side.cuts([each.part for each in asked], ratios)
        distinct = [list(dict.fromkeys(keys)) for keys in found]  # a lake may have a key many times
        return [_every(-(-len(keys) // max(1, each.parts)), keys) for keys, each in zip(distinct, asked, strict=True)]

    def digests(self, parts: Sequence[Range]) -> list[Digest]:
        return [digest for some in chunks(parts, MOST_RANGES) for digest in self._side.digests(some)]

    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
        return self._side.rows(parts)

    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]:
        return self._side.cells(keys)

    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]:
        return self._side.values(keys, column)


class Indexed(Reader):
    """A source that is read range by range, with pauses. Without a suitable index, keys of *mirror* cut the table."""

    def __init__(self, side: Side, mirror: Scanned, columns: Sequence[ComparedColumn], pace: Pace) -> None:
        self._side, self._mirror, self._columns, self._pace = side, mirror, columns, pace
        self.sorts = not side.steps_by_index

    def ranges(self, lower: Key | None, most: int) -> Iterator[RangeDigest]:
        for upper in self._uppers(lower, most):
            yield RangeDigest(upper, self._gently(self._side.digest, Range(lower, upper)))
            lower = upper

    def _uppers(self, lower: Key | None, most: int) -> Iterator[Key | None]:
        if self.sorts:
            part = Range(lower)
            [held] = self._mirror.digests([part])
            [keys] = self._mirror.cuts([ToCut(part, held.rows, SORTED_RANGES)])
            yield from [*(key for key in keys if key != lower), None]
            return
        for _ in range(most):
            upper = self._gently(self._side.step, Range(lower), self._pace.range_rows)
            if upper is not None and upper == lower:
                raise PermanentError(
                    f"the key {upper} comes {self._pace.range_rows} rows after itself: check the indexes"
                )
            yield upper
            if upper is None:
                return
            lower = upper

    def cuts(self, asked: Sequence[ToCut]) -> list[list[Key]]:
        return [list(self._steps(each)) for each in asked]

    def _steps(self, asked: ToCut) -> Iterator[Key]:
        rows = max(-(-asked.rows // SORTED_RANGES), SMALL // 2) if self.sorts else SMALL
        key = asked.part.lower
        while (key := self._gently(self._side.step, Range(key, asked.part.upper), rows)) is not None:
            yield key

    def digests(self, parts: Sequence[Range]) -> list[Digest]:
        return [self._gently(self._side.digest, part) for part in parts]

    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
        return [self._gently(self._side.rows, part) for part in parts]

    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]:
        return {
            key: [_with_md5(column, text) for column, text in zip(self._columns, cells, strict=True)]
            for key in keys
            if (cells := self._gently(self._side.cells, key)) is not None
        }

    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]:
        return {key: self._gently(self._side.value, key, column) for key in keys}

    def _gently(self, method: Callable[..., T], *arguments: Any) -> T:
        """Call *method* of the side, then leave it alone for as long as its share of the time asks."""
        begun = time.monotonic()
        found = method(*arguments)
        if self._pace.share < 1:
            busy = time.monotonic() - begun
            self._pace.sleep(busy / self._pace.share - busy)
        return found


def _with_md5(column: ComparedColumn, text: str | None) -> str | None:
    """A cell of a source as ``ScannedSide.cells`` has it."""
    if text is None or column.form is not forms.Form.TEXT or forms.is_hashed(column.form, column.type):
        return text
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _every(step: int, keys: Sequence[Key]) -> list[Key]:
    return list(keys[step::step]) if keys else []


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """*items* in parts of *size*, the last one smaller."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
