"""Leases of replays and deletions, as they are held while work goes on."""

import threading
import time
from collections.abc import Callable

import pytest

from tests.support.file_pipelines import CLAIMS
from tests.support.waiting import wait_for
from ticdc_replay.domain.errors import LeaseHeldError, LeaseLostError, TransientError
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import Replayed, holding_store, replayed, replaying
from ticdc_replay.state.leases import Lease, Leases

MANIFEST = "manifests/abc.json"


def test_a_replay_is_seen_while_it_runs_and_not_afterwards(context: ReplayContext) -> None:
    with replaying(context, MANIFEST, "def"):
        (lease,) = context.state.leases.current(CLAIMS)
        assert lease.kind == "replay"
        assert replayed(lease) == Replayed("shop", MANIFEST, "def")
    assert context.state.leases.current(CLAIMS) == context.state.leases.lapsed(CLAIMS) == []


def test_a_changefeed_without_claim_checks_needs_no_state_store(make_context: Callable[[str], ReplayContext]) -> None:
    context = make_context("")
    with replaying(context, MANIFEST, "def"):
        assert "state" not in vars(context)


def wait_until_renewed(context: ReplayContext, lease: Lease) -> None:
    wait_for(
        "the renewal of the lease", lambda: context.state.leases.current(CLAIMS) not in ([], [lease]), pause_s=0.05
    )


def test_a_lease_is_renewed_while_the_work_goes_on(context: ReplayContext) -> None:
    with replaying(context, MANIFEST, "def", ttl_ms=4_500):
        (lease,) = context.state.leases.current(CLAIMS)
        wait_until_renewed(context, lease)
        (renewed,) = context.state.leases.current(CLAIMS)
        assert renewed.holder == lease.holder
        assert renewed.expires_at_ms > lease.expires_at_ms


@pytest.mark.parametrize("error", [TransientError("the state store is away"), KeyboardInterrupt()])
def test_a_replay_that_failed_is_held_on_for_its_decode_may_be_complete_or_go_on(
    context: ReplayContext, error: BaseException
) -> None:
    with pytest.raises(type(error)), replaying(context, MANIFEST, "def"):
        raise error
    assert [lease.kind for lease in context.state.leases.current(CLAIMS)] == ["replay"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease of")]


def test_a_replay_that_is_handed_over_has_one_lease_until_it_is_finished(context: ReplayContext) -> None:
    leases = context.state.leases
    for holder in (None, "replay application_1", "replay application_1"):
        with pytest.raises(HandedOverError), replaying(context, MANIFEST, "def", holder=holder):
            raise HandedOverError("replay application_1")
        assert [lease.holder for lease in leases.current(CLAIMS)] == ["replay application_1"]
    with replaying(context, MANIFEST, "def", holder="replay application_1"):
        pass
    assert leases.current(CLAIMS) == leases.lapsed(CLAIMS) == []


@pytest.mark.parametrize("error", [TransientError("the store is away"), KeyboardInterrupt()])
def test_a_deletion_that_failed_lets_the_next_one_in(context: ReplayContext, error: BaseException) -> None:
    with pytest.raises(type(error)), holding_store(context.state.leases, CLAIMS, "deletion", "plan"):
        raise error
    with holding_store(context.state.leases, CLAIMS, "deletion", "plan") as hold:
        hold.verify()


def test_a_repeat_of_a_replay_that_succeeds_ends_what_the_attempts_before_left(context: ReplayContext) -> None:
    with pytest.raises(KeyboardInterrupt), replaying(context, MANIFEST, "def", ttl_ms=50):
        raise KeyboardInterrupt
    time.sleep(0.1)
    assert len(context.state.leases.lapsed(CLAIMS)) == 1
    with replaying(context, MANIFEST, "def"):
        pass
    assert context.state.leases.current(CLAIMS) == context.state.leases.lapsed(CLAIMS) == []


def test_a_replay_says_that_it_lost_its_lease(context: ReplayContext) -> None:
    def replay() -> None:
        with replaying(context, MANIFEST, "def", ttl_ms=120):
            for lease in context.state.leases.current(CLAIMS):
                context.state.leases.release(lease)
            time.sleep(0.1)

    with pytest.raises(LeaseLostError, match=r"replay of shop/manifests/abc\.json@def"):
        replay()


@pytest.mark.slow
def test_a_state_store_that_is_away_for_a_moment_costs_nothing(
    context: ReplayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, refused = Leases.renew, threading.Event()

    def away_once(leases: Leases, lease: Lease, ttl_ms: int) -> Lease:
        if not refused.is_set():
            refused.set()
            raise TransientError("the server is restarted")
        return renew(leases, lease, ttl_ms)

    monkeypatch.setattr(Leases, "renew", away_once)
    with replaying(context, MANIFEST, "def", ttl_ms=6_000):
        (lease,) = context.state.leases.current(CLAIMS)
        wait_until_renewed(context, lease)
        assert refused.is_set()


def test_deletions_of_one_store_take_turns_whatever_they_call_themselves(context: ReplayContext) -> None:
    with holding_store(context.state.leases, CLAIMS, "deletion", "plan") as hold:
        hold.verify()
        second = holding_store(context.state.leases, CLAIMS, "deletion", "plan")
        with pytest.raises(LeaseHeldError, match=r"deletion \(.*process \d+.*is deleting there \(plan plan\)"), second:
            raise AssertionError("both hold it")
    with holding_store(context.state.leases, CLAIMS, "deletion", "other"):
        assert [lease.subject for lease in context.state.leases.current(CLAIMS)] == ["other"]


def test_a_replay_begins_while_a_deletion_holds_the_store(context: ReplayContext) -> None:
    with holding_store(context.state.leases, CLAIMS, "deletion", "plan") as hold, replaying(context, MANIFEST, "def"):
        hold.verify()
        assert sorted(lease.kind for lease in context.state.leases.current(CLAIMS)) == ["deletion", "replay"]


def test_a_deletion_that_was_taken_for_dead_stops_at_its_next_check(context: ReplayContext) -> None:
    done = []

    def execute() -> None:
        with holding_store(context.state.leases, CLAIMS, "deletion", "plan") as hold:
            hold.verify()
            (lease,) = context.state.leases.current(CLAIMS)
            context.state.leases.release(lease)  # what its end would be
            context.state.leases.acquire(CLAIMS, "another", "deletion", "plan", 600_000)
            hold.verify()
            done.append("deleted")

    with pytest.raises(LeaseLostError):
        execute()
    assert done == []
    assert [lease.holder for lease in context.state.leases.current(CLAIMS)] == ["another"]
