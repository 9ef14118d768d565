"""The files of a plan and of its results: read only as they were written."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError
from ticdc_replay.reconcile.delete.audit import audit_of
from ticdc_replay.reconcile.delete.deletion_plan import PLANNED, DeletionPlan, read_plan, read_planned, write_plan
from ticdc_replay.reconcile.delete.results import Outcome, deletion_folder, result_of, write_results
from ticdc_replay.storage import ObjectStore, open_store


@pytest.fixture
def artifacts(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri(), None)


def row(name: str) -> dict[str, object]:
    known = {"name": name, "size": 7, "etag": "e", "last_modified_ms": 5, "class": "orphaned", "reason": "left over"}
    return {**dict.fromkeys(PLANNED.names), **known}


def name(number: int) -> str:
    return f"{uuid.UUID(int=number)}.json"


def planned(artifacts: ObjectStore, *names: str) -> DeletionPlan:
    objects = pa.Table.from_pylist([row(each) for each in names], PLANNED)
    return write_plan(
        artifacts,
        objects,
        store="claims",
        uri="s3://claims",
        reconciliation_id="r",
        bounds_ms=1,
        made_at_ms=2,
        due_at_ms=3,
    )


def test_a_plan_is_read_as_it_was_written_in_order_of_names(artifacts):
    plan = planned(artifacts, name(3), name(1), name(2))
    assert read_plan(artifacts, plan.hash) == plan
    assert read_planned(artifacts, plan, 0)["name"].to_pylist() == [name(1), name(2), name(3)]
    assert (plan.objects, plan.bytes) == (3, 21)
    assert planned(artifacts, name(2), name(3), name(1)) == plan


def test_a_plan_that_is_not_there(artifacts):
    with pytest.raises(ArtifactNotFoundError):
        read_plan(artifacts, "0" * 64)


@pytest.mark.parametrize("hostile", ["../other", "notes.txt", name(0xAB).upper(), f"x/{name(1)}", ""])
def test_a_name_that_ticdc_does_not_give_is_not_read_from_a_plan_whoever_made_it(artifacts, hostile):
    plan = planned(artifacts, name(1), hostile)
    with pytest.raises(ArtifactCorruptError, match="does not hold 2 claim-check objects"):
        read_planned(artifacts, plan, 0)


@pytest.mark.parametrize("results", [[name(1)], [name(1), name(2), name(3)], [name(1), name(3)]])
def test_an_audit_has_a_result_for_each_planned_object_and_for_no_other(artifacts, results):
    plan = planned(artifacts, name(1), name(2))
    rows = [result_of(row(each), "needed", tried_before=False, at_ms=9) for each in results]
    write_results(artifacts, f"{deletion_folder(plan.hash)}/recheck", 0, rows)
    with pytest.raises(ArtifactCorruptError, match="have no result"):
        audit_of(artifacts, plan, "recheck", started_at_ms=1, finished_at_ms=2)


def test_of_two_results_for_one_object_the_deletion_counts(artifacts):
    plan = planned(artifacts, name(1))
    for at_ms, outcome in ((1, Outcome.GONE), (2, Outcome.DELETED), (3, Outcome.GONE)):
        result = result_of(row(name(1)), "", tried_before=False, at_ms=at_ms)._replace(outcome=outcome)
        write_results(artifacts, f"{deletion_folder(plan.hash)}/{at_ms}", 0, [result])
    assert audit_of(artifacts, plan, "recheck", started_at_ms=1, finished_at_ms=2).counts == {"deleted": 1}
