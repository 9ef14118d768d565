"""Stretches of commit time that are loaded, of a target and of its tables, and the gaps between them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.coverage import (
    Covered,
    Gap,
    Held,
    Span,
    TargetCoverage,
    is_replaced,
    side_by_side,
    target_coverage,
)
from ticdc_replay.stages.load.publish import coverage_of
from ticdc_replay.state.coverage import Coverage, CoveredTable
from ticdc_replay.targets.base import LoadReport, TableReport

ORDERS, ITEMS, LOG = (TableName("shop", name) for name in ("orders", "items", "log"))
GOOD = Held("complete", "proven")


def record(
    start: int, end: int, *tables: tuple[TableName, str], selection: Any = ("shop.*",), **values: Any
) -> Coverage:
    """A run over ``[start, end)``; ``tables`` are those it had rows of."""
    known: dict[str, Any] = {"grade": "proven", "quality": "complete", "loaded_at_ms": 0, "run_hash": f"{start}-{end}"}
    return Coverage(
        pipeline="shop",
        target="warehouse",
        place="postgres warehouse",
        window=Window(start, end),
        selection=selection,
        tables=tuple(CoveredTable(table, quality) for table, quality in tables),
        **(known | values),
    )


def held(*records: Coverage, selection: Any = ("shop.*",)) -> TargetCoverage:
    return target_coverage("warehouse", selection, side_by_side(records))


def of(table: TableName, coverage: TargetCoverage) -> Covered:
    return next(covered for covered in coverage.tables if covered.name == str(table))


def test_windows_that_meet_or_overlap_are_one_span():
    found = held(record(20, 30), record(0, 10), record(10, 20), record(5, 25))
    assert found.target == Covered("warehouse", (Span(Window(0, 30), GOOD),), ())


def test_what_lies_between_two_spans_is_a_gap():
    found = held(record(0, 10), record(20, 30), record(45, 50))
    assert found.target.gaps == (Gap(Window(10, 20)), Gap(Window(30, 45)))


def test_nothing_loaded_has_no_gaps():
    assert held() == TargetCoverage(Covered("warehouse", (), ()), ())


def test_a_table_without_changes_in_a_window_has_no_gap_there():
    found = held(record(0, 10, (ORDERS, "complete")), record(10, 20), record(20, 30, (ITEMS, "complete")))
    assert found.tables == tuple(
        Covered(name, (Span(Window(0, 30), GOOD),), ()) for name in ("shop.items", "shop.orders")
    )


def test_a_run_for_some_tables_covers_these_and_not_the_target():
    narrow = record(10, 20, (ORDERS, "complete"), selection=("shop.ord*",))
    found = held(record(0, 10, (ITEMS, "complete")), narrow, record(30, 40))
    assert found.target.spans == (Span(Window(0, 10), GOOD), Span(Window(30, 40), GOOD))
    assert found.target.gaps == (Gap(Window(10, 20), partial=True), Gap(Window(20, 30)))
    assert of(ORDERS, found).gaps == (Gap(Window(20, 30)),)
    assert of(ITEMS, found).gaps == (Gap(Window(10, 30)),)


def test_a_run_is_replaced_by_a_newer_one_of_at_least_its_tables():
    old = record(0, 10, selection=("shop.orders",), generation=1)
    newer = record(0, 10, run_hash="b", generation=2)
    assert is_replaced(old, [old, newer])
    assert not is_replaced(newer, [old, newer])
    assert not is_replaced(msgspec.structs.replace(newer, generation=0), [old])
    for other in (
        record(0, 20, run_hash="b", generation=2),
        record(0, 10, run_hash="b", generation=1),
        record(0, 10, run_hash="b", generation=2, selection=("shop.items",)),
    ):
        assert not is_replaced(old, [old, other])


def test_a_target_is_covered_where_runs_for_some_tables_add_up_to_all_of_the_pipeline():
    parts = [record(0, 10, selection=("shop.orders",)), record(0, 10, selection=("SHOP.I*",), run_hash="b")]
    assert held(*parts, selection=("shop.orders", "shop.items")).target.spans == (Span(Window(0, 10), GOOD),)
    assert held(*parts).target.gaps == (Gap(Window(0, 10), partial=True),)


def test_tables_that_the_pipeline_added_later_make_earlier_windows_a_gap():
    found = held(record(0, 10), record(10, 20, selection=("shop.*", "crm.*")), selection=("shop.*", "crm.*"))
    assert found.target.gaps == (Gap(Window(0, 10), partial=True),)


def test_quarantine_of_a_table_is_seen_in_it_and_in_the_target():
    found = held(record(0, 10), record(10, 20, (ITEMS, "quarantine"), (ORDERS, "complete")), record(20, 30))
    qualities = [(span.window.from_ts, span.held.quality) for span in found.target.spans]
    assert qualities == [(0, "complete"), (10, "quarantine"), (20, "complete")]
    assert of(ORDERS, found).spans == (Span(Window(0, 30), GOOD),)
    assert found.target.gaps == ()


def test_messages_that_could_not_be_decoded_may_be_of_any_table():
    found = held(record(0, 10, (ITEMS, "complete")), record(10, 20, quality="quarantine"))
    assert [span.held.quality for span in of(ITEMS, found).spans] == ["complete", "quarantine"]


def test_a_window_that_is_not_proven_stands_out():
    found = held(record(0, 10, (ITEMS, "complete")), record(10, 20, grade="unproven"))
    assert found.target.spans == of(ITEMS, found).spans
    assert found.target.spans == (Span(Window(0, 10), GOOD), Span(Window(10, 20), Held("complete", "unproven")))


@pytest.mark.parametrize("order", [1, -1])
def test_what_one_run_holds_complete_another_does_not_take_away(order):
    runs = [
        record(0, 10, (ITEMS, "quarantine"), run_hash="a"),
        record(0, 10, (ITEMS, "complete"), grade="unproven", run_hash="b"),
        record(0, 5, (ITEMS, "complete"), run_hash="c"),
    ]
    expected = (Span(Window(0, 5), GOOD), Span(Window(5, 10), Held("complete", "unproven")))
    assert of(ITEMS, held(*runs[::order])).spans == expected


def test_a_table_that_the_target_can_not_hold_is_no_part_of_it():
    found = held(record(0, 10, (LOG, "left_out"), (ITEMS, "complete")))
    assert [table.name for table in found.tables] == ["shop.items"]
    assert found.target.spans == (Span(Window(0, 10), GOOD),)
    lost_its_key = held(record(0, 10, (LOG, "complete")), record(10, 20, (LOG, "left_out")), record(20, 30))
    assert of(LOG, lost_its_key).gaps == (Gap(Window(10, 20)),)


def test_a_load_covers_its_selection_and_tells_the_quality_of_each_table_it_saw():
    tables = (
        TableReport(table=ORDERS, outcome="done_before", destination="", quarantined=2),
        TableReport(table=LOG, outcome="without_key", destination=""),
        TableReport(table=ITEMS, outcome="loaded", destination=""),
    )
    load = LoadReport(
        pipeline="shop", run_hash="r", input_hash="i", window=Window(0, 10), target="warehouse", type="postgres",
        attempt="a", selection=("shop.*",), tables=tables,
    )  # fmt: skip
    found = coverage_of(load, "unproven", set_aside=False)
    assert (found.selection, found.window, found.grade, found.quality) == (
        ("shop.*",),
        Window(0, 10),
        "unproven",
        "complete",
    )
    assert found.tables == (
        CoveredTable(ITEMS, "complete"),
        CoveredTable(LOG, "left_out"),
        CoveredTable(ORDERS, "quarantine"),
    )
    undecodable = coverage_of(load, "proven", set_aside=True)
    assert (undecodable.quality, undecodable.tables[0].quality) == ("quarantine", "quarantine")


WINDOWS = st.tuples(st.integers(0, 40), st.integers(1, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(WINDOWS, max_size=8))
def test_spans_and_gaps_hold_each_moment_once(windows):
    covered = held(*(record(start, end) for start, end in windows)).target
    moments = {moment for start, end in windows for moment in range(start, end)}
    in_spans = [moment for span in covered.spans for moment in range(span.window.from_ts, span.window.to_ts)]
    in_gaps = [moment for gap in covered.gaps for moment in range(gap.window.from_ts, gap.window.to_ts)]
    assert sorted(in_spans) == sorted(moments)
    assert not moments & set(in_gaps)
    if moments:
        assert len(in_spans) + len(in_gaps) == max(moments) - min(moments) + 1
