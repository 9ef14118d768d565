"""Re-drives and accepted losses."""

import msgspec

from tests.support.topics import identity
from ticdc_replay.state import StateStore
from ticdc_replay.state.quarantine import AcceptedLoss, Redrive

TOPIC = identity()


def test_re_drives_are_told_in_order_and_forgotten_by_place(state: StateStore) -> None:
    made = [
        Redrive("shop", "run", "b", "", 1),
        Redrive("shop", "run", "b", "lake", 2, "here"),
        Redrive("shop", "run", "a", "", 3),
        Redrive("shop", "run", "b", "lake", 4, "there"),
    ]
    for redrive in (*reversed(made), Redrive("shop", "other", "c", "lake", 1, "here")):
        state.quarantine.record_redrive(redrive)
    assert state.quarantine.redrives("shop", "run") == made
    state.quarantine.forget_redrives("shop", "here", [made[1].redrive_hash])
    assert state.quarantine.redrives("shop", "run") == [made[0], *made[2:]]
    assert len(state.quarantine.redrives("shop", "other")) == 1


def test_the_first_acceptance_of_an_entry_stays(state: StateStore) -> None:
    first = AcceptedLoss("shop", TOPIC, 0, 7, -1, "bad_value", "run", "Ada", "why", "accepted/a.json", 1)
    later = msgspec.structs.replace(first, person="Bob", accepted_at_ms=2)
    other = msgspec.structs.replace(later, reason="bad_key")
    state.quarantine.record_accepted_losses([first])
    state.quarantine.record_accepted_losses([later, other])
    assert state.quarantine.accepted_losses("shop") == [other, first]
    assert state.quarantine.accepted_losses("billing") == []
