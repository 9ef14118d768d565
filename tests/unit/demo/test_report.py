"""The demo's verdict is about windows and tables alike."""

import io
import re
from datetime import UTC, datetime

import msgspec
import pytest
from rich.console import Console

from demo import report
from demo.sample import contents
from demo.verify import TableCheck
from ticdc_replay.changelog.files.index import EventCounts, MessageCounts
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.publish import RunReport, TargetRun
from ticdc_replay.targets.base import TableReport

GOOD = TableCheck("PostgreSQL", "shop.orders", 3002, True, ())


def run_report(window, written):
    return RunReport(
        pipeline="shop",
        window=Window(window.from_ts, window.to_ts),
        input_hash="i",
        run_hash="r",
        grade="proven",
        reasons=(),
        ranges=(OffsetRange("shop-changes", 0, 5, 99),),
        watermark=window.to_ts,
        messages=MessageCounts(consumed=94),
        events=EventCounts(rows=written, written=written),
        quarantine_reasons={},
        targets=(),
        published_at=datetime.now(UTC),
    )


def shown(outcome, width=140):
    text = io.StringIO()
    report.show(Console(file=text, width=width), outcome)
    return text.getvalue()


def cells(line):
    return [cell.strip() for cell in re.split("[┃│]", line)[1:-1]]


def test_all_windows_and_tables_right_is_said_so():
    outcome = report.Outcome([run_report(window, window.row_versions) for window in contents.windows()], [GOOD])
    assert outcome.right
    assert "The tables equal the expected state, cell for cell." in shown(outcome)


@pytest.mark.parametrize("missing", [1, -1])
def test_a_window_with_other_counts_is_named(missing):
    window = contents.windows()[1]
    outcome = report.Outcome([run_report(window, window.row_versions - missing)], [GOOD])
    assert not outcome.right
    assert f"01:00: {window.row_versions - missing} row versions, {window.row_versions} expected" in shown(outcome)


def test_a_table_that_differs_is_shown_with_the_cell():
    bad = TableCheck("Iceberg", "shop.orders", 3001, False, ("{'o_id': '6'}: amount is '1.00', '2.00' expected",))
    outcome = report.Outcome([], [GOOD, bad])
    assert not outcome.right
    assert "Iceberg: shop.orders {'o_id': '6'}: amount is '1.00', '2.00' expected" in shown(outcome)


def test_each_count_of_a_window_stands_below_its_heading():
    orders = TableReport(
        table=TableName("shop", "orders"), outcome="loaded", destination="shop/orders", upserted=73, tombstones=2
    )
    counted = msgspec.structs.replace(
        run_report(contents.windows()[0], 0),
        messages=MessageCounts(consumed=94),
        events=EventCounts(rows=90, outside_window=7, duplicates=8, written=75, claim_checks_resolved=3),
        quarantine_reasons={"bad_json": 2},
        targets=(TargetRun("lake", "parquet", ("*.*",), "complete", (orders,)),),
    )
    lines = shown(report.Outcome([counted], []), width=300).splitlines()
    headings = next(cells(line) for line in lines if "window (UTC)" in line)
    counts = next(cells(line) for line in lines if "00:00-01:00" in line)
    assert len(headings) == len(counts)
    assert dict(zip(headings, counts, strict=True)) == {
        "window (UTC)": "00:00-01:00",
        "offsets read, by partition": "0: 5-99",
        "messages": "94",
        "events": "90",
        "outside": "7",
        "duplicates": "8",
        "row versions": "75",
        "claim checks": "3",
        "quarantined": "2",
        "rows → target": "lake: 75",
    }
