"""Leases of claim-check stores."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.processes import at_once
from ticdc_replay.domain.errors import LeaseHeldError, LeaseLostError
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.leases import Lease, LeaseKind

URI = "s3://claims/here"
LONG, SHORT = 600_000, 20


def wait_out(lease: Lease) -> None:
    """Return after the end of *lease*; the tests' databases are on this machine, so there is one clock."""
    while time.time() * 1000 < lease.expires_at_ms + 5:
        time.sleep(0.005)


def test_any_number_of_replays_use_a_store_beside_one_deletion(state: StateStore) -> None:
    held = [
        state.leases.acquire(URI, "one", "replay", "shop/a", LONG),
        state.leases.acquire(URI, "two", "replay", "shop/a", LONG),
        state.leases.acquire(URI, "three", "deletion", "plan", LONG),
        state.leases.acquire(URI, "four", "replay", "shop/b", LONG),
    ]
    assert sorted(state.leases.current(URI), key=lambda lease: lease.holder) == sorted(
        held, key=lambda lease: lease.holder
    )
    assert all(lease.expires_at_ms - lease.acquired_at_ms == LONG for lease in held)
    assert abs(held[0].acquired_at_ms - time.time() * 1000) < 60_000


def test_a_second_deletion_is_told_who_deletes_and_until_when(state: StateStore) -> None:
    first = state.leases.acquire(URI, "one", "deletion", "plan", LONG)
    with pytest.raises(LeaseHeldError, match=r"s3://claims/here: one is deleting there \(plan plan\).*until 20"):
        state.leases.acquire(URI, "two", "deletion", "other", LONG)
    assert state.leases.current(URI) == [first]
    state.leases.acquire("s3://elsewhere", "two", "deletion", "other", LONG)


def test_a_deletion_may_follow_when_the_first_is_done(state: StateStore) -> None:
    state.leases.release(state.leases.acquire(URI, "one", "deletion", "plan", LONG))
    assert state.leases.acquire(URI, "two", "deletion", "plan", LONG).holder == "two"


def test_a_deletion_may_follow_when_the_first_has_died(state: StateStore) -> None:
    died = state.leases.acquire(URI, "one", "deletion", "plan", SHORT)
    wait_out(died)
    second = state.leases.acquire(URI, "two", "deletion", "plan", LONG)
    with pytest.raises(LeaseLostError, match="one has lost its lease of s3://claims/here for the deletion of plan"):
        state.leases.renew(died, LONG)
    state.leases.release(died)
    assert state.leases.current(URI) == [second]


def test_taking_a_lease_again_is_harmless(state: StateStore) -> None:
    for kind in ("deletion", "replay"):
        state.leases.acquire(URI, kind, kind, "it", SHORT)
        again = state.leases.acquire(URI, kind, kind, "it", LONG)
        assert again in state.leases.current(URI)
    assert len(state.leases.current(URI)) == 2


def test_a_renewed_lease_lasts_longer(state: StateStore) -> None:
    lease = state.leases.acquire(URI, "one", "replay", "shop/a", 60_000)
    renewed = state.leases.renew(lease, LONG)
    assert renewed.expires_at_ms > lease.expires_at_ms + 500_000
    assert state.leases.current(URI) == [renewed]
    assert state.leases.renew(lease, LONG).acquired_at_ms == lease.acquired_at_ms


def test_a_lease_that_ended_cannot_be_renewed_though_nobody_else_took_it(state: StateStore) -> None:
    for kind in ("replay", "deletion"):
        lease = state.leases.acquire(URI, kind, kind, "it", SHORT)
        wait_out(lease)
        with pytest.raises(LeaseLostError):
            state.leases.renew(lease, LONG)


def test_a_holder_that_came_back_to_life_does_not_renew_the_lease_of_its_next_attempt(state: StateStore) -> None:
    first = state.leases.acquire(URI, "one", "deletion", "plan", SHORT)
    wait_out(first)
    state.leases.acquire(URI, "one", "deletion", "plan", LONG)
    with pytest.raises(LeaseLostError):
        state.leases.renew(first, LONG)


@pytest.mark.parametrize("kind", ["replay", "decode"])
def test_a_lease_that_is_handed_over_is_never_free_in_between(state: StateStore, kind: LeaseKind) -> None:
    one = state.leases.acquire(URI, "one", kind, "it", LONG)
    if kind == "replay":
        state.leases.acquire(URI, "two", kind, "it", SHORT)  # from an attempt before
    state.leases.hand_over(one, "two", LONG)
    (two,) = state.leases.current(URI)
    assert (two.holder, two.kind, two.subject) == ("two", kind, "it")
    with pytest.raises(LeaseLostError):
        state.leases.renew(one, LONG)
    if kind == "decode":
        with pytest.raises(LeaseHeldError, match="two decodes it"):
            state.leases.acquire(URI, "three", kind, "it", LONG)
    state.leases.release(state.leases.acquire(URI, "two", kind, "it", LONG))
    assert state.leases.current(URI) == []


def test_a_lease_that_has_ended_is_handed_to_nobody(state: StateStore) -> None:
    one = state.leases.acquire(URI, "one", "decode", "it", SHORT)
    wait_out(one)
    three = state.leases.acquire(URI, "three", "decode", "it", LONG)
    with pytest.raises(LeaseLostError, match="one has lost its lease"):
        state.leases.hand_over(one, "two", LONG)
    assert state.leases.current(URI) == [three]


def test_a_replay_that_died_is_remembered_until_its_subject_is_replayed_to_its_end(state: StateStore) -> None:
    died = state.leases.acquire(URI, "one", "replay", "shop/a", SHORT)
    other = state.leases.acquire(URI, "other", "replay", "shop/b", SHORT)
    wait_out(other)
    again = state.leases.acquire(URI, "two", "replay", "shop/a", LONG)
    state.leases.acquire(URI, "deleting", "deletion", "plan", LONG)
    assert sorted(lease.holder for lease in state.leases.lapsed(URI)) == ["one", "other"]
    assert died in state.leases.lapsed(URI)
    state.leases.release(again)
    assert state.leases.lapsed(URI) == [other]


def test_of_deletions_that_begin_at_the_same_time_one_gets_the_lease(url: str) -> None:
    open_state(url).close()

    def acquire(number: int) -> str | None:
        store = open_state(url)
        try:
            return store.leases.acquire(URI, f"holder {number}", "deletion", "plan", LONG).holder
        except LeaseHeldError:
            return None
        finally:
            store.close()

    with ThreadPoolExecutor(8) as pool:
        got = [holder for holder in pool.map(acquire, range(16)) if holder]
    store = open_state(url)
    assert [lease.holder for lease in store.leases.current(URI)] == got
    store.close()
    assert len(got) == 1


def take_in_turns(number: int, url: str) -> None:
    """Be the only one with the lease three times; replay in between, as the others do."""
    store = open_state(url)
    me, held = f"process {number}", 0
    while held < 3:
        replay = store.leases.acquire(URI, f"{me} replay", "replay", "shop/a", LONG)
        try:
            lease = store.leases.acquire(URI, me, "deletion", "plan", LONG)
        except LeaseHeldError:
            pass
        else:
            holders = [found.holder for found in store.leases.current(URI) if found.kind == "deletion"]
            assert holders == [me]
            store.leases.renew(lease, LONG)
            held += 1
            store.leases.release(lease)
        store.leases.release(replay)
        time.sleep(random.uniform(0, 0.02))
    store.close()


def test_processes_that_take_and_release_the_lease_in_turns_never_hold_it_together(url: str) -> None:
    open_state(url).close()
    at_once(3, take_in_turns, url)
