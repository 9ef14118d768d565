"""What keeps a floor from being raised: a window that was pinned anew, any run's quarantine, and what a load set aside."""

from collections.abc import Callable

import pytest

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import DROPPED, OLD, Rig
from tests.support.open_protocol import columns, ddl, row
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.quarantine.entries import Selection, accept

pytestmark = pytest.mark.integration

FIRST = Window(at(9), at(15))


def before_the_ddl(rig: Rig) -> None:
    """Load all up to the DDL; row 2 is in quarantine, as its object is missing."""
    rig.replay(at(9), at(15))
    rig.replay(at(15), DROPPED)


def to_the_end(rig: Rig) -> None:
    """Do what the documentation says after a stop, from the window of the DDL's commitTs on."""
    of_that_moment = rig.decode(DROPPED, DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window"):
        rig.load(of_that_moment)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1
    rig.load(of_that_moment)
    rig.replay(DROPPED + 1, at(30))


def test_a_floor_waits_for_a_window_that_was_pinned_anew(rig: Rig) -> None:
    before_the_ddl(rig)
    rig.pin(at(9), at(15), repin=True)
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    assert f"{FIRST} was pinned again" in str(stop.value), "and nothing is decoded of it yet"
    rig.bring_back()
    again = rig.decode(at(9), at(15), repin=True)
    with pytest.raises(PolicyStopError, match="was pinned again"):
        rig.raise_floor(DROPPED + 1)
    rig.load(again)
    to_the_end(rig)
    assert (rig.ids, rig.held) == ([1, 2, 3, 4], ["complete"])


def test_a_later_run_of_a_window_for_other_tables_hides_no_entry(rig: Rig) -> None:
    before_the_ddl(rig)
    others = ("s.other",)
    rig.load(rig.decode(at(9), at(15), tables=others), others)
    assert (FIRST, 1) in rig.open
    with pytest.raises(PolicyStopError, match="1 entry in the quarantine of window"):
        rig.raise_floor(DROPPED + 1)
    accept(rig.context, Selection(tables=("s.t",)), "Ada Berg", "not ours")
    assert rig.open == []
    to_the_end(rig)
    assert rig.ids == [1, 3, 4]


def test_a_run_in_whose_place_a_newer_one_was_loaded_has_nothing_open(rig: Rig) -> None:
    before_the_ddl(rig)
    rig.bring_back()
    rig.load(rig.decode(at(9), at(15), repin=True))
    assert rig.open == []


def test_a_floor_waits_for_rows_that_the_load_set_aside(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(target_value="quarantine")
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.resolved(15)
    rig.send(16, row(at(16), new=columns(2, "tw\0", **OLD)))
    rig.send(17, row(at(17), new=columns(3, "three", **OLD)))
    rig.resolved(20)
    rig.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    rig.send(26, row(at(26), new=columns(4, "four")))
    rig.resolved(30, 31)
    rig.replay(at(9), at(15))
    late = rig.decode(at(15), DROPPED)
    rig.load(late)
    of_that_moment = rig.decode(DROPPED, DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window"):
        rig.load(of_that_moment)
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    (line,) = [line for line in str(stop.value).split("\n") if line.startswith("- ")]
    assert line.startswith(
        f"- 1 row of window {Window(at(15), DROPPED)} that its load set aside (policies.target_value; loads/{late}/"
    )
    assert "reload" in line

    assert rig.raise_floor(at(16)) == at(16), "the row is not from below it"
    assert rig.raise_floor(DROPPED + 1, holds_all_rows=True) == DROPPED + 1
