"""DDL at the end of a window stops its load after all rows: what the load set aside, and the floor that follows."""

from collections.abc import Callable

import pytest

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import DROPPED, OLD, Rig
from tests.support.open_protocol import columns, ddl, row
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window

pytestmark = pytest.mark.integration


@pytest.fixture
def bad_values(make_rig: Callable[..., Rig]) -> Rig:
    """Rows at seconds 11 and 17 and at the commitTs of the DDL; that of second 16 and another of that commitTs have a NUL."""
    made = make_rig(target_value="quarantine")
    made.send(11, row(at(11), new=columns(1, "one", **OLD)))
    made.resolved(15)
    made.send(16, row(at(16), new=columns(2, "tw\0", **OLD)))
    made.send(17, row(at(17), new=columns(3, "three", **OLD)))
    made.resolved(20)
    made.send(24.8, row(DROPPED, new=columns(5, "fiv\0", **OLD)))
    made.send(24.9, row(DROPPED, new=columns(6, "six", **OLD)))
    made.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    made.send(26, row(at(26), new=columns(4, "four")))
    made.resolved(30, 31)
    return made


def stopped(rig: Rig, run: str) -> str:
    with pytest.raises(PolicyStopError, match="end the window") as stop:
        rig.load(run)
    return str(stop.value)


def test_rows_that_a_stopped_load_set_aside_are_told_by_the_load_that_ends_it(bad_values: Rig) -> None:
    rig = bad_values
    rig.replay(at(9), at(15))
    run = rig.decode(at(15), DROPPED + 1)
    text = stopped(rig, run)
    assert f"2 rows of s.t set aside (loads/{run}/" in text
    assert f"Raise each mirror's floor to {DROPPED + 1}" in text
    assert rig.ids == [1, 3, 6]
    with pytest.raises(PolicyStopError) as refused:
        rig.raise_floor(DROPPED + 1)
    (line,) = [line for line in str(refused.value).split("\n") if line.startswith("- ")]
    assert line.startswith("- 2 rows of window")

    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1, holds_all_rows=True) == DROPPED + 1
    for _ in range(2):  # the second time the ledger tells
        rig.load(run)
        report = rig.report(run)
        (table,) = report.tables
        assert (table.events, table.quarantined, table.below_floor, table.keys) == (4, 2, 2, 0)
        assert len(report.quarantine_files) == 1
        assert rig.context.artifacts.info(report.quarantine_files[0]) is not None
    rig.replay(DROPPED + 1, at(30))
    assert rig.held == ["complete", "quarantine", "complete"]
    rig.load(run, reload=True)  # whoever says that the mirror holds all rows, and then loads it anew, is believed
    assert rig.held == ["complete"]


def test_a_row_of_the_ddls_commit_ts_that_was_set_aside_keeps_the_floor_down(bad_values: Rig) -> None:
    rig = bad_values
    rig.replay(at(9), at(16))
    rig.replay(at(17), DROPPED)
    rig.execute("INSERT INTO s.t VALUES (2, 'tw', 'x', 1)")
    rig.raise_floor(at(17), holds_all_rows=True)
    with pytest.raises(PolicyStopError, match="is not loaded"):
        rig.raise_floor(DROPPED + 1)
    run = rig.decode(DROPPED, DROPPED + 1)
    stopped(rig, run)
    with pytest.raises(PolicyStopError, match="1 row of window"):
        rig.raise_floor(DROPPED + 1)


def test_the_floor_may_be_raised_as_the_stop_of_a_wide_window_says(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.resolved(15)
    rig.send(16, row(at(16), new=columns(2, "two", **OLD)))
    rig.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    rig.send(26, row(at(26), new=columns(4, "four")))
    rig.resolved(30, 31)
    rig.replay(at(9), at(15))
    run = rig.decode(at(15), DROPPED + 1)
    stopped(rig, run)
    stopped(rig, run)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1
    rig.load(run)
    rig.replay(DROPPED + 1, at(30))
    assert (rig.ids, rig.held) == ([1, 2, 4], ["complete"])


def test_what_a_stopped_load_lacks_may_come_with_a_window_that_ends_at_the_ddl(rig: Rig) -> None:
    """Nothing can be re-driven into a window whose load stops."""
    wide = rig.decode(at(9), DROPPED + 1)
    stopped(rig, wide)
    with pytest.raises(PolicyStopError, match=rf"load a window that ends at {DROPPED}, and re-drive what is in its"):
        rig.raise_floor(DROPPED + 1)
    before = Window(at(9), DROPPED)
    rig.replay(before.from_ts, before.to_ts)
    with pytest.raises(PolicyStopError, match="1 entry in the quarantine of window"):
        rig.raise_floor(DROPPED + 1)
    rig.bring_back()
    rig.redrive(before)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1
    assert rig.ids == [1, 2, 3]
