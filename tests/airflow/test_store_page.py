"""The page of a store, in Airflow's own API server and behind its own log-in."""

import msgspec
import pytest

from ticdc_replay.airflow.pages.charts import WIDTH, stacked_columns
from ticdc_replay.domain import canonical
from ticdc_replay.reconcile.delete.undo import Undone, put_undone
from ticdc_replay.reconcile.judge.report import Alert, ReconciliationReport, report_name
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, ReferenceClass
from ticdc_replay.reconcile.judge.summary import ObjectsOfDay, ObjectsOfTable, ReferencesOfTable, Summary
from ticdc_replay.state import open_state
from ticdc_replay.state.deletion_plans import DeletionExecution, DeletionPlanRecord
from ticdc_replay.state.reconciliations import Reconciliation
from ticdc_replay.storage import open_store

pytestmark = pytest.mark.airflow

PAGE = "/ticdc-replay/store/ticdc_replay_store_claims"
MARCH = 1_772_323_200_000  # 2026-03-01T00:00:00Z
DAY = 86_400_000
SUMMARY = Summary(
    by_day=(
        ObjectsOfDay(ObjectClass.REFERENCED, "2026-03-01", 900, 3 << 30, 0, 0),
        ObjectsOfDay(ObjectClass.ORPHANED, "2026-02-27", 1_234, 1 << 30, 1_200, 1 << 29),
        ObjectsOfDay(ObjectClass.ORPHANED, "2026-03-01", 6, 2048, 0, 0),
    ),
    objects_by_table=(
        ObjectsOfTable(ObjectClass.REFERENCED, "shop", "<b>orders", 900, 3 << 30),
        ObjectsOfTable(ObjectClass.ORPHANED, "", "", 1_240, 1 << 30),
    ),
    references_by_table=(
        ReferencesOfTable(ReferenceClass.PRESENT, "shop", "<b>orders", 900, 900),
        ReferencesOfTable(ReferenceClass.MISSING, "shop", "<b>orders", 2, 1),
    ),
)
LOST = Alert(
    kind="missing",
    text="shop-changes[2]@41: object x does not exist: the row of shop.<b>orders",
    still_from=("object y, which holds the same version of the row",),
)


@pytest.fixture
def store(tmp_path, stores):
    """The store ``claims``, whose artefacts and state are in a folder; what a test writes down of it."""
    stores.add("claims", {"artifacts": (tmp_path / "artifacts").as_uri()})
    stores.add("broken", "name: [")
    (tmp_path / "artifacts").mkdir()
    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")
    artifacts = open_store((tmp_path / "artifacts" / "claims").as_uri(), None)

    class Store:
        def reconciled(self, name, at_ms, *, alerts=(), notes=(), unread=0, orphans=0):
            evidence = Evidence(
                bounds_ms=at_ms,
                listed_ms=at_ms - 60_000,
                partitions=(),
                young_ms=DAY,
                skew_ms=0,
                grace_ms=DAY,
                owners_complete=True,
                unread_offsets=unread,
            )
            report = ReconciliationReport(
                library_version="0",
                store="claims",
                uri="file:///dev/null/claims",
                reconciliation_id=name,
                finished_at_ms=at_ms,
                evidence=evidence,
                summary=SUMMARY,
                object_files=(),
                reference_files=(),
                alerts=tuple(alerts),
                notes=tuple(notes),
                previous=None,
            )
            artifacts.put_once(report_name(name), canonical.encode(report))
            totals = report.totals() | {"objects.orphaned": orphans}
            state.reconciliations.record(
                Reconciliation(
                    store="claims",
                    reconciliation_id=name,
                    began_at_ms=at_ms,
                    finished_at_ms=at_ms,
                    report=report_name(name),
                    totals=totals,
                )
            )

        def planned(self, plan_hash, **more):
            record = DeletionPlanRecord(
                store="claims",
                plan_hash=plan_hash,
                name="p",
                made_at_ms=MARCH,
                due_at_ms=MARCH + DAY,
                objects=1_200,
                bytes=1 << 29,
            )
            state.deletion_plans.record(msgspec.structs.replace(record, **more))

        def executed(self, plan_hash, **counts):
            state.deletion_plans.record_execution(
                DeletionExecution(
                    store="claims",
                    plan_hash=plan_hash,
                    execution_id="e",
                    started_at_ms=MARCH + 2 * DAY,
                    finished_at_ms=MARCH + 2 * DAY,
                    counts=counts,
                )
            )

    yield Store()
    state.close()


def test_the_page_shows_counts_and_bytes_of_each_class_and_table(signed_in, store):
    store.reconciled("r1", MARCH)
    page = signed_in.get(PAGE)
    assert page.status_code == 200
    assert 'orphaned</td><td class="n">1,240</td><td class="n">1.0 GiB</td>' in page.text
    assert 'may be deleted</td><td class="n">1,200</td><td class="n">512.0 MiB</td>' in page.text
    assert 'missing</td><td class="n">2</td>' in page.text
    assert 'rows that a replay lacks</td><td class="n">1</td>' in page.text
    assert 'shop.&lt;b&gt;orders</td><td class="n">3.0 GiB</td><td class="n">900</td>' in page.text
    assert "no reference is known" in page.text
    assert "No alert" in page.text
    assert page.text.count("its message may be still to come") == 1
    assert page.text.count("the message is newer than the inventory") == 1


def test_bytes_are_drawn_by_day_from_the_bottom_up(signed_in, store):
    store.reconciled("r1", MARCH)
    page = signed_in.get(PAGE).text
    assert (
        '<rect class="orphaned" x="0.0" y="80.0" width="473.7" height="40.0"><title>2026-02-27: orphaned 1.0 GiB'
        in page
    )
    assert '<rect class="referenced" x="526.3" y="0.0" width="473.7" height="120.0"><title>2026-03-01: ' in page


def test_the_trend_is_drawn_from_the_first_reconciliation_to_the_newest(signed_in, store):
    for number, orphans in enumerate((0, 100, 300)):
        store.reconciled(f"r{number}", MARCH + number * DAY, orphans=orphans)
    page = signed_in.get(PAGE).text
    assert "Trend over 3 reconciliations" in page
    assert "Objects: now 1200, at most 1200" in page
    assert '<polygon class="orphaned" points="0.0,30.0 500.0,20.0 1000.0,0.0 1000.0,30.0 500.0,30.0 0.0,30.0">' in page


def test_alerts_come_first_and_say_where_the_row_can_still_be_had(signed_in, store):
    store.reconciled("r1", MARCH, alerts=[LOST])
    page = signed_in.get(PAGE).text
    assert "1 alert</b>" in page
    assert "shop-changes[2]@41: object x does not exist: the row of shop.&lt;b&gt;orders" in page
    assert "object y, which holds the same version of the row" in page
    assert "No alert" not in page


def test_why_nothing_may_be_deleted_and_what_is_not_known_is_told(signed_in, store):
    store.reconciled("r1", MARCH, notes=["not known of the store: versioning"], unread=7)
    page = signed_in.get(PAGE).text
    assert "Nothing may be deleted now" in page
    assert "7 offsets" in page
    assert "not known of the store: versioning" in page


def test_plans_show_who_decided_and_what_was_done(signed_in, store):
    store.reconciled("r1", MARCH)
    store.planned("a" * 64)
    store.planned(
        "b" * 64, status="executed", decided_by="Kim", decided_why="looked <at> it", decided_at_ms=MARCH + DAY
    )
    store.executed("b" * 64, deleted=1_190, withheld=10)
    page = signed_in.get(PAGE).text
    assert "aaaaaaaaaaaa" in page
    assert "by Kim, 2026-03-02 00:00: looked &lt;at&gt; it" in page
    assert "2026-03-03 00:00: 1,190 deleted, 10 withheld" in page


def test_a_plan_shows_what_was_undone_of_it(signed_in, store, tmp_path):
    store.reconciled("r1", MARCH)
    store.planned("b" * 64, status="executed")
    store.executed("b" * 64, deleted=1_190)
    undone = Undone(
        store="claims",
        uri="file:///dev/null/claims",
        plan_hash="b" * 64,
        person="Ada",
        why="needed <them>",
        at_ms=MARCH + 3 * DAY,
        names=None,
        restored=1_100,
        without_marker=0,
        not_undoable=90,
        failed=0,
        failures=(),
    )
    put_undone(open_store((tmp_path / "artifacts" / "claims").as_uri(), None), undone)
    page = signed_in.get(PAGE).text
    assert '2026-03-04 00:00: 1,100 brought back <span class="dim">by Ada: needed &lt;them&gt;</span>' in page


def test_the_only_day_of_a_chart_takes_all_of_its_width():
    (block,) = stacked_columns([{"orphaned": 3}])
    assert (block.x, block.width) == (0, WIDTH)
    *_, last = stacked_columns([{"orphaned": 3}] * 7)
    assert last.x + last.width == pytest.approx(WIDTH)


def test_a_store_that_was_not_reconciled_yet_says_so(signed_in, store):
    assert "The store has not been reconciled yet" in signed_in.get(PAGE).text


def test_the_deletion_s_dag_has_the_same_page_and_other_dags_have_none(signed_in, store):
    store.reconciled("r1", MARCH)
    assert signed_in.get(f"{PAGE}_deletion").text == signed_in.get(PAGE).text
    assert signed_in.get("/ticdc-replay/store/ticdc_replay_shop").status_code == 404


def test_a_file_that_is_broken_later_leaves_its_page_as_it_was(signed_in, store, stores):
    store.reconciled("r1", MARCH)
    before = signed_in.get(PAGE)
    assert before.status_code == 200
    stores.add("claims", "name: claims\nname: [")
    assert signed_in.get(PAGE).text == before.text


def test_artefacts_that_cannot_be_read_are_told_as_such(signed_in, store, tmp_path):
    store.reconciled("r1", MARCH)
    (tmp_path / "artifacts" / "claims" / report_name("r1")).unlink()
    answer = signed_in.get(PAGE)
    assert answer.status_code == 503
    assert "report.json" in answer.text


def test_nobody_sees_it_without_signing_in(client, store):
    assert client.get(PAGE).status_code == 401
