"""Where a window starts: moving over offsets that are known to hold nothing of it."""

from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.snapshot.start import skip_known
from ticdc_replay.state.records import Stretch

FROM_TS = 100


def stretch(start: int, end: int, newest: int | None) -> Stretch:
    return Stretch("id", 0, start, end, newest, newest)


def test_stretches_of_older_events_are_skipped_up_to_the_first_that_is_needed() -> None:
    known = [stretch(0, 10, 99), stretch(10, 20, None), stretch(20, 30, 100), stretch(30, 40, 50)]
    assert skip_known(known, 5, 1_000, FROM_TS) == 20


def test_a_gap_in_what_is_known_ends_the_skip() -> None:
    assert skip_known([stretch(0, 10, 1), stretch(11, 20, 1)], 0, 1_000, FROM_TS) == 10
    assert skip_known([stretch(6, 20, 1)], 5, 1_000, FROM_TS) == 5


def test_the_end_of_the_range_is_never_passed() -> None:
    assert skip_known([stretch(0, 50, 1)], 0, 20, FROM_TS) == 20


@given(
    st.lists(st.none() | st.integers(90, 110), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 10)), max_size=12),
    st.integers(0, 39),
)
def test_no_event_of_the_window_is_ever_skipped(
    commit_ts_at: list[int | None], cuts: list[tuple[int, int]], start: int
) -> None:
    known = []
    for first, length in cuts:
        held = [commit_ts for commit_ts in commit_ts_at[first : first + length] if commit_ts is not None]
        known.append(stretch(first, first + length, max(held, default=None)))
    moved = skip_known(sorted(known, key=lambda each: (each.start, each.end)), start, len(commit_ts_at), FROM_TS)
    skipped = [commit_ts for commit_ts in commit_ts_at[start:moved] if commit_ts is not None]
    assert all(commit_ts < FROM_TS for commit_ts in skipped)
