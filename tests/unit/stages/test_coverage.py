"""Stretches of commit time that are loaded, and the gaps between them."""

from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.coverage import Covered, Span, spans
from ticdc_replay.state.records import Coverage

ORDERS = TableName("shop", "orders")


def record(start, end, quality="complete"):
    return Coverage("shop", "warehouse", ORDERS, Window(start, end), "run", quality, 0)


def test_windows_that_meet_or_overlap_are_one_span():
    assert spans([record(20, 30), record(0, 10), record(10, 20), record(5, 25)]) == (Span(Window(0, 30), "complete"),)


def test_what_lies_between_two_spans_is_a_gap():
    covered = Covered("warehouse", spans([record(0, 10), record(20, 30), record(45, 50)]))
    assert covered.gaps == (Window(10, 20), Window(30, 45))


def test_a_window_with_quarantine_stands_out_and_is_no_gap():
    covered = Covered("warehouse", spans([record(0, 10), record(10, 20, "quarantine"), record(20, 30)]))
    assert [(span.window.from_ts, span.quality) for span in covered.spans] == [
        (0, "complete"),
        (10, "quarantine"),
        (20, "complete"),
    ]
    assert covered.gaps == ()


def test_nothing_loaded_has_no_gaps():
    assert Covered("warehouse", spans([])).gaps == ()


WINDOWS = st.tuples(st.integers(0, 40), st.integers(1, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(WINDOWS, max_size=8))
def test_spans_and_gaps_hold_each_moment_once(windows):
    covered = Covered("x", spans([record(start, end) for start, end in windows]))
    moments = {moment for start, end in windows for moment in range(start, end)}
    in_spans = [moment for span in covered.spans for moment in range(span.window.from_ts, span.window.to_ts)]
    in_gaps = [moment for gap in covered.gaps for moment in range(gap.from_ts, gap.to_ts)]
    assert sorted(in_spans) == sorted(moments)
    assert not moments & set(in_gaps)
    if moments:
        assert len(in_spans) + len(in_gaps) == max(moments) - min(moments) + 1
