"""A store through both of its DAGs, on real servers: reconciled, planned, approved by a person, deleted."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from demo.sample import contents
from tests.airflow.stage import objects_of, submitted
from tests.airflow.store_stage import Person, StoreStage
from tests.conftest import s3_client_of

# Each time, the demo runs the DAG of a reconciliation, and test_store_tasks.py the tasks of a deletion.
pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]

RECONCILIATION, DELETION = "ticdc_replay_store_claims", "ticdc_replay_store_claims_deletion"
ORPHANS = {each.name for each in contents.objects() if each.orphan}
REFERENCED = {each.name for each in contents.objects()} - ORPHANS


@pytest.fixture(scope="module")
def stage(tmp_path_factory, kafka, s3, postgres, java_home, airflow_database):
    with closing(StoreStage(tmp_path_factory.mktemp("stage"), kafka, s3, s3_client_of(s3), postgres)) as made:
        yield made


@pytest.fixture(scope="module")
def reconciled(stage):
    """A reconciliation of a store that lacks one object: what was printed, and the object's name."""
    lost = min(REFERENCED)
    (stage.claims / lost).unlink()
    return SimpleNamespace(lost=lost, log=stage.run_dag(RECONCILIATION, fails=True, plan=False))


@pytest.fixture
def planned(stage, reconciled):
    """The hash of a plan that is due: made of the reconciliation, two hours ago."""
    return stage.planned(hours=2).plan_hash


def test_the_report_counts_what_is_there_and_a_missing_object_fails_the_alert_alone(stage, reconciled):
    assert f"objects.referenced: {len(REFERENCED) - 1} " in reconciled.log
    assert f"objects.orphaned: {len(ORPHANS)} " in reconciled.log
    assert f"object {reconciled.lost} does not exist: the row of devlarge.big with key" in reconciled.log
    assert "still available from " in reconciled.log
    assert submitted(reconciled.log) == ["reconcile", "scan"]
    assert "This run is not to plan a deletion" in reconciled.log


def test_lineage_tells_the_quality_of_the_store(stage, reconciled):
    (event,) = stage.events("report")
    store = next(each for each in event["inputs"] if each["name"] == str(stage.claims))
    facets = store["inputFacets"]
    assert facets["dataQualityMetrics"]["fileCount"] == len(REFERENCED) + len(ORPHANS) - 1
    checks = {
        each["assertion"]: (each["success"], each["actual"]) for each in facets["dataQualityAssertions"]["assertions"]
    }
    assert checks["referenced_objects_exist"][0] is False
    assert checks["retained_offsets_searched"] == (True, "0")
    assert facets["ticdcReplay_storeClasses"]["objects"]["orphaned"] == len(ORPHANS)
    topic = next(each for each in event["inputs"] if each["name"] == stage.topic)
    assert len(topic["inputFacets"]["ticdcReplay_topicRanges"]["partitions"]) == 3
    assert event["run"]["facets"]["ticdcReplay_reconciliation"]["alerts"] >= 1


def test_no_secret_is_in_what_a_reconciliation_leaves_or_shows(stage, reconciled, s3):
    artefacts = objects_of(s3_client_of(s3), stage.bucket, "stores/")
    assert any("/report.json" in key for key in artefacts)
    left = {"the log": reconciled.log, "lineage": stage.lineage.read_text(), **artefacts}
    assert [(secret, where) for secret in stage.secrets for where, text in left.items() if secret in text] == []


def test_a_plan_that_a_person_approves_is_checked_again_and_executed_and_nothing_else_goes(
    stage, reconciled, planned, sign_in
):
    with Person(sign_in("kim", "user"), DELETION, "Approve", "left over") as person:
        log = stage.run_dag(DELETION)
    assert {file.name for file in stage.claims.iterdir()} == REFERENCED - {reconciled.lost}
    assert person.question["subject"].startswith(f"Delete {len(ORPHANS)} objects ")
    assert min(ORPHANS) in person.question["body"]
    assert submitted(log) == ["reconcile"], "every offset was searched before"
    with stage.context() as store:
        plan = store.state.deletion_plans.get("claims", planned)
    assert (plan.status, plan.decided_by, plan.decided_why) == ("executed", "kim", "left over")
    (event,) = stage.events("delete")
    assert event["run"]["facets"]["ticdcReplay_deletion"]["counts"] == {"deleted": len(ORPHANS)}
