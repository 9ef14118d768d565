"""A mirror counts for what its own schema got, under whatever name of its target."""

import pytest

from tests.integration.snapshot.feed import at
from tests.support.mirror_rig import DROPPED, Rig
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.quarantine.entries import Selection, accept

pytestmark = pytest.mark.integration

FIRST, SECOND = Window(at(9), at(15)), Window(at(15), DROPPED)
OLD_PLACE = "postgres warehouse"


def test_in_another_schema_windows_are_a_gap_and_hold_a_floor_up_until_they_are_loaded_there(rig: Rig) -> None:
    first = rig.decode(at(9), at(15))
    rig.load(first)
    accept(rig.context, Selection(), "Ada Berg", "not ours")
    rig.move(schema="moved")
    rig.replay(at(15), DROPPED)
    (found,) = coverage(rig.context.pipeline, rig.context.state)
    assert [(gap.window, gap.elsewhere) for gap in found.target.gaps] == [(FIRST, (OLD_PLACE,))]
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(at(17))
    assert f"{FIRST} is not loaded here, but elsewhere" in str(stop.value)
    assert OLD_PLACE in str(stop.value)
    rig.load(first)
    assert coverage(rig.context.pipeline, rig.context.state)[0].target.gaps == ()
    assert rig.raise_floor(at(17)) == at(17)


def test_a_mirror_under_a_new_name_waits_for_what_is_missing_from_before(rig: Rig) -> None:
    rig.replay(at(9), at(15))
    late = rig.decode(at(15), at(16) + 1)
    rig.replay(at(16) + 1, DROPPED)
    rig.move("renamed")
    assert rig.open == [(FIRST, 1)]
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED)
    assert f"{Window(at(15), at(16) + 1)} is not loaded: load it" in str(stop.value)
    assert "1 entry in the quarantine of window" in str(stop.value)
    rig.load(late)
    rig.bring_back()
    rig.redrive()
    assert (rig.open, rig.held, rig.ids) == ([], ["complete"], [1, 2, 3])
    assert rig.raise_floor(DROPPED) == DROPPED
