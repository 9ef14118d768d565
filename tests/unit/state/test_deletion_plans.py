"""What is kept of deletion plans and their executions."""

import msgspec
import pytest

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.state import StateStore
from ticdc_replay.state.deletion_plans import DeletionExecution, DeletionPlanRecord


def plan(name: str, made_at_ms: int = 1, store: str = "claims") -> DeletionPlanRecord:
    return DeletionPlanRecord(
        store=store,
        plan_hash=name,
        name=f"plans/{name}/plan.json",
        made_at_ms=made_at_ms,
        due_at_ms=made_at_ms + 2**41,
        objects=2**33,
        bytes=2**50,
    )


def test_a_plan_that_is_made_again_keeps_what_was_decided(state: StateStore) -> None:
    state.deletion_plans.record(plan("p"))
    approved = state.deletion_plans.decide("claims", "p", "approved", by="Ada", why="looked at 20 of them")
    state.deletion_plans.record(plan("p", made_at_ms=7))
    assert state.deletion_plans.all("claims") == [approved]
    assert (approved.status, approved.decided_by, approved.decided_why) == ("approved", "Ada", "looked at 20 of them")
    assert approved.decided_at_ms is not None
    assert msgspec.structs.replace(approved, status="open", decided_by="", decided_why="", decided_at_ms=None) == plan(
        "p"
    )


def test_a_reconciliation_has_one_plan(state: StateStore) -> None:
    first, second = (msgspec.structs.replace(plan(name), reconciliation_id="r") for name in ("p", "q"))
    elsewhere = msgspec.structs.replace(plan("q", store="other"), reconciliation_id="r", policy="automatic")
    for made in (first, second, elsewhere, plan("x"), plan("y")):
        state.deletion_plans.record(made)
    assert state.deletion_plans.all("claims") == [first, plan("x"), plan("y")]
    assert state.deletion_plans.all("other") == [elsewhere]


def test_plans_come_back_oldest_first_and_by_store(state: StateStore) -> None:
    later, first = plan("a", 2), plan("b", 1)
    for made in (later, first, plan("c", store="other")):
        state.deletion_plans.record(made)
    assert state.deletion_plans.all("claims") == [first, later]
    assert state.deletion_plans.get("other", "c") == plan("c", store="other")


def test_the_first_decision_stays(state: StateStore) -> None:
    for name in ("yes", "no"):
        state.deletion_plans.record(plan(name))
    approved = state.deletion_plans.decide("claims", "yes", "approved", by="Ada", why="")
    assert state.deletion_plans.decide("claims", "yes", "approved", by="Bob", why="") == approved
    rejected = state.deletion_plans.decide("claims", "no", "rejected", by="Ada", why="too many")
    assert state.deletion_plans.decide("claims", "no", "approved", by="Bob", why="") == rejected


def test_an_approval_can_be_taken_back_and_not_given_again(state: StateStore) -> None:
    state.deletion_plans.record(plan("p"))
    state.deletion_plans.decide("claims", "p", "approved", by="Ada", why="")
    assert state.deletion_plans.decide("claims", "p", "rejected", by="Bob", why="no").decided_by == "Bob"
    assert state.deletion_plans.decide("claims", "p", "approved", by="Ada", why="yes").status == "rejected"


def test_an_executed_plan_stays_executed_with_its_decision(state: StateStore) -> None:
    state.deletion_plans.record(plan("p"))
    approved = state.deletion_plans.decide("claims", "p", "approved", by="Ada", why="")
    state.deletion_plans.finish("claims", "p")
    executed = msgspec.structs.replace(approved, status="executed")
    assert state.deletion_plans.decide("claims", "p", "rejected", by="Bob", why="too late") == executed


def test_a_rejected_plan_is_never_told_as_executed(state: StateStore) -> None:
    state.deletion_plans.record(plan("p"))
    rejected = state.deletion_plans.decide("claims", "p", "rejected", by="Ada", why="")
    state.deletion_plans.finish("claims", "p")
    assert state.deletion_plans.get("claims", "p") == rejected


def test_an_unknown_plan_is_named(state: StateStore) -> None:
    state.deletion_plans.record(plan("p", store="other"))
    with pytest.raises(ConfigError, match="claims has no deletion plan p"):
        state.deletion_plans.get("claims", "p")
    with pytest.raises(ConfigError, match="claims has no deletion plan p"):
        state.deletion_plans.decide("claims", "p", "approved", by="Ada", why="")


def test_executions_are_kept_as_they_go_on(state: StateStore) -> None:
    def execution(name: str, of: str, at: int) -> DeletionExecution:
        return DeletionExecution(store="claims", plan_hash=of, execution_id=name, started_at_ms=at)

    second, first, other = execution("a", "p", 2), execution("b", "p", 1), execution("c", "q", 0)
    for begun in (second, first, other):
        state.deletion_plans.record_execution(begun)
    done = msgspec.structs.replace(
        second, finished_at_ms=9, audit="deletions/p/a/audit.json", counts={"deleted": 2**40}
    )
    state.deletion_plans.record_execution(done)
    assert state.deletion_plans.executions("claims", "p") == [first, done]
    assert state.deletion_plans.executions("claims") == [other, first, done]
    assert state.deletion_plans.executions("other") == []
