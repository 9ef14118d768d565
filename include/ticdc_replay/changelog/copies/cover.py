"""Which complete changelogs make up a window together, each row version from exactly one of them."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from ticdc_replay.domain.window import GRADES, Grade, Window


class Candidate(msgspec.Struct, frozen=True):
    """A changelog that holds all of *window*, or the part of one that does."""

    run_hash: str
    window: Window
    grade: Grade
    set_aside: bool
    """Whether anything of it is in quarantine."""
    pinned_at_ms: int

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """The smaller, the better: a proven one before others, a whole one before one with holes, then the newest."""
        return GRADES.index(self.grade), self.set_aside, -self.pinned_at_ms, self.run_hash

    def is_as_good(self, grade: Grade, *, set_aside: bool) -> bool:
        """Whether it is proven no less than one of *grade*, and has holes only where that has some (*set_aside*), too."""
        return GRADES.index(self.grade) <= GRADES.index(grade) and self.set_aside <= set_aside


class Part(msgspec.Struct, frozen=True):
    """What is taken from one changelog: the row versions whose commitTs is in *window*."""

    candidate: Candidate
    window: Window


class Cover(msgspec.Struct, frozen=True):
    """Parts of a window and the gaps between them, each in order; together they are the window, and no two overlap."""

    parts: tuple[Part, ...]
    gaps: tuple[Window, ...]


def choose(window: Window, candidates: Iterable[Candidate]) -> Cover:
    """What of *window* is in *candidates*, at each moment from the best of those that hold it.

    A row version has one commitTs, so it comes from one part, however many changelogs it stands in.
    """
    useful = [each for each in candidates if each.window.from_ts < window.to_ts and window.from_ts < each.window.to_ts]
    edges = {window.from_ts, window.to_ts}
    edges |= {edge for each in useful for edge in (each.window.from_ts, each.window.to_ts) if edge in window}
    parts: list[Part] = []
    gaps: list[Window] = []
    for start, end in pairwise(sorted(edges)):
        best = min((each for each in useful if start in each.window), key=lambda each: each.rank, default=None)
        if best is None:
            if gaps and gaps[-1].to_ts == start:
                start = gaps.pop().from_ts
            gaps.append(Window(start, end))
        else:
            if parts and parts[-1].candidate == best and parts[-1].window.to_ts == start:
                start = parts.pop().window.from_ts
            parts.append(Part(best, Window(start, end)))
    return Cover(tuple(parts), tuple(gaps))
