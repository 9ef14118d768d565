"""The tasks of a store that decide how a run goes on: what they pass on, ask, skip and fail with."""

from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

from ticdc_replay.domain.errors import PermanentError, PolicyStopError
from ticdc_replay.reconcile.delete.deletion_plan import PLANNED, plan_name, write_plan
from ticdc_replay.state import open_state
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.storage import open_store

pytestmark = pytest.mark.airflow

NAME = "7d1c2a94-0b53-4a58-9a4e-51d1f6d3c2b0.json"
MARCH = 1_772_323_200_000  # 2026-03-01T00:00:00Z
HOUR = 3_600_000
ANSWERED = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path, stores, monkeypatch):
    """Files and artefacts of the store ``claims``, with the connections that its pipeline names."""
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    stores.add("claims", {"artifacts": artifacts.as_uri()})
    for name in ("SHOP_KAFKA", "WAREHOUSE"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", '{"conn_type": "kafka", "host": "192.0.2.1"}')
    return artifacts


@pytest.fixture
def state(folder):
    state = open_state(f"sqlite:///{folder}/state.db")
    yield state
    state.close()


@pytest.fixture
def plan(folder, state):
    """A plan of one object that is due."""
    row = {
        "name": NAME,
        "size": 1_500,
        "etag": "e",
        "last_modified_ms": MARCH - HOUR,
        "version_id": None,
        "class": "orphaned",
        "reason": "left over",
        "schema": None,
        "table": None,
    }
    made = write_plan(
        open_store((folder / "claims").as_uri(), None),
        pa.Table.from_pylist([row], PLANNED),
        store="claims",
        uri="file:///dev/null/claims",
        reconciliation_id="r",
        bounds_ms=MARCH,
        made_at_ms=MARCH,
        due_at_ms=MARCH + HOUR,
    )
    record = DeletionPlanRecord(
        store="claims",
        plan_hash=made.hash,
        name=plan_name(made.hash),
        made_at_ms=made.made_at_ms,
        due_at_ms=made.due_at_ms,
        objects=1,
        bytes=1_500,
    )
    state.deletion_plans.record(record)
    return record


@pytest.fixture
def deletion(folder, pipelines, stores):
    from ticdc_replay.airflow.dags.deletion import build_deletion_dag

    return build_deletion_dag(stores.path / "claims.yaml", pipelines.path)


@pytest.fixture
def reconciliation(folder, pipelines, stores):
    from ticdc_replay.airflow.dags.store import build_store_dag

    return build_store_dag(stores.path / "claims.yaml", pipelines.path)


def context(task, told=None, **answers):
    """What a task is run with: the form's answers, and what the tasks before it have told."""
    told = told or {}
    instance = SimpleNamespace(
        id="ti", map_index=-1, xcom_pull=lambda task_ids: told.get(task_ids), xcom_push=lambda **_: None
    )
    return {"params": answers, "ti": instance, "task_instance": instance, "task": task}


def told_of(plan):
    """What the choice of *plan* hands over."""
    return {"plan": plan.plan_hash, "objects": 1, "bytes": 1_500, "status": "open"}


def answer(option, name="kim", why="looked at them"):
    return {
        "chosen_options": [option],
        "params_input": {"why": why},
        "responded_at": ANSWERED,
        "responded_by_user": None if name is None else {"id": "7", "name": name},
    }


def test_the_oldest_plan_that_is_due_is_chosen(deletion, plan):
    task = deletion.get_task("choose_plan")
    assert task.execute(context(task, plan=None)) == {
        "plan": plan.plan_hash,
        "objects": 1,
        "bytes": 1_500,
        "status": "open",
    }


def test_a_run_without_a_plan_that_is_due_is_skipped(deletion, folder):
    from airflow.sdk.exceptions import AirflowSkipException

    task = deletion.get_task("choose_plan")
    with pytest.raises(AirflowSkipException, match="No plan is due"):
        task.execute(context(task, plan=None))


def test_a_plan_that_is_named_but_was_rejected_is_refused(deletion, plan, state):
    state.deletion_plans.decide("claims", plan.plan_hash, "rejected", by="kim", why="no")
    task = deletion.get_task("choose_plan")
    with pytest.raises(PolicyStopError, match="it was rejected"):
        task.execute(context(task, plan=plan.plan_hash))


def test_a_person_is_shown_the_plan_s_numbers_reasons_and_first_objects(deletion, plan, monkeypatch):
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.exceptions import TaskAwaitingInput

    asked = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: asked.update(detail))
    task = deletion.get_task("approve")
    chosen = told_of(plan)
    with pytest.raises(TaskAwaitingInput) as waiting:
        task.execute(context(task, {"choose_plan": chosen}))
    assert waiting.value.kwargs == {"plan": plan.plan_hash}, "the answer is about the plan that was shown"
    assert asked["subject"] == "Delete 1 objects (1,500 bytes) of claim-check store claims?"
    assert "| orphaned | left over | 1 | 1,500 | 2026-02-28 23:00 UTC to 2026-02-28 23:00 UTC |" in asked["body"]
    assert f"* `{NAME}` (orphaned, 1,500 bytes, 2026-02-28 23:00 UTC)" in asked["body"]
    assert plan.plan_hash in asked["body"]
    assert asked["options"] == ["Approve", "Reject"]
    assert list(asked["params"]) == ["why"]
    assert asked["params"]["why"]["value"] is None
    assert asked["params"]["why"]["schema"] == {"type": "string", "minLength": 1, "title": "Why"}, "an answer needs it"


def test_nobody_is_asked_about_a_plan_that_was_settled_since_it_was_chosen(deletion, plan, state):
    task = deletion.get_task("approve")
    chosen = {"choose_plan": told_of(plan)}
    state.deletion_plans.decide("claims", plan.plan_hash, "approved", by="kim", why="seen")
    assert task.execute(context(task, chosen)) is None
    state.deletion_plans.decide("claims", plan.plan_hash, "rejected", by="kim", why="no")
    with pytest.raises(PermanentError, match="was rejected meanwhile"):
        task.execute(context(task, chosen))


def test_the_question_tells_what_is_against_the_plan_whatever_the_answer(deletion, plan, folder, stores, monkeypatch):
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.exceptions import TaskAwaitingInput

    asked = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: asked.append(detail["body"]))
    task = deletion.get_task("approve")
    for hours in (1, 1_000_000):
        stores.add("claims", {"artifacts": folder.as_uri(), "deletion": {"policy": "approval", "grace_hours": hours}})
        with pytest.raises(TaskAwaitingInput):
            task.execute(context(task, {"choose_plan": told_of(plan)}))
    assert "its grace period lasts until" in asked[1]
    assert "nobody has approved it" not in asked[1]


def test_an_approval_is_recorded_with_the_person_s_name_and_reason(deletion, plan, state):
    task = deletion.get_task("approve")
    task.execute_complete(context(task, {"choose_plan": told_of(plan)}), answer("Approve"), plan.plan_hash)
    decided = state.deletion_plans.get("claims", plan.plan_hash)
    assert (decided.status, decided.decided_by, decided.decided_why) == ("approved", "kim", "looked at them")


def test_an_answer_is_about_the_plan_that_was_shown_though_the_run_has_chosen_another_one_since(deletion, plan, state):
    other = msgspec.structs.replace(plan, plan_hash="0" * 64)
    state.deletion_plans.record(other)
    task = deletion.get_task("approve")
    with pytest.raises(PermanentError, match=f"about plan {plan.plan_hash}; since the question this run has chosen"):
        task.execute_complete(context(task, {"choose_plan": told_of(other)}), answer("Approve"), plan.plan_hash)
    assert state.deletion_plans.get("claims", plan.plan_hash).status == "approved"
    assert state.deletion_plans.get("claims", other.plan_hash).status == "open"


def test_a_rejection_ends_the_plan_and_skips_all_that_is_left_of_the_run(deletion, plan, state):
    from airflow.sdk.exceptions import DownstreamTasksSkipped

    task = deletion.get_task("approve")
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        task.execute_complete(context(task, {"choose_plan": told_of(plan)}), answer("Reject"), plan.plan_hash)
    assert skipped.value.tasks == ["survey"], "and what comes after it by its own rule"
    assert deletion.get_task("recheck").trigger_rule == "none_failed_min_one_success"
    assert state.deletion_plans.get("claims", plan.plan_hash).status == "rejected"


def test_an_answer_that_nobody_gave_releases_nothing(deletion, plan, state):
    task = deletion.get_task("approve")
    with pytest.raises(PermanentError, match="no user name"):
        task.execute_complete(context(task, {"choose_plan": told_of(plan)}), answer("Approve", None), plan.plan_hash)
    assert state.deletion_plans.get("claims", plan.plan_hash).status == "open"


def test_a_scan_for_which_nothing_is_left_is_skipped(reconciliation):
    from airflow.sdk.exceptions import AirflowSkipException

    task = reconciliation.get_task("scan")
    with pytest.raises(AirflowSkipException, match="has been searched before"):
        task.execute(context(task, {"survey": {"survey": "s", "scan": None}}))


def test_the_connection_that_deletes_is_resolved_by_no_task_but_the_deletion(deletion, monkeypatch):
    from ticdc_replay.airflow.operators import base, spark_job

    opened = {}

    class OpenedError(Exception):
        pass

    def refuse(store_file, pipelines, *, deleting=False):
        opened[task.task_id] = deleting
        raise OpenedError

    monkeypatch.setattr(base, "open_store", refuse)
    monkeypatch.setattr(spark_job, "open_store", refuse)
    everything = {"plan": "p", "objects": 1, "bytes": 1, "status": "open", "survey": "s", "scan": None, "recheck": "r"}
    told = dict.fromkeys(deletion.task_ids, everything)
    for task in deletion.tasks:
        if task.task_id not in ("scan", "alert"):
            with pytest.raises(OpenedError):
                task.execute(context(task, told, plan=None))
    assert {name for name, deleting in opened.items() if deleting} == {"delete"}


def test_an_alert_fails_with_the_text_of_the_first_ones(reconciliation):
    task = reconciliation.get_task("alert")
    told = {
        "reconciliation": "r1",
        "totals": {},
        "alerts": 12,
        "first_alerts": ["shop[0]@7: object x does not exist"],
    }
    with pytest.raises(PermanentError) as failed:
        task.execute(context(task, {"report": told}))
    assert str(failed.value) == "reconciliation r1:\nshop[0]@7: object x does not exist\nand 11 more, in the report"
    assert task.execute(context(task, {"report": told | {"alerts": 0}})) is None


def test_a_reconciliation_is_planned_from_only_where_the_form_says_so(reconciliation):
    from airflow.sdk.exceptions import AirflowSkipException

    task = reconciliation.get_task("plan_deletion")
    with pytest.raises(AirflowSkipException, match="not to plan"):
        task.execute(context(task, plan=False))


def test_a_deletion_that_the_store_denied_fails_and_one_of_which_objects_were_kept_does_not(deletion):
    task = deletion.get_task("alert")
    done = {"execution": "e", "counts": {"deleted": 5, "withheld": 2}, "trouble": []}
    assert task.execute(context(task, {"delete": done})) is None
    done |= {"counts": {"deleted": 5, "denied": 2}, "trouble": [f"{NAME}: denied: AccessDenied"]}
    with pytest.raises(PermanentError, match=rf"2 were denied, such as\n{NAME}: denied: AccessDenied"):
        task.execute(context(task, {"delete": done}))


def test_what_tasks_hand_over_has_types_of_json_alone():
    from ticdc_replay.airflow.xcom import Reported, encode

    assert encode(Reported(reconciliation="r1", totals={"orphaned": 1}, alerts=1, first_alerts=("a",))) == {
        "reconciliation": "r1",
        "totals": {"orphaned": 1},
        "alerts": 1,
        "first_alerts": ["a"],
    }
