"""From store files to DAGs: which there are, what is in them, and what a broken file does."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.airflow

PIPELINE_DAGS = {f"ticdc_replay_{name}{kind}" for name in ("large", "shop") for kind in ("", "_quarantine", "_seed")}
RECONCILIATION, DELETION = "ticdc_replay_store_claims", "ticdc_replay_store_claims_deletion"


@pytest.fixture(autouse=True)
def some_store(stores):
    """Every test here has the store ``claims``."""


def edges(dag):
    return {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}


def test_a_store_is_a_dag_that_reconciles_and_one_that_deletes(parse):
    bag = parse()
    assert set(bag.dags) == PIPELINE_DAGS | {RECONCILIATION, DELETION}


def test_the_reconciliation_scans_what_is_left_lists_joins_and_reports(parse):
    dag = parse().dags[RECONCILIATION]
    assert edges(dag) == {
        "survey": ["list_objects", "scan"],
        "scan": ["list_objects"],
        "list_objects": ["reconcile"],
        "reconcile": ["report"],
        "report": ["alert", "plan_deletion"],
        "alert": [],
        "plan_deletion": [],
    }
    assert {dag.get_task(task).max_active_tis_per_dag for task in ("scan", "reconcile")} == {1}
    assert all(task.doc_md for task in dag.tasks)
    assert (dag.max_active_runs, dag.is_paused_upon_creation) == (1, True)
    assert dag.timetable.summary == "0 3 * * *"


def test_a_reconciliation_that_was_paused_for_days_runs_once(parse):
    from airflow.timetables.base import DagRunInfo, TimeRestriction

    now = datetime.now(UTC)
    last = DagRunInfo.interval(now - timedelta(days=9), now - timedelta(days=8))
    following = (
        parse()
        .dags[RECONCILIATION]
        .timetable.next_dagrun_info_v2(last_dagrun_info=last, restriction=TimeRestriction(None, None, True))
    )
    assert now - timedelta(days=1) <= following.data_interval.end <= now


def test_a_deletion_is_started_by_hand_asks_a_person_and_checks_again_before_it_deletes(parse):
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    dag = parse().dags[DELETION]
    assert edges(dag) == {
        "choose_plan": ["approve"],
        "approve": ["survey"],
        "survey": ["recheck", "scan"],
        "scan": ["recheck"],
        "recheck": ["delete"],
        "delete": ["alert"],
        "alert": [],
    }
    assert isinstance(dag.get_task("approve"), ApprovalOperator)
    assert (dag.schedule, dag.max_active_runs, dag.is_paused_upon_creation) == (None, 1, False)
    assert all(task.doc_md for task in dag.tasks)


def test_a_store_whose_policy_is_automatic_deletes_after_each_reconciliation_without_asking(parse, stores):
    stores.add("claims", {"deletion": {"policy": "automatic"}})
    bag = parse()
    dag = bag.dags[DELETION]
    assert "approve" not in dag.task_ids
    assert edges(dag)["choose_plan"] == ["survey"]
    assert [asset.name for asset in bag.dags[RECONCILIATION].get_task("report").outlets] == [
        asset.name for asset in dag.timetable.asset_condition.objects
    ]
    assert dag.is_paused_upon_creation, "as the schedule of the store says"


def test_a_store_that_never_deletes_has_no_dag_and_no_task_that_could(parse, stores):
    stores.add("claims", {"deletion": {"policy": "never"}})
    bag = parse()
    assert DELETION not in bag.dags
    dag = bag.dags[RECONCILIATION]
    assert "plan_deletion" not in dag.task_ids
    assert dict(dag.params) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: [", "broken.yaml, line 1"),
        ({"rules": {"young_hours": 0}}, "broken.yaml: rules.young_hours"),
        ({"pipelines": ["shop"]}, "the changefeed of shop"),
        ({"pipelines": ["nobody"]}, "has the pipeline nobody"),
    ],
)
def test_a_broken_store_is_a_dag_that_says_why_and_takes_no_other_down(parse, stores, content, message):
    stores.add("broken", content)
    dags = parse().dags
    assert message in dags.pop("ticdc_replay_unusable_store_broken.yaml").doc_md
    assert set(dags) == PIPELINE_DAGS | {RECONCILIATION, DELETION}


def test_a_broken_pipeline_leaves_the_dags_of_other_pipelines_stores(parse, pipelines):
    pipelines.add("broken", "name: [")
    dags = parse().dags
    assert {RECONCILIATION, DELETION} < set(dags)
    assert "no: nothing may be deleted" in dags[RECONCILIATION].doc_md


def test_a_pipeline_that_is_not_listed_stops_the_dags_of_its_store(parse, stores):
    stores.pipeline("forgotten")
    dags = parse().dags
    told = dags["ticdc_replay_unusable_store_claims.yaml"].doc_md
    assert "forgotten.yaml writes to file:///dev/null/claims and is not listed" in told
    assert not {RECONCILIATION, DELETION} & set(dags)


def test_without_a_folder_of_stores_there_are_pipelines_only(parse, monkeypatch, tmp_path):
    monkeypatch.setenv("TICDC_REPLAY_STORES", str(tmp_path / "nowhere"))
    assert set(parse().dags) == PIPELINE_DAGS


@pytest.mark.parametrize("name", [RECONCILIATION, DELETION])
def test_airflow_s_database_holds_what_a_dag_was_made_from(process, pipelines, stores, name):
    from ticdc_replay.airflow.declared import declared_in
    from ticdc_replay.config.load_store import load_store
    from ticdc_replay.config.store import Store

    process()
    assert declared_in(name, Store) == load_store(stores.path / "claims.yaml", pipelines.path).store


def test_both_dags_survive_airflow_s_serialization_and_hold_nothing_big(parse):
    from airflow.serialization.serialized_objects import DagSerialization

    bag = parse()
    for dag_id, fields in ((RECONCILIATION, {"plan"}), (DELETION, {"plan"})):
        data = DagSerialization.to_dict(bag.dags[dag_id])
        assert len(json.dumps(data)) < 40_000
        (declared,) = [task["__var"]["doc_json"] for task in data["dag"]["tasks"] if "doc_json" in task["__var"]]
        assert json.loads(declared)["Store"]["name"] == "claims", "pages read the store there, and no file"
        assert set(DagSerialization.from_dict(data).params) == fields


def test_parsing_imports_no_pyspark_and_opens_nothing(pipelines, stores):
    arguments = f"{str(stores.path / 'claims.yaml')!r}, {str(pipelines.path)!r}"
    probe = f"""
import json, socket, sys
def refuse(*_): raise AssertionError("parsing opened a connection")
socket.socket.connect = refuse
from ticdc_replay.airflow.dags.deletion import build_deletion_dag
from ticdc_replay.airflow.dags.store import build_store_dag
build_store_dag({arguments})
build_deletion_dag({arguments})
heavy = ["pyspark", "confluent_kafka", "boto3", "pyarrow", "sqlglot"]
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout.splitlines()[-1]) == []
