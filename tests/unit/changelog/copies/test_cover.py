"""A window out of other changelogs: each row version from exactly one of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.copies.cover import Candidate, Part, choose
from ticdc_replay.domain.window import Grade, Window


def candidate(
    run: str, start: int, end: int, *, grade: Grade = "proven", set_aside: bool = False, at_ms: int = 0
) -> Candidate:
    return Candidate(run, Window(start, end), grade, set_aside, at_ms)


def taken(parts: tuple[Part, ...]) -> list[tuple[str, int, int]]:
    return [(part.candidate.run_hash, part.window.from_ts, part.window.to_ts) for part in parts]


windows = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda pair: Window(pair[0], pair[0] + pair[1]))
candidates = st.builds(
    Candidate,
    run_hash=st.sampled_from("abcde"),
    window=windows,
    grade=st.sampled_from(["proven", "unproven"]),
    set_aside=st.booleans(),
    pinned_at_ms=st.integers(0, 3),
)


@given(windows, st.lists(candidates, max_size=8))
def test_each_row_version_comes_from_exactly_one_changelog_the_best_that_holds_it(
    window: Window, known: list[Candidate]
) -> None:
    cover = choose(window, known)
    for commit_ts in range(window.from_ts, window.to_ts):
        holding = [each for each in known if commit_ts in each.window]
        found = [part.candidate for part in cover.parts if commit_ts in part.window]
        assert found == ([min(holding, key=lambda each: each.rank)] if holding else [])
        assert sum(commit_ts in gap for gap in cover.gaps) == (not holding)
    assert all(part.window.from_ts >= window.from_ts and part.window.to_ts <= window.to_ts for part in cover.parts)
    pieces = sorted([*(part.window for part in cover.parts), *cover.gaps])
    assert all(first.to_ts <= second.from_ts for first, second in pairwise(pieces))


def test_one_changelog_that_holds_all_is_taken_in_one_piece() -> None:
    assert taken(choose(Window(5, 9), [candidate("wide", 0, 24), candidate("other", 20, 30)]).parts) == [("wide", 5, 9)]


def test_what_was_pinned_anew_counts_where_it_is_and_the_older_around_it() -> None:
    cover = choose(Window(0, 24), [candidate("day", 0, 24, at_ms=1), candidate("mended", 8, 9, at_ms=2)])
    assert taken(cover.parts) == [("day", 0, 8), ("mended", 8, 9), ("day", 9, 24)]
    assert cover.gaps == ()


def test_a_proven_changelog_counts_before_one_without_proof_and_a_whole_one_before_one_with_holes() -> None:
    known = [
        candidate("unproven", 0, 9, grade="unproven", at_ms=9),
        candidate("holes", 0, 9, set_aside=True, at_ms=8),
        candidate("good", 0, 9),
    ]
    assert taken(choose(Window(0, 9), known).parts) == [("good", 0, 9)]


def test_what_nobody_holds_is_a_gap() -> None:
    cover = choose(Window(0, 30), [candidate("a", 0, 10), candidate("b", 20, 25)])
    assert cover.gaps == (Window(10, 20), Window(25, 30))
