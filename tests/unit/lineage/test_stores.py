"""What lineage says of a store's reconciliation and deletion."""

import pytest

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.lineage.datasets import Dataset, Rows, TopicRanges
from ticdc_replay.lineage.stores import deleted, reconciled
from ticdc_replay.reconcile.delete.audit import Audit, Release
from ticdc_replay.reconcile.judge.report import ReconciliationReport
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, PartitionBounds, ReferenceClass
from ticdc_replay.reconcile.judge.summary import ObjectsOfDay, ReferencesOfTable, Summary

ROOT = "s3://lake/stores/claims"
BOUNDS = [
    PartitionBounds("shop", "id-1", 0, 10, 25, 1),
    PartitionBounds("shop", "id-1", 1, 7, 7, None),
    PartitionBounds("shop", "id-1", 2, 0, 3, 1),
]


def report(*references, unread=0):
    return ReconciliationReport(
        library_version="1.0",
        store="claims",
        uri="s3://shop/claim-check",
        reconciliation_id="r1",
        finished_at_ms=30,
        evidence=Evidence(
            bounds_ms=20,
            listed_ms=21,
            partitions=tuple(BOUNDS),
            young_ms=1,
            skew_ms=0,
            grace_ms=1,
            owners_complete=True,
            unread_offsets=unread,
        ),
        summary=Summary(
            by_day=(
                ObjectsOfDay(ObjectClass.REFERENCED, "2026-03-01", 4, 400, 0, 0),
                ObjectsOfDay(ObjectClass.ORPHANED, "2026-03-01", 2, 20, 1, 10),
                ObjectsOfDay(ObjectClass.FOREIGN, "2026-03-02", 1, 5, 0, 0),
            ),
            objects_by_table=(),
            references_by_table=references,
        ),
        object_files=(),
        reference_files=(),
        alerts=(),
        notes=(),
        previous=None,
    )


def of(made):
    return reconciled(made, artifacts_uri=ROOT, retained={"b1:9092,b2:9092": BOUNDS})


def test_a_reconciliation_reads_the_store_and_what_kafka_retained_and_writes_lists():
    lineage = of(report())
    store, topic = lineage.inputs
    assert (store.namespace, store.name) == ("s3://shop", "claim-check")
    assert topic == Dataset(
        namespace="kafka://b1:9092",
        name="shop",
        topic=TopicRanges("id-1", (OffsetRange("shop", 0, 10, 25), OffsetRange("shop", 2, 0, 3))),
    )
    assert lineage.outputs == (
        Dataset(namespace="s3://lake", name="stores/claims/reconciliations", version="r1", written=Rows(7)),
    )
    assert lineage.run.report == f"{ROOT}/reconciliations/r1/report.json"
    assert (lineage.run.complete, lineage.run.deletable, lineage.run.bounds_ms) == (True, 1, 20)


def test_the_quality_of_a_store_is_its_objects_and_bytes_by_class():
    quality = of(report()).inputs[0].quality
    assert (quality.objects, quality.bytes) == (7, 425)
    assert quality.objects_by_class["orphaned"] == 2
    assert quality.bytes_by_class["referenced"] == 400
    assert quality.objects_by_class["malformed"] == 0


@pytest.mark.parametrize(
    ("made", "failed"),
    [
        (report(), {"objects_belong_to_ticdc": 1}),
        (
            report(ReferencesOfTable(ReferenceClass.MISSING, "s", "t", 5, 3)),
            {"objects_belong_to_ticdc": 1, "referenced_objects_exist": 3},
        ),
        (
            report(ReferencesOfTable(ReferenceClass.ALTERED, "s", "t", 5, 5), unread=9),
            {"objects_belong_to_ticdc": 1, "referenced_objects_unaltered": 5, "retained_offsets_searched": 9},
        ),
    ],
)
def test_a_check_fails_with_the_number_of_what_violates_it(made, failed):
    checks = of(made).inputs[0].quality.checks
    assert len(checks) == 5
    assert {check.name: check.actual for check in checks if check.actual} == failed


def test_what_may_stay_as_it_is_warns_only():
    severities = {check.name: check.severity for check in of(report()).inputs[0].quality.checks}
    assert severities["objects_belong_to_ticdc"] == "warn"
    assert severities["referenced_objects_exist"] == "error"


def test_a_deletion_reads_the_plan_and_changes_the_store():
    release = Release(
        policy="approval",
        decided_by="kim",
        decided_why="",
        decided_at_ms=1,
        recheck_id="x",
        bounds_ms=1,
        connection="deleting",
    )
    audit = Audit(
        library_version="1.0",
        store="claims",
        uri="file:///var/claims",
        plan_hash="p",
        execution_id="e",
        reconciliation_id="r1",
        made_at_ms=1,
        due_at_ms=2,
        status="executed",
        stopped="",
        releases=(release,),
        untold=0,
        started_at_ms=3,
        finished_at_ms=4,
        counts={"deleted": 5},
        bytes={"deleted": 50},
        undoable=0,
        trouble=(),
        files=(),
    )
    lineage = deleted(audit, artifacts_uri=ROOT, audit_uri=f"{ROOT}/deletions/p/e/audit.json")
    assert lineage.inputs == (Dataset(namespace="s3://lake", name="stores/claims/plans", version="p"),)
    assert lineage.outputs == (Dataset(namespace="file", name="/var/claims"),)
    assert (lineage.run.counts, lineage.run.audit) == ({"deleted": 5}, f"{ROOT}/deletions/p/e/audit.json")
