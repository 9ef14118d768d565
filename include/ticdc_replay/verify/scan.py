"""Compares a mirror without an index with its source: digests of many ranges by one statement, then rows of ranges that differ.

A source with an index is read as by ``compare``: range by range, with pauses. Memory is bounded by the digests of
``readers.MOST_RANGES`` ranges, by ``_FETCHED`` rows, and by the differences that are listed.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from ticdc_replay.verify import forms, readers
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.findings import MOST_LISTED, Difference, Findings, Progress
from ticdc_replay.verify.readers import Indexed, Reader, Scanned, ToCut, chunks
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, Range, ScannedSide, Side

_FETCHED = 50_000
"""Rows that are fetched together, about."""
_CELLS = 100
"""Rows whose cells are fetched together."""
_EMPTY = Digest(0, 0)


class _Compared(NamedTuple):
    """A range and its digests."""

    part: Range
    source: Digest
    mirror: Digest

    @property
    def rows(self) -> int:
        """Of the side that has more."""
        return max(self.source.rows, self.mirror.rows)

    @property
    def more(self) -> int:
        """How many rows more the mirror has; below 0 if it has fewer."""
        return self.mirror.rows - self.source.rows


class _Unlike(NamedTuple):
    """A row that one side lacks, or whose texts differ."""

    key: Key
    source: FoundRow | None
    mirror: FoundRow | None
    is_copy: bool = False
    """Whether the mirror has one more row with the key."""


class ScanComparison:
    """Compares *columns* of *source* as of *at* (TSO) with *mirror*."""

    def __init__(
        self,
        source: Side | ScannedSide,
        mirror: ScannedSide,
        columns: Sequence[ComparedColumn],
        at: int,
        pace: Pace,
    ) -> None:
        self._mirror = Scanned(mirror, pace)
        self._source: Reader = (
            Scanned(source, pace) if isinstance(source, ScannedSide) else Indexed(source, self._mirror, columns, pace)
        )
        self._deleted = mirror.deleted
        self._columns = columns
        self._at = at

    def run(self, begun: Progress, keep: Callable[[Progress], None]) -> Findings:
        """Go on from *begun* to the end of the table; *keep* gets how far it is after each range of the source, and each
        statement at the mirror that compares ranges.

        Raises what the sides raise. What was kept stays right: the comparison can go on from there.
        """
        progress = begun
        while not progress.findings.ended:
            read = progress
            for read in self._read_ahead(progress):
                keep(read)
            progress = Progress(self._compare(read))
            keep(progress)
        return progress.findings

    def _read_ahead(self, begun: Progress) -> Iterator[Progress]:
        """*begun* with more ranges of the source each time, up to the table's end or ``readers.MOST_RANGES``."""
        ahead = list(begun.ahead)
        if ahead and ahead[-1].upper is None:
            return
        lower = ahead[-1].upper if ahead else begun.findings.reached
        for each in self._source.ranges(lower, readers.MOST_RANGES - len(ahead)):
            ahead.append(each)
            yield Progress(begun.findings, tuple(ahead))

    def _compare(self, progress: Progress) -> Findings:
        """The findings of *progress* with those of its ranges ahead."""
        findings = progress.findings
        uppers = [each.upper for each in progress.ahead]
        parts = [Range(*bounds) for bounds in pairwise([findings.reached, *uppers])]
        compared = [
            _Compared(part, each.digest, held)
            for part, each, held in zip(parts, progress.ahead, self._mirror.digests(parts), strict=True)
        ]
        findings = msgspec.structs.replace(
            findings,
            reached=uppers[-1],
            ended=uppers[-1] is None,
            ranges=findings.ranges + len(parts),
            source_rows=findings.source_rows + sum(each.source.rows for each in compared),
            mirror_rows=findings.mirror_rows + sum(each.mirror.rows for each in compared),
        )
        return self._look(deque(_differing(compared)), findings)

    def _look(self, waiting: "deque[_Compared]", findings: Findings) -> Findings:
        """*findings* with the rows of the ranges *waiting* that differ, the first ones first.

        Ranges are cut until they are small. One that can't be cut has keys that no mirror can have, or rows with one key or NULL
        in it: with more than ``_FETCHED`` rows it is not examined."""
        uncut: set[Range] = set()
        settled: set[Range] = set()  # can't be cut
        while waiting:
            if len(findings.differences) >= MOST_LISTED:
                return msgspec.structs.replace(findings, unexamined=findings.unexamined + len(waiting))
            group = self._group(waiting)
            large = [each for each in group if each.rows > readers.SMALL and each.part not in settled]
            if not large:
                fetched = _first(group)
                waiting.extendleft(reversed(group[len(fetched) :]))
                findings = self._rows(fetched, findings)
                continue
            smaller = {each.part: parts for each, parts in zip(large, self._cut(large, uncut), strict=True)}
            whole = {part for part, parts in smaller.items() if parts == [part]}
            settled |= whole & uncut
            uncut |= whole
            inner = self._inner([(each, smaller[each.part]) for each in large if each.part not in whole])
            unexamined = 0
            for each in reversed(group):
                if each.part in inner:
                    parts = inner[each.part]
                    unexamined += sum(part.more for part in parts) != each.more
                    waiting.extendleft(reversed(_differing(parts)))
                elif each.part in settled and each.rows > _FETCHED:
                    unexamined += 1
                else:
                    waiting.appendleft(each)
            findings = msgspec.structs.replace(findings, unexamined=findings.unexamined + unexamined)
        return findings

    def _inner(self, cut: Sequence[tuple[_Compared, list[Range]]]) -> dict[Range, list[_Compared]]:
        """The smaller ranges of each range that was *cut*. The source is not asked where it has no rows: a mirror may have any
        number of rows between two of its keys, and each range is a statement of a source with an index."""
        parts = [part for _, smaller in cut for part in smaller]
        with_rows = [part for whole, smaller in cut if whole.source.rows for part in smaller]
        at_source = dict(zip(with_rows, self._source.digests(with_rows), strict=True))
        found = {
            part: _Compared(part, at_source.get(part, _EMPTY), held)
            for part, held in zip(parts, self._mirror.digests(parts), strict=True)
        }
        return {whole.part: [found[part] for part in smaller] for whole, smaller in cut}

    def _group(self, waiting: "deque[_Compared]") -> list[_Compared]:
        """The first of *waiting*, without them: about as many as have the rows of the ranges of one statement."""
        most = readers.SORTED_RANGES if self._source.sorts else readers.MOST_RANGES
        group, small = [], 0
        while waiting and small < most:
            group.append(waiting.popleft())
            small += -(-group[-1].rows // readers.SMALL)
        return group

    def _cut(self, large: Sequence[_Compared], uncut: Collection[Range]) -> list[list[Range]]:
        """Each of *large* in smaller ranges, if it can be cut: by keys of the source if that has more rows, or if keys of the
        mirror did not cut it (*uncut*). A source that sorts is asked only if it has many more rows."""
        more = 2 if self._source.sorts else 1
        by_source = [
            each.source.rows > 0 and (each.part in uncut or each.source.rows >= more * each.mirror.rows)
            for each in large
        ]
        most = readers.SORTED_RANGES if self._source.sorts else readers.MOST_RANGES
        keys: dict[Range, list[Key]] = {}
        for reader, chosen in ((self._source, True), (self._mirror, False)):
            asked = [
                ToCut(
                    each.part,
                    each.source.rows if chosen else each.mirror.rows,
                    min(-(-2 * each.rows // readers.SMALL), most),
                )
                for each, steps in zip(large, by_source, strict=True)
                if steps is chosen
            ]
            keys |= dict(zip((each.part for each in asked), reader.cuts(asked), strict=True))
        found = []
        for each in large:
            lower, upper = each.part
            found.append(
                [Range(*pair) for pair in pairwise([lower, *(k for k in keys[each.part] if k != lower), upper])]
            )
        return found

    def _rows(self, fetched: Sequence[_Compared], findings: Findings) -> Findings:
        """*findings* with the rows of the small ranges *fetched* that differ."""
        with_rows = [each.part for each in fetched if each.source.rows]
        at_source = dict(zip(with_rows, self._source.rows(with_rows), strict=True))
        waiting = deque(zip(fetched, self._mirror.rows([each.part for each in fetched]), strict=True))
        while waiting:
            room = MOST_LISTED - len(findings.differences)
            if room <= 0:
                return msgspec.structs.replace(findings, unexamined=findings.unexamined + len(waiting))
            unlike: list[_Unlike] = []
            unexplained = 0
            while waiting and len(unlike) < room:
                compared, held = waiting.popleft()
                of_range = list(_unlike(at_source.get(compared.part, []), held))
                more = sum(each.source is None for each in of_range) - sum(each.mirror is None for each in of_range)
                unexplained += more != compared.more
                unlike += of_range
            found = list(self._differences(unlike))
            # Whatever its version is: a mirror never has two rows with one key.
            settled = [each for row, each in found if row.is_copy or each.version <= self._at]
            findings = findings.with_rows(settled, len(found) - len(settled))
            findings = msgspec.structs.replace(findings, unexamined=findings.unexamined + unexplained)
        return findings

    def _differences(self, unlike: Sequence[_Unlike]) -> Iterator[tuple[_Unlike, Difference]]:
        """What differs of each of *unlike*, without those whose values are equal."""
        missing = [each.key for each in unlike if each.mirror is None]
        deletes: dict[Key, int] = {}
        for keys in chunks(missing, readers.SMALL):
            deletes |= self._deleted(keys)
        both = [
            each.mirror
            for each in unlike
            if each.source is not None and each.mirror is not None and each.mirror.version <= self._at
        ]
        changed = {each.key: each for rows in chunks(both, _CELLS) for each in self._changed(rows)}
        for each in unlike:
            key, source, mirror, _ = each
            if mirror is None:
                yield each, Difference("missing", key, (), deletes.get(key, 0))
            elif source is None:
                yield each, Difference("extra", key, (), mirror.version)
            elif mirror.version > self._at:
                yield each, Difference("changed", key, (), mirror.version)
            elif key in changed:
                yield each, changed[key]

    def _changed(self, rows: Sequence[FoundRow]) -> Iterator[Difference]:
        """Those of *rows*, whose texts differ, of which values differ, with their columns."""
        keys = [row.key for row in rows]
        sources, mirrors = self._source.cells(keys), self._mirror.cells(keys)
        differing: dict[Key, list[int]] = {}
        for key in keys:
            source, mirror = sources.get(key), mirrors.get(key)
            differing[key] = [
                at for at in range(len(self._columns)) if source is None or mirror is None or source[at] != mirror[at]
            ]
        for at, column in enumerate(self._columns):
            if column.form is forms.Form.JSON:
                self._compare_values(at, [key for key, places in differing.items() if at in places], differing)
        for row in rows:
            if differing[row.key]:
                names = tuple(self._columns[at].name for at in differing[row.key])
                yield Difference("changed", row.key, names, row.version)

    def _compare_values(self, column: int, keys: Sequence[Key], differing: dict[Key, list[int]]) -> None:
        """Take *column* out of *differing* where the texts of a cell differ, but not their values."""
        if not keys:
            return
        sources, mirrors = self._source.values(keys, column), self._mirror.values(keys, column)
        for key in keys:
            both = key in sources and key in mirrors
            if both and forms.same_value(self._columns[column].form, sources[key], mirrors[key]):
                differing[key].remove(column)


def _first(group: Sequence[_Compared]) -> list[_Compared]:
    """The first ranges of *group*, at least one, with as many rows as are fetched together."""
    rows = accumulate(each.rows for each in group)
    return [each for at, (each, total) in enumerate(zip(group, rows, strict=True)) if not at or total <= _FETCHED]


def _unlike(source: Sequence[FoundRow], mirror: Sequence[FoundRow]) -> Iterator[_Unlike]:
    """The rows of a range that one side lacks, or whose texts differ, and further rows of the mirror with the same key."""
    sources, mirrors = {row.key: row for row in source}, dict[Key, list[FoundRow]]()
    for row in mirror:
        mirrors.setdefault(row.key, []).append(row)
    for key in sorted({*sources, *mirrors}):
        wanted = sources.get(key)
        md5 = None if wanted is None else wanted.md5
        held = sorted(mirrors.get(key, []), key=lambda row: (row.md5 != md5, -row.version))
        if not held or held[0].md5 != md5:
            yield _Unlike(key, wanted, held[0] if held else None)
        yield from (_Unlike(key, None, each, is_copy=True) for each in held[1:])


def _differing(compared: Iterable[_Compared]) -> list[_Compared]:
    return [each for each in compared if each.source != each.mirror]
