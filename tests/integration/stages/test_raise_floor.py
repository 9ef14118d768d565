"""The floor that a person raises after a DDL that was done by hand: no row from below it may be still to come."""

import re

import pytest

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import DROPPED, Rig
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.quarantine.entries import Selection, accept
from ticdc_replay.stages.quarantine.redrive import open_runs

pytestmark = pytest.mark.integration


def test_a_floor_waits_for_quarantine_and_gaps_below_it(rig: Rig) -> None:
    rig.replay(at(9), at(15))
    late, with_ddl = rig.decode(at(15), at(20)), rig.decode(at(20), at(30))
    with pytest.raises(PolicyStopError, match=r"Load a window that ends at the first commitTs named here"):
        rig.load(with_ddl)
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    (run,) = open_runs(rig.context, Selection())
    lines = str(stop.value).split("\n")
    assert lines[1].startswith(f"- {Window(at(15), DROPPED + 1)} is not loaded")
    assert lines[2].startswith(f"- 1 entry in the quarantine of window {run.window} ({rig.topic}[0]@")
    assert f"--run {run.run_hash[:12]}" in lines[2]
    assert "--holds-all-rows" in lines[-1]

    rig.load(late)
    rig.replay(at(20), DROPPED)
    with pytest.raises(PolicyStopError, match=r"1 entry in the quarantine") as stop:
        rig.raise_floor(DROPPED)
    assert "is not loaded" not in str(stop.value)
    rig.bring_back()
    rig.redrive()
    of_that_moment = rig.decode(DROPPED, DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window; all rows before them are loaded"):
        rig.load(of_that_moment)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1
    for run_hash in (of_that_moment, with_ddl):
        rig.load(run_hash)
    assert rig.ids == [1, 2, 3, 4]
    assert rig.held == ["complete"]


def test_an_entry_that_was_accepted_as_lost_is_not_waited_for(rig: Rig) -> None:
    for bounds in ((at(9), at(15)), (at(15), DROPPED)):
        rig.replay(*bounds)
    accept(rig.context, Selection(), "Ada Berg", "not ours")
    with pytest.raises(PolicyStopError, match=re.escape(f"{Window(DROPPED, DROPPED + 1)} is not loaded")):
        rig.raise_floor(DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window"):
        rig.replay(DROPPED, DROPPED + 1)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1


def test_a_mirror_that_is_said_to_hold_all_rows_waits_for_nothing(rig: Rig) -> None:
    rig.replay(at(9), at(15))
    assert rig.raise_floor(at(24), holds_all_rows=True) == at(24)
    # What lies below that floor is dealt with: the next one waits for what comes after it.
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    assert f"{Window(at(24), DROPPED + 1)} is not loaded" in str(stop.value)
    assert "quarantine of window" not in str(stop.value)


def test_before_the_first_window_a_floor_waits_for_nothing(rig: Rig) -> None:
    rig.decode(at(9), at(15))
    assert rig.raise_floor(at(13)) == at(13)
    rig.replay(at(9), at(15))
    # Its entry below the floor is of a row that the base load has.
    assert rig.raise_floor(at(15)) == at(15)
