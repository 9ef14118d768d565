"""Compares a mirror with its source, range by range: digests in both engines at once, then the rows of ranges that differ.

Memory is bounded by the rows of one small range, by ``_FETCHED`` rows of one that can't be cut, and by the differences that are
listed.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from ticdc_replay.domain.column_types import INTEGER_TYPES, integer_range
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.verify import forms
from ticdc_replay.verify.findings import MOST_LISTED, Difference, Findings, Progress
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, MirrorSide, Range, Side

RANGE_ROWS = 50_000
"""Rows of a range of which one digest is computed."""
_SMALL = 1_000
"""A range of at most so many rows is fetched; of each row the key, an MD5 and a version."""
_FETCHED = 50_000
"""A range with keys that no mirror can have, which can't be cut between them, is fetched with at most so many rows."""
_PARTS = 16
"""In so many parts a larger range that differs is cut."""
_MOST_SORTED_RANGES = 16
"""Of a source without a suitable index: each range reads the whole table."""

T = TypeVar("T")


class Pace(msgspec.Struct, frozen=True):
    """How a comparison treats the source: ``share`` (above 0, at most 1) of the time it may work for the comparison, in
    statements of ``range_rows`` rows. ``sleep`` waits so many seconds."""

    share: float = 0.5
    range_rows: int = RANGE_ROWS
    sleep: Callable[[float], None] = time.sleep


class Comparison:
    """Compares *columns* of *source* as of *at* (TSO) with *mirror*; *key* are the places of the key's columns among them."""

    def __init__(
        self,
        source: Side,
        mirror: MirrorSide,
        columns: Sequence[ComparedColumn],
        key: Sequence[int],
        at: int,
        pace: Pace,
    ) -> None:
        self._source, self._mirror = source, mirror
        self._columns = columns
        self._key_forms = [columns[at].form for at in key]
        [*types] = (columns[at].type for at in key)
        self._integers = integer_range(types[0]) if len(types) == 1 and types[0].base in INTEGER_TYPES else None
        self._at = at
        self._pace = pace
        self._busy = 0.0

    def run(self, begun: Progress, keep: Callable[[Progress], None]) -> Findings:
        """Go on from *begun* to the end of the table; *keep* gets what is found after each range.

        Raises what the sides raise. What was kept stays right: the comparison can go on from there.
        """
        findings = begun.findings
        if findings.ended:
            return findings
        with ThreadPoolExecutor(1, "source") as at_source, ThreadPoolExecutor(1, "mirror") as at_mirror:
            self._pools = {id(self._source): at_source, id(self._mirror): at_mirror}
            rows = self._range_rows()
            lower = findings.reached
            part = Range(lower, self._checked(lower, self._stepped(lower, rows).result(), rows))
            digests = self._digests(part)
            while True:
                coming = None
                if part.upper is not None:
                    upper = self._counted_on(part, digests[0].result().rows, rows)
                    if upper is None:
                        upper = self._checked(part.upper, self._stepped(part.upper, rows).result(), rows)
                    next_part = Range(part.upper, upper)
                    self._pause()
                    coming = next_part, self._digests(next_part)  # while the mirror may be still at this part
                source, mirror = (digest.result() for digest in digests)
                found = msgspec.structs.replace(
                    findings,
                    reached=part.upper,
                    ended=coming is None,
                    ranges=findings.ranges + 1,
                    source_rows=findings.source_rows + source.rows,
                    mirror_rows=findings.mirror_rows + mirror.rows,
                )
                findings = found if source == mirror else self._look(part, source, mirror, found)
                keep(Progress(findings))
                if coming is None:
                    return findings
                part, digests = coming

    def _range_rows(self) -> int:
        """How many rows a range has: more if a side reads its whole table for each."""
        if self._source.steps_by_index and self._mirror.steps_by_index:
            return self._pace.range_rows
        held = self._ask(self._mirror, self._mirror.digest, Range()).result().rows
        return max(self._pace.range_rows, -(-held // _MOST_SORTED_RANGES))

    def _counted_on(self, part: Range, found: int, rows: int) -> Key | None:
        """The end of the range after *part*, in which *found* rows are, if no engine need be asked: a range of integers has no
        more rows than numbers. None where keys have wide gaps."""
        if self._integers is None or part.lower is None or part.upper is None:
            return None
        [(first,), (last,)] = part.lower, part.upper
        upper = int(last) + rows
        return (str(upper),) if found * 2 >= int(last) - int(first) and upper <= self._integers[1] else None

    def _stepped(self, lower: Key | None, rows: int) -> "Future[Key | None]":
        """The end of the range of *rows* rows from *lower* on."""
        side = self._source if self._source.steps_by_index else self._mirror
        return self._ask(side, side.step, Range(lower), rows)

    def _checked(self, lower: Key | None, upper: Key | None, rows: int) -> Key | None:
        """*upper*, or a key of the mirror if the mirror can have none such."""
        if upper is not None and not self._is_possible(upper):
            upper = self._ask(self._mirror, self._mirror.step, Range(lower), rows).result()
        if upper is not None and upper == lower:
            raise PermanentError(f"the key {upper} comes {rows} rows after itself: check the table's indexes")
        return upper

    def _is_possible(self, key: Key) -> bool:
        """Whether a mirror can have *key*: no mirror has days that no calendar has, or the character NUL."""
        return all(
            forms.is_calendar_day(form, text) and not (form is forms.Form.TEXT and "\0" in text)
            for form, text in zip(self._key_forms, key, strict=True)
        )

    def _look(self, part: Range, at_source: Digest, at_mirror: Digest, findings: Findings) -> Findings:
        """*findings* with the rows of *part* that differ."""
        if len(findings.differences) >= MOST_LISTED:
            return msgspec.structs.replace(findings, unexamined=findings.unexamined + 1)
        most = max(at_source.rows, at_mirror.rows)
        if most <= _SMALL:
            return self._rows(part, findings)
        side = self._source if at_source.rows >= at_mirror.rows else self._mirror
        for smaller in self._cut(part, side, most):
            digests = self._digests(smaller)
            source, mirror = (digest.result() for digest in digests)
            if source == mirror:
                continue
            cut = self._look if smaller != part else self._look_at_uncut
            findings = cut(smaller, source, mirror, findings)
        return findings

    def _look_at_uncut(self, part: Range, at_source: Digest, at_mirror: Digest, findings: Findings) -> Findings:
        """``_look`` at a *part* that has keys that no mirror can have wherever it would be cut. A large one is cut by keys of the
        mirror, as long as there are any: what lies between two of them is not examined."""
        if max(at_source.rows, at_mirror.rows) <= _FETCHED:
            return self._rows(part, findings)
        middle = None
        if at_mirror.rows:
            middle = self._ask(self._mirror, self._mirror.step, part, at_mirror.rows // 2).result()
        if middle is None or middle == part.lower:
            return msgspec.structs.replace(findings, unexamined=findings.unexamined + 1)
        for smaller in (Range(part.lower, middle), Range(middle, part.upper)):
            source, mirror = (digest.result() for digest in self._digests(smaller))
            if source != mirror:
                findings = self._look(smaller, source, mirror, findings)
        return findings

    def _cut(self, part: Range, side: Side, rows: int) -> list[Range]:
        """*part* in ranges of about equally many rows of *side*."""
        size = max(-(-rows // _PARTS), _SMALL // 2)
        keys = [part.lower]
        while True:
            following = self._ask(side, side.step, Range(keys[-1], part.upper), size).result()
            if following is None:
                break
            if not self._is_possible(following):
                following = self._ask(self._mirror, self._mirror.step, Range(keys[-1], part.upper), size).result()
                if following is None:
                    break
            keys.append(following)
        return [Range(lower, upper) for lower, upper in pairwise([*keys, part.upper])]

    def _rows(self, part: Range, findings: Findings) -> Findings:
        """*findings* with the rows of the small *part* that differ."""
        asked = self._ask(self._source, self._source.rows, part), self._ask(self._mirror, self._mirror.rows, part)
        source, mirror = ({row.key: row for row in rows.result()} for rows in asked)
        found = [
            difference
            for key in sorted({*source, *mirror})
            if (difference := self._difference(key, source.get(key), mirror.get(key))) is not None
        ]
        if not found:
            return findings
        # Loads go on beside a comparison: what a row was found to be, it must still be now.
        now = {row.key: row for row in self._ask(self._mirror, self._mirror.rows, part).result()}
        lacking = [each.key for each in found if each.kind == "missing" and self._is_possible(each.key)]
        deletes: dict[Key, int] = {}
        for first in range(0, len(lacking), _SMALL):
            deletes |= self._ask(self._mirror, self._mirror.deleted, lacking[first : first + _SMALL]).result()
        found = [msgspec.structs.replace(each, version=deletes.get(each.key, each.version)) for each in found]
        settled = [each for each in found if each.version <= self._at and now.get(each.key) == mirror.get(each.key)]
        return findings.with_rows(settled, len(found) - len(settled))

    def _difference(self, key: Key, source: FoundRow | None, mirror: FoundRow | None) -> Difference | None:
        if source is None or mirror is None:
            return Difference("missing", key) if mirror is None else Difference("extra", key, (), mirror.version)
        if source.md5 == mirror.md5:
            return None
        if mirror.version > self._at:
            return Difference("changed", key, (), mirror.version)
        columns = self._columns_that_differ(key)
        return Difference("changed", key, columns, mirror.version) if columns else None

    def _columns_that_differ(self, key: Key) -> tuple[str, ...]:
        """None for a row whose texts differ, but not its values; all if one side has no such row any more."""
        asked = self._ask(self._source, self._source.cells, key), self._ask(self._mirror, self._mirror.cells, key)
        source, mirror = (cells.result() for cells in asked)
        return tuple(
            column.name
            for at, column in enumerate(self._columns)
            if source is None or mirror is None or (source[at] != mirror[at] and not self._is_one_value(key, at))
        )

    def _is_one_value(self, key: Key, column: int) -> bool:
        """Whether the texts of a cell differ, but not their values."""
        form = self._columns[column].form
        if form not in (forms.Form.FLOAT, forms.Form.JSON):
            return False
        texts = [self._ask(side, side.value, key, column).result() for side in (self._source, self._mirror)]
        return forms.same_value(form, *texts)

    def _digests(self, part: Range) -> "tuple[Future[Digest], Future[Digest]]":
        return self._ask(self._source, self._source.digest, part), self._ask(self._mirror, self._mirror.digest, part)

    def _ask(self, side: Side, method: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Call *method* of *side* in the thread of *side*, whose session does one statement at a time."""
        if side is self._source:
            return self._pools[id(side)].submit(self._measured, method, *arguments)
        return self._pools[id(side)].submit(method, *arguments)

    def _measured(self, method: Callable[..., T], *arguments: Any) -> T:
        begun = time.monotonic()
        try:
            return method(*arguments)
        finally:
            self._busy += time.monotonic() - begun

    def _pause(self) -> None:
        """Leave the source alone for as long as its share of the time asks."""
        busy, self._busy = self._busy, 0.0
        if self._pace.share < 1:
            self._pace.sleep(busy / self._pace.share - busy)
