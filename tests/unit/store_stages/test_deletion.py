"""Plans to delete: made, decided about, executed. Whatever goes wrong in between, nothing that is needed is deleted."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deletions import DAY_MS, GRACE_DAYS, HIGH, LOW, Scene, changed, name, with_clock
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ConfigError,
    LeaseHeldError,
    LeaseLostError,
    PolicyStopError,
    TicdcReplayError,
)
from ticdc_replay.reconcile.delete.audit import stopped_of
from ticdc_replay.reconcile.delete.deletion_plan import plan_name, read_plan
from ticdc_replay.reconcile.delete.release import RECHECK_MAX_AGE_MS
from ticdc_replay.stages.leases import holding_store
from ticdc_replay.state import tables
from ticdc_replay.storage.file_deletion import FileDeletion
from ticdc_replay.store_stages import deletion, deletion_guards
from ticdc_replay.store_stages.deletion import choose_plan, decide, describe_plan, execute, make_plan, undo


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from with_clock(Scene(tmp_path, (tmp_path / "objects").as_uri()), monkeypatch)


def refused(scene: Scene, plan_hash: str, error: type[TicdcReplayError] = PolicyStopError, **recheck: object) -> str:
    """Execute the plan, which must fail before anything is deleted; the message."""
    before = scene.names()
    with pytest.raises(error) as raised:
        scene.execute(plan_hash, **recheck)  # type: ignore[arg-type]
    assert scene.names() == before
    return str(raised.value)


# --- planning


def test_what_no_message_needs_is_planned_and_deleted_and_all_else_stays(scene):
    orphan, expired, needed = scene.put(1, 2, 3)
    scene.store.put("notes.txt", b"foreign")
    references = {expired: LOW - 1, needed: LOW}
    record = scene.plan(references)
    audit = scene.execute(record.plan_hash, references)
    assert scene.names() == {needed, "notes.txt"}
    assert audit.counts == {"deleted": 2}
    assert {result.name for result in scene.results(record.plan_hash).values()} == {orphan, expired}


def test_nothing_is_planned_where_the_policy_is_never(scene):
    scene.put(1)
    scene.write(policy="never")
    assert make_plan(scene.context, scene.reconcile({})) is None
    assert scene.context.state.deletion_plans.all("claims") == []


def test_nothing_is_planned_where_nothing_may_go(scene):
    assert make_plan(scene.context, scene.reconcile({scene.put(1)[0]: LOW})) is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"unread_offsets": 3}, "3 offsets"),
        ({"owners_complete": False}, "owners_complete"),
        ({"clock_ahead_ms": -120_000}, "clock"),
    ],
)
def test_nothing_is_planned_where_the_evidence_has_a_gap(scene, found, told):
    scene.put(1)
    with pytest.raises(PolicyStopError, match=told):
        make_plan(scene.context, scene.reconcile({}, **found))


def test_nothing_is_planned_of_another_stores_reconciliation_or_of_a_recheck(scene):
    scene.put(1)
    record = scene.plan()
    with pytest.raises(TicdcReplayError):
        make_plan(scene.context, scene.recheck(record.plan_hash))


def test_nothing_is_planned_when_owners_are_not_complete_any_more(scene):
    scene.put(1)
    reconciliation = scene.reconcile({})
    context = scene.context
    context.loaded = context.loaded._replace(unlisted=("other.yaml writes there, too",))
    with pytest.raises(PolicyStopError, match="owners_complete"):
        make_plan(context, reconciliation)


def test_a_repeat_makes_the_same_plan(scene):
    scene.put(1, 2, 3)
    reconciliation = scene.reconcile({})
    first = make_plan(scene.context, reconciliation)
    scene.clock.pass_days(1)
    assert make_plan(scene.context, reconciliation) == first
    assert scene.context.state.deletion_plans.all("claims") == [first]


def test_a_reconciliation_whose_plan_was_rejected_is_not_planned_once_more(scene):
    scene.put(1, 2, 3)
    reconciliation = scene.reconcile({})
    rejected = decide(scene.context, make_plan(scene.context, reconciliation).plan_hash, False, "Ada", "wrong owners")
    scene.clock.pass_days(GRACE_DAYS + 2)
    scene.write(deletion={"policy": "automatic", "grace_hours": GRACE_DAYS * 24, "max_objects_per_run": 2})
    assert make_plan(scene.context, reconciliation) == rejected
    assert choose_plan(scene.context) is None


def test_the_grace_period_begins_with_the_plan_though_an_attempt_to_make_it_failed_before(scene, monkeypatch):
    scene.put(1)
    reconciliation = scene.reconcile({})
    with monkeypatch.context() as broken:
        broken.setattr(deletion.plans, "write_plan", lambda *_args, **_rest: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            make_plan(scene.context, reconciliation)
    scene.clock.pass_days(0.9)
    record = make_plan(scene.context, reconciliation)
    assert scene.clock() - record.made_at_ms < DAY_MS / 10
    assert record.due_at_ms - record.made_at_ms == GRACE_DAYS * DAY_MS


def test_an_old_reconciliation_is_not_planned(scene):
    scene.put(1)
    reconciliation = scene.reconcile({})
    scene.clock.pass_days(1.1)
    with pytest.raises(PolicyStopError, match="24 hours ago: reconcile again"):
        make_plan(scene.context, reconciliation)


def test_a_reconciliation_whose_inventory_lacked_objects_is_not_planned(scene):
    scene.put(1)
    made = scene.reconcile({}, totals={"unlisted": 1})
    with pytest.raises(PolicyStopError, match="lacks objects that exist and are older than it"):
        make_plan(scene.context, made)


def test_only_the_newest_reconciliation_is_planned(scene):
    scene.put(1)
    old = scene.reconcile({})
    scene.clock.pass_days(0.1)
    newest = scene.reconcile({})
    with pytest.raises(PolicyStopError, match=f"{newest} is newer"):
        make_plan(scene.context, old)
    assert make_plan(scene.context, newest).objects == 1


def test_the_oldest_are_planned_where_the_plan_has_room_for_some(scene, tmp_path):
    import os

    for number, age in ((1, 50), (2, 70), (3, 60)):
        (found,) = scene.put(number)
        when = scene.clock() / 1000 - age * DAY_MS / 1000
        os.utime(tmp_path / "objects" / found, (when, when))
    limits = {"policy": "approval", "grace_hours": GRACE_DAYS * 24, "max_objects_per_run": 2}
    scene.write(deletion=limits)
    record = make_plan(scene.context, scene.reconcile({}))
    assert {each.name for each in describe_plan(scene.context, record.plan_hash, 10).first} == {name(2), name(3)}


def test_what_waits_on_another_plan_is_not_planned_again_unless_that_was_rejected(scene):
    scene.put(1, 2)
    first = make_plan(scene.context, scene.reconcile({}))
    assert make_plan(scene.context, scene.reconcile({})) is None
    decide(scene.context, first.plan_hash, False, "Ada", "not yet")
    again = make_plan(scene.context, scene.reconcile({}))
    assert again.objects == 2
    assert again.plan_hash != first.plan_hash


def test_what_was_deleted_since_the_inventory_began_leaves_room_for_others(scene, monkeypatch):
    monkeypatch.setattr("ticdc_replay.reconcile.delete.execution._now_ms", scene.clock)
    scene.put(1, 2)
    plan = scene.plan().plan_hash
    scene.execute(plan)
    scene.put(1, 2, 3)  # an inventory from before the deletion still has them
    listed_ms = scene.clock() - DAY_MS // 2
    record = make_plan(scene.context, scene.reconcile({}, listed_ms=listed_ms))
    assert [each.name for each in describe_plan(scene.context, record.plan_hash, 10).first] == [name(3)]
    decide(scene.context, record.plan_hash, False, "Ada", "again")
    scene.clock.pass_days(0.1)
    record = make_plan(scene.context, scene.reconcile({}))
    assert record.objects == 3, "what is listed after the deletion was written again"


def test_the_last_copy_of_a_row_is_not_planned(scene):
    copy, other = scene.put(1, 2)
    record = make_plan(scene.context, scene.reconcile({}, copies=[copy]))
    assert [each.name for each in describe_plan(scene.context, record.plan_hash, 10).first] == [other]


def test_an_object_that_became_the_last_copy_of_a_row_since_the_plan_stays(scene):
    copy, _other = scene.put(1, 2)
    record = scene.plan()
    scene.reconcile({}, copies=[copy])
    audit = scene.execute(record.plan_hash)
    assert audit.counts == {"deleted": 1, "withheld": 1}
    assert scene.names() == {copy}


def test_a_newest_reconciliation_whose_files_were_removed_stops_it_and_says_what_to_do(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    newest = scene.reconcile({})
    scene.artifacts.delete(f"reconciliations/{newest}/classified.json")
    assert "Reconcile again" in refused(scene, plan)
    scene.reconcile({})
    assert scene.execute(plan).counts == {"deleted": 1}


def test_the_audit_of_an_execution_that_ended_is_given_though_its_recheck_was_removed(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    audit = execute(scene.context, plan, recheck)
    for left in list(scene.artifacts.list("rechecks/")):
        scene.artifacts.delete(left.name)
    assert execute(scene.context, plan, recheck) == audit


@pytest.mark.parametrize(
    "lie",
    [
        {"deletable": True},
        {"deletable": True, "class": "orphaned"},
        {"deletable": True, "class": "expired", "protecting": 0},
        {"deletable": True, "class": "orphaned", "protecting": 0, "name": "../../etc/passwd"},
    ],
)
def test_a_reconciliation_whose_files_contradict_themselves_gives_no_plan(scene, lie):
    needed = scene.put(1)[0]
    reconciliation = scene.reconcile({needed: LOW})
    young = {"last_modified_ms": scene.clock()} if lie.get("protecting") == 0 and "name" not in lie else {}
    changed(scene.artifacts, f"reconciliations/{reconciliation}/objects/0.parquet", **lie, **young)
    with pytest.raises(ArtifactCorruptError, match="its own rules"):
        make_plan(scene.context, reconciliation)


def test_an_object_that_an_inventory_has_twice_gives_no_plan(scene):
    scene.put(1, 2)
    reconciliation = scene.reconcile({})
    changed(scene.artifacts, f"reconciliations/{reconciliation}/objects/0.parquet", name=name(2))
    with pytest.raises(ArtifactCorruptError, match="twice"):
        make_plan(scene.context, reconciliation)


# --- deciding


def test_a_plan_is_described_with_its_reasons_and_what_is_still_against_it(scene):
    expired, orphan = scene.put(1, 2)
    record = make_plan(scene.context, scene.reconcile({expired: LOW - 1}))
    description = describe_plan(scene.context, record.plan_hash, 1)
    assert {(group.kind, group.objects) for group in description.groups} == {("expired", 1), ("orphaned", 1)}
    assert [(each.name, each.table) for each in description.first] == [(expired, "s.t")]
    assert len(description.objections) == 2
    assert orphan not in str(description)


def test_only_a_plan_that_is_due_is_chosen_the_oldest_first(scene):
    scene.put(1)
    first = make_plan(scene.context, scene.reconcile({}))
    scene.clock.pass_days(1)
    scene.put(2)
    make_plan(scene.context, scene.reconcile({}))
    assert choose_plan(scene.context) is None
    with pytest.raises(PolicyStopError, match="grace period"):
        choose_plan(scene.context, first.plan_hash)
    scene.clock.pass_days(GRACE_DAYS + 1)
    assert choose_plan(scene.context) == first
    assert choose_plan(scene.context, first.plan_hash) == first
    decide(scene.context, first.plan_hash, False, "Ada", "no")
    assert choose_plan(scene.context).plan_hash != first.plan_hash


def test_who_decides_gives_a_name_and_the_last_word_is_a_rejection(scene):
    scene.put(1)
    plan = scene.plan(approve=False).plan_hash
    with pytest.raises(ConfigError, match="name"):
        decide(scene.context, plan, True, " ", "because")
    for approve in (True, False):
        with pytest.raises(ConfigError, match="for a reason"):
            decide(scene.context, plan, approve, "Ada", " ")
    approved = decide(scene.context, plan, True, "Ada", "because")
    assert (approved.status, approved.decided_by, approved.decided_why) == ("approved", "Ada", "because")
    assert decide(scene.context, plan, False, "Bob", "wait").status == "rejected"
    with pytest.raises(PolicyStopError, match="rejected before"):
        decide(scene.context, plan, True, "Ada", "again")
    assert "it was rejected" in refused(scene, plan)


def forget_decisions(scene):
    """Have the state store be as it was when the plans were made."""
    with scene.context.state._database.writing() as connection:
        connection.execute(tables.deletion_plan.update().values(status="open", decided_by="", decided_why=""))


@pytest.mark.parametrize("policy", ["approval", "automatic"])
def test_a_rejection_stays_though_a_backup_of_the_state_store_was_restored(scene, policy):
    scene.put(1)
    scene.write(policy=policy)
    plan = scene.plan(approve=False).plan_hash
    decide(scene.context, plan, False, "Ada", "wrong owners")
    for ask in (
        lambda: choose_plan(scene.context, plan),
        lambda: scene.execute(plan),
        lambda: decide(scene.context, plan, True, "Bob", "fine"),
    ):
        forget_decisions(scene)
        with pytest.raises(PolicyStopError, match="rejected"):
            ask()
        record = scene.context.state.deletion_plans.get("claims", plan)
        assert (record.status, record.decided_by, record.decided_why) == ("rejected", "Ada", "wrong owners")
    forget_decisions(scene)
    assert choose_plan(scene.context) is None
    assert scene.names() == {name(1)}


def test_an_approval_that_the_state_store_has_forgotten_is_given_again(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    forget_decisions(scene)
    assert "nobody has approved" in refused(scene, plan)


def test_a_plan_that_was_changed_cannot_be_approved(scene):
    scene.put(1)
    record = make_plan(scene.context, scene.reconcile({}))
    changed(scene.artifacts, read_plan(scene.artifacts, record.plan_hash).file_names()[0], etag="x")
    with pytest.raises(ArtifactCorruptError, match="was changed"):
        decide(scene.context, record.plan_hash, True, "Ada", "seen")


# --- executing: what forbids it


def test_nobody_has_approved_it(scene):
    scene.put(1)
    assert "nobody has approved" in refused(scene, scene.plan(approve=False).plan_hash)


def test_an_automatic_policy_needs_nobody(scene):
    scene.put(1)
    scene.write(policy="automatic")
    assert scene.execute(scene.plan(approve=False).plan_hash).counts == {"deleted": 1}


def test_a_plan_from_before_the_policy_was_automatic_still_needs_somebody(scene):
    scene.put(1)
    plan = scene.plan(approve=False).plan_hash
    scene.write(policy="automatic")
    assert choose_plan(scene.context) is None
    with pytest.raises(PolicyStopError, match="another policy than automatic"):
        choose_plan(scene.context, plan)
    assert "another policy than automatic" in refused(scene, plan)
    decide(scene.context, plan, True, "Ada", "looked at it")
    assert choose_plan(scene.context).plan_hash == plan
    assert scene.execute(plan).counts == {"deleted": 1}


def test_the_grace_period_is_not_over_by_somebodys_clock(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.clock.pass_days(-1)
    assert "grace period lasts" in refused(scene, plan)
    scene.clock.ahead_ms += 30_000  # over by this clock, but clocks may differ by a minute
    assert "grace period lasts" in refused(scene, plan)


def test_a_longer_grace_period_holds_for_older_plans_too(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.write(deletion={"policy": "approval", "grace_hours": 1000})
    assert "grace period lasts" in refused(scene, plan, grace_ms=1000 * 3_600_000)


def test_the_policy_went_back_to_never_after_the_approval(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.write(policy="never")
    assert "policy of the store is never" in refused(scene, plan)


def test_owners_complete_was_withdrawn(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.write(policy="never", owners_complete=False)
    assert "owners_complete" in refused(scene, plan)


def test_another_pipeline_that_writes_to_the_store_appeared(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck, context = scene.recheck(plan), scene.context
    scene.write_pipeline("other")
    with pytest.raises(PolicyStopError, match=r"other\.yaml writes to"):
        execute(context, plan, recheck)
    with pytest.raises(ConfigError, match=r"other\.yaml writes to"):
        _ = scene.context
    scene.write(pipelines=["shop", "other"])
    with pytest.raises(PolicyStopError, match="other pipelines than the store has now"):
        execute(scene.context, plan, recheck)
    assert scene.names() == {name(1)}


def test_a_pipeline_file_that_cannot_be_read_stops_it(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck, context = scene.recheck(plan), scene.context
    (scene.pipelines / "broken.yaml").write_text("name: [")
    with pytest.raises(PolicyStopError, match="can't be loaded"):
        execute(context, plan, recheck)
    assert scene.names() == {name(1)}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"owners_complete": False}, "owners_complete"),
        ({"unread_offsets": 1}, "1 offsets"),
        ({"clock_ahead_ms": 100_000}, "clock"),
        ({"young_ms": 1}, "stricter now"),
        ({"grace_ms": 1}, "stricter now"),
        ({"skew_ms": 1}, "stricter now"),
        ({"pipelines": ("shop", "other")}, "other pipelines"),
        ({"pipelines": ()}, "other pipelines"),
    ],
)
def test_a_recheck_with_a_gap_allows_nothing(scene, found, told):
    scene.put(1)
    assert told in refused(scene, scene.plan().plan_hash, **found)


@pytest.mark.parametrize(
    ("later_ms", "told"),
    [
        (-2 * DAY_MS, "before the grace period"),
        (-RECHECK_MAX_AGE_MS - 1000, "hours old"),
        (120_000, "still to come"),
    ],
)
def test_a_recheck_of_another_time_allows_nothing(scene, later_ms, told):
    scene.put(1)
    assert told in refused(scene, scene.plan().plan_hash, bounds_ms=scene.clock() + later_ms)


def test_a_recheck_of_another_plan_allows_nothing(scene):
    scene.put(1)
    first = scene.plan().plan_hash
    scene.put(2)
    second = scene.plan().plan_hash
    with pytest.raises(PolicyStopError, match="recheck is of plan"):
        execute(scene.context, first, scene.recheck(second))
    assert scene.names() == {name(1), name(2)}


def test_a_plan_of_another_store_is_not_executed_here(scene, tmp_path):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    scene.uri = (tmp_path / "elsewhere").as_uri()
    scene.put(1)
    scene.write_pipeline("shop")
    scene.write()
    with pytest.raises(PolicyStopError, match="the plan is of store claims at"):
        execute(scene.context, plan, recheck)
    assert scene.names() == {name(1)}


def test_a_recheck_that_does_not_speak_of_all_objects_allows_nothing(scene):
    scene.put(1, 2)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    changed(scene.artifacts, f"rechecks/{recheck}/objects/0.parquet", name=name(2))
    with pytest.raises(ArtifactCorruptError, match="the plan has 2"):
        execute(scene.context, plan, recheck)
    assert len(scene.names()) == 2


@pytest.mark.parametrize(
    "lie", [{"etag": "other"}, {"size": 5}, {"last_modified_ms": 5}, {"name": name(77)}, {"version_id": "v"}]
)
def test_a_recheck_of_other_objects_allows_nothing(scene, lie):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    changed(scene.artifacts, f"rechecks/{recheck}/objects/0.parquet", **lie)
    with pytest.raises(ArtifactCorruptError, match="as it was planned"):
        execute(scene.context, plan, recheck)
    assert scene.names() == {name(1)}


@pytest.mark.parametrize(
    "lie", [{"deletable": True}, {"deletable": True, "class": "orphaned"}, {"deletable": True, "protecting": 0}]
)
def test_a_recheck_that_contradicts_itself_deletes_nothing(scene, lie):
    (needed,) = scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan, {needed: LOW})
    changed(scene.artifacts, f"rechecks/{recheck}/objects/0.parquet", **lie)
    assert execute(scene.context, plan, recheck).counts == {"withheld": 1}
    assert scene.names() == {needed}


def test_evidence_that_was_changed_allows_nothing(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan, unread_offsets=7)
    (name_,) = [
        found.name
        for found in scene.artifacts.list("evidence/")
        if b'"unread_offsets":7' in scene.artifacts.get(found.name)
    ]
    scene.artifacts.put(name_, scene.artifacts.get(name_).replace(b'"unread_offsets":7', b'"unread_offsets":0'))
    with pytest.raises(ArtifactCorruptError, match="was changed since"):
        execute(scene.context, plan, recheck)
    assert scene.names() == {name(1)}


# --- executing: a plan that was tampered with


def test_another_object_in_a_file_of_the_plan(scene):
    needed, orphan = scene.put(1, 2)
    plan = scene.plan({needed: LOW}).plan_hash
    changed(scene.artifacts, read_plan(scene.artifacts, plan).file_names()[0], name=needed)
    assert "was changed" in refused(scene, plan, ArtifactCorruptError)
    assert scene.names() == {needed, orphan}


def test_a_change_in_the_last_file_stops_before_the_first_object(scene):
    scene.put(1, 2, 3, 4, 5)
    plan = scene.plan().plan_hash
    last = read_plan(scene.artifacts, plan).file_names()[-1]
    recheck = scene.recheck(plan)
    changed(scene.artifacts, last, etag="other")
    with pytest.raises(ArtifactCorruptError, match="was changed"):
        execute(scene.context, plan, recheck)
    assert len(scene.names()) == 5


def test_another_digest_or_date_in_the_plan_itself(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    file = plan_name(plan)
    content = scene.artifacts.get(file)
    recheck = scene.recheck(plan)
    digest = read_plan(scene.artifacts, plan).files[0].sha256.encode()
    for old, new in ((digest, b"0" * 64), (b'"made_at_ms":1', b'"made_at_ms":0'), (b'"claims"', b'"other"')):
        assert old in content
        scene.artifacts.put(file, content.replace(old, new))
        with pytest.raises(ArtifactCorruptError, match="was changed"):
            execute(scene.context, plan, recheck)
    assert scene.names() == {name(1)}


def test_a_plan_that_nobody_made(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.context.state._database  # noqa: B018 (opened)
    forged = uuid.uuid4().hex * 2
    scene.artifacts.put(plan_name(forged), scene.artifacts.get(plan_name(plan)))
    with pytest.raises(ArtifactCorruptError):
        execute(scene.context, forged, scene.recheck(plan))
    assert scene.names() == {name(1)}


# --- executing: what changed since the plan


def test_an_object_that_is_referenced_again_stays(scene):
    again, orphan = scene.put(1, 2)
    plan = scene.plan().plan_hash
    audit = scene.execute(plan, {again: HIGH - 1})
    assert scene.names() == {again}
    assert audit.counts == {"deleted": 1, "withheld": 1}
    assert scene.results(plan)[again].detail.startswith("referenced: ")
    assert scene.results(plan)[orphan].outcome == "deleted"


def test_an_object_whose_expired_message_may_be_read_again_stays(scene):
    from tests.support.deletions import expired

    (found,) = scene.put(1)
    plan = scene.plan({found: LOW - 5}).plan_hash
    audit = scene.execute(plan, {found: LOW - 5}, replayable=(expired(LOW - 10, LOW),))
    assert audit.counts == {"withheld": 1}
    assert scene.names() == {found}


def test_an_object_that_was_overwritten_stays(scene):
    written, other = scene.put(1, 2)
    plan = scene.plan().plan_hash
    scene.store.put(written, b"another object of the same name")
    audit = scene.execute(plan)
    assert scene.names() == {written}
    assert audit.counts == {"deleted": 1, "altered": 1}
    assert [each.name for each in audit.trouble] == [written]
    assert other not in scene.names()


def test_an_object_that_others_deleted_is_gone(scene):
    gone, _other = scene.put(1, 2)
    plan = scene.plan().plan_hash
    scene.store.delete(gone)
    audit = scene.execute(plan)
    assert audit.counts == {"deleted": 1, "gone": 1}
    assert not scene.results(plan)[gone].undoable


# --- executing: what happens meanwhile


@pytest.fixture
def meanwhile(monkeypatch):
    """Has something happen before the n-th file of the plan, when the execution asks whether it may go on."""

    def at(file, happens):
        asked = []
        right = deletion.require_release

        def ask(*arguments):
            asked.append(arguments)
            if len(asked) == file + 1:  # the first question comes before all files
                happens()
            right(*arguments)

        monkeypatch.setattr(deletion, "require_release", ask)

    return at


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda scene, _plan: scene.write(policy="never"), "policy of the store is never"),
        (lambda scene, _plan: scene.write(policy="never", owners_complete=False), "owners_complete"),
        (lambda scene, _plan: scene.write_pipeline("other"), "is not listed"),
        (lambda scene, plan: decide(scene.context, plan, False, "Bob", "stop!"), "it was rejected"),
        (lambda scene, _plan: scene.clock.pass_days(1), "hours old"),
    ],
)
def test_what_forbids_it_in_the_middle_stops_it_there(scene, meanwhile, change, told):
    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash
    meanwhile(2, lambda: change(scene, plan))
    with pytest.raises(PolicyStopError, match=told):
        scene.execute(plan)
    results = scene.results(plan)
    assert {found for found, result in results.items() if result.outcome == "deleted"} == {name(1), name(2)}
    assert scene.names() == {name(number) for number in range(3, 7)}


def test_an_execution_that_was_stopped_tells_what_it_did_and_the_audit_names_every_release(scene, meanwhile):
    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash
    meanwhile(2, lambda: scene.write(policy="never"))
    with pytest.raises(PolicyStopError):
        scene.execute(plan)
    (stopped,) = stopped_of(scene.artifacts, plan)
    assert (stopped.status, stopped.counts, stopped.untold) == ("stopped", {"deleted": 2}, 0)
    assert "policy of the store is never" in stopped.stopped
    scene.write()
    audit = scene.execute(plan)
    assert (audit.status, audit.stopped, audit.untold) == ("executed", "", 0)
    assert [release.recheck_id for release in audit.releases] == [stopped.execution_id, audit.execution_id]
    assert {release.decided_by for release in audit.releases} == {"Ada"}


def test_a_plan_that_is_rejected_after_a_kill_tells_what_may_be_deleted_without_a_result(scene, monkeypatch):
    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash
    with monkeypatch.context() as killed:
        killed.setattr("ticdc_replay.reconcile.delete.execution.write_results", lambda *_: 1 // 0)
        killed.setattr(deletion, "_note_stopped", lambda *_: None)
        with pytest.raises(ZeroDivisionError):
            scene.execute(plan)
    assert stopped_of(scene.artifacts, plan) == []
    decide(scene.context, plan, False, "Bob", "stop")
    (stopped,) = stopped_of(scene.artifacts, plan)
    assert (stopped.stopped, stopped.counts, stopped.untold) == ("rejected by Bob: stop", {}, 2)


def test_who_begins_to_read_expired_messages_in_the_middle_stops_it_there(scene, meanwhile, monkeypatch):
    from tests.support.deletions import expired

    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash
    now: list[object] = []
    monkeypatch.setattr(deletion_guards, "replayable_ranges", lambda _pipeline: tuple(now))
    meanwhile(2, lambda: now.append(expired(LOW - 10, LOW + 50)))
    with pytest.raises(PolicyStopError, match=r"shop\[0\]@90-149"):
        scene.execute(plan)
    assert scene.names() == {name(number) for number in range(3, 7)}
    scene.execute(plan, {name(3): LOW - 3}, replayable=(expired(LOW - 10, LOW + 50),))
    assert scene.names() == {name(3)}


def test_a_replay_of_a_pipeline_that_is_not_listed_stops_it_there(scene, meanwhile):
    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash
    state = scene.context.state
    taken = (scene.context.store.uri, "holder", "replay", "other/manifests/a.json@run", 60_000)
    meanwhile(2, lambda: state.leases.acquire(*taken))
    with pytest.raises(PolicyStopError, match="a replay of the pipeline other, which is not listed"):
        scene.execute(plan)
    assert scene.names() == {name(number) for number in range(3, 7)}


def test_who_begins_to_read_what_kafka_holds_does_not_stop_it(scene, monkeypatch):
    from tests.support.deletions import expired

    scene.put(1)
    monkeypatch.setattr(deletion_guards, "replayable_ranges", lambda _pipeline: (expired(LOW, HIGH + 50),))
    assert scene.execute(scene.plan().plan_hash).counts == {"deleted": 1}


def test_a_lease_that_is_lost_in_the_middle_stops_it_there_and_another_execution_goes_on(scene, meanwhile):
    scene.put(*range(1, 7))
    plan = scene.plan().plan_hash

    def lose():
        state = scene.context.state
        for lease in state.leases.current(scene.uri):
            state.leases.release(lease)

    meanwhile(2, lose)
    with pytest.raises(LeaseLostError):
        scene.execute(plan)
    assert len(scene.names()) in (4, 2)
    first = scene.results(plan)
    audit = scene.execute(plan)
    assert scene.names() == set()
    assert sum(audit.counts.values()) == audit.counts["deleted"] == 6
    assert first.items() <= scene.results(plan).items()


def test_a_lease_that_is_lost_within_a_file_of_the_plan_stops_it_there(scene, monkeypatch):
    monkeypatch.setattr("ticdc_replay.reconcile.delete.deletion_plan.FILE_ROWS", 100)
    monkeypatch.setattr(deletion, "_THREADS", 1)
    monkeypatch.setattr(deletion_guards, "_LEASE_EVERY_S", 0.0)
    scene.put(*range(1, 31))
    plan = scene.plan().plan_hash
    right = FileDeletion.delete_unchanged

    def delete(store, expected):
        if expected.name == name(5):
            state = scene.context.state
            for lease in state.leases.current(scene.uri):
                state.leases.release(lease)
        return right(store, expected)

    monkeypatch.setattr(FileDeletion, "delete_unchanged", delete)
    with pytest.raises(LeaseLostError):
        scene.execute(plan)
    deleted = {name(number) for number in range(1, 31)} - scene.names()
    assert name(5) in deleted
    assert len(deleted) < 10
    assert scene.results(plan).keys() == deleted


def test_two_executions_do_not_run_at_once(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    with holding_store(scene.context.state.leases, scene.uri, "another deletion", "other"):
        assert "another deletion" in refused(scene, plan, LeaseHeldError)
    assert scene.execute(plan).counts == {"deleted": 1}


def test_a_plan_is_executed_once(scene):
    (found,) = scene.put(1)
    plan = scene.plan().plan_hash
    recheck = scene.recheck(plan)
    audit = execute(scene.context, plan, recheck)
    scene.put(1)  # the same name and content once more
    assert execute(scene.context, plan, recheck) == audit
    assert "it was executed" in refused(scene, plan)
    assert scene.names() == {found}
    (record,) = scene.context.state.deletion_plans.all("claims")
    assert record.status == "executed"
    (execution,) = scene.context.state.deletion_plans.executions("claims", plan)
    assert (execution.execution_id, execution.counts) == (recheck, {"deleted": 1})
    assert execution.finished_at_ms == audit.finished_at_ms


def test_hostile_names_are_not_planned_and_not_deleted(scene):
    hostile = ["..json", "a b.json", f"{name(1)}.bak", name(2).upper(), f"deep/{name(3)}", "ä😀.json", "%2e%2e.json"]
    for each in hostile:
        scene.store.put(each, b"x")
    (orphan,) = scene.put(4)
    plan = scene.plan()
    assert plan.objects == 1
    scene.execute(plan.plan_hash)
    assert orphan not in scene.names()
    assert scene.names() == set(hostile)


def test_a_store_without_versions_has_no_undo(scene):
    scene.put(1)
    plan = scene.plan().plan_hash
    scene.execute(plan)
    with pytest.raises(ConfigError, match=r"connections\.undo is missing"):
        undo(scene.context, plan, "Ada", "oops")
