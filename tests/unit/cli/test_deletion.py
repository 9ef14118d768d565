"""``ticdc-replay deletion``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.deletions import LOW, Scene, name, with_clock
from ticdc_replay.cli import deletion
from ticdc_replay.cli.main import app
from ticdc_replay.jobspec import WrittenJob
from ticdc_replay.reconcile.delete.undo import Undone, put_undone
from ticdc_replay.store_stages.deletion import make_plan


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from with_clock(Scene(tmp_path, (tmp_path / "objects").as_uri()), monkeypatch)


@pytest.fixture
def run(scene, monkeypatch):
    """Runs a verb; Kafka and Spark, which a recheck needs, are what the test says."""

    def run(
        verb: str,
        *arguments: str,
        typed: str = "",
        references: dict[str, int] | None = None,
        submit: Any = lambda *_: None,
    ) -> Result:
        def recheck(_context, _survey, plan_hash):
            return WrittenJob("file:///job.json", scene.recheck(plan_hash, references or {}))

        monkeypatch.setenv("AIRFLOW_CONN_KAFKA", '{"conn_type": "kafka"}')
        monkeypatch.setattr(deletion, "survey_and_scan", lambda _context, _master: "survey")
        monkeypatch.setattr(deletion, "write_recheck_job", recheck)
        monkeypatch.setattr(deletion, "submit", submit)
        command = ["deletion", verb, str(scene.file), *arguments, "--pipelines", str(scene.pipelines)]
        return CliRunner().invoke(app, command, input=typed)

    return run


def test_a_plan_goes_from_the_reconciliation_to_its_execution(scene, run):
    orphan, needed = scene.put(1, 2)
    references = {needed: LOW}
    scene.reconcile(references)
    assert "1 objects" in run("plan").output
    (plan,) = scene.context.state.deletion_plans.all("claims")
    assert plan.plan_hash[:12] in run("list").output
    assert orphan in run("show", plan.plan_hash[:8]).output
    assert "is approved" in run("approve", plan.plan_hash, "--by", "Ada", "--why", "seen").output
    waits = run("execute").output
    assert f"no plan is due; the next is {plan.plan_hash[:12]}, due 2" in waits
    assert "its grace period lasts until" in waits
    scene.clock.pass_days(8)
    done = run("execute", "--yes", references=references)
    assert done.exit_code == 0, done.output
    assert scene.names() == {needed}
    shown = run("show", plan.plan_hash[:8]).output
    assert "executed" in shown
    assert "deleted" in shown


def test_nothing_is_deleted_unless_the_number_is_typed(scene, run):
    scene.put(1, 2)
    plan = scene.plan().plan_hash
    for typed in ("y\n", "1\n", "\n\n\n2 objects\n"):
        assert "nothing is deleted" in run("execute", plan, typed=typed).output
        assert len(scene.names()) == 2
    assert run("execute", plan, typed="2\n").exit_code == 0
    assert scene.names() == set()


def test_nobody_who_answers_deletes_nothing_and_is_an_error(scene, run):
    scene.put(1)
    done = run("execute", scene.plan().plan_hash, typed="")
    assert done.exit_code == 2
    assert "nothing is deleted: nobody typed" in done.output
    assert scene.names() == {name(1)}


def test_ctrl_c_says_in_a_line_what_was_deleted(scene, run, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    scene.put(1, 2, 3)
    plan = scene.plan().plan_hash
    done = run("execute", plan, "--yes", submit=interrupt)
    assert done.exit_code == 130
    assert done.output.splitlines()[-1].startswith("interrupted: nothing was deleted")
    assert len(scene.names()) == 3
    monkeypatch.setattr(deletion, "tell", lambda text: interrupt() if "objects done" in text else None)
    done = run("execute", plan, "--yes")
    assert done.exit_code == 130
    gone = 3 - len(scene.names())
    assert done.output.splitlines()[-1].startswith(f"interrupted: {gone} objects of the plan are done")
    assert "stopped, because: KeyboardInterrupt" in run("show", plan).output


def test_a_plan_that_was_executed_is_shown_when_it_is_executed_again(scene, run):
    scene.put(1)
    plan = scene.plan().plan_hash
    assert run("execute", plan, "--yes").exit_code == 0
    again = run("execute", plan, "--yes")
    assert again.exit_code == 0
    assert "was executed before; nothing is deleted now" in again.output
    assert f"results {scene.artifacts.uri('deletions')}/{plan}" in again.output


def test_plans_fit_a_terminal_of_80_columns_with_hashes_and_names_in_one_piece(scene, run):
    written = scene.put(1, 2)
    plan = scene.plan().plan_hash
    for shown, whole in ((run("list"), [plan[:12]]), (run("show", plan), written)):
        tables = [line for line in shown.output.splitlines() if not line.startswith(("plan ", "not executed"))]
        assert max(map(len, tables)) <= 80
        assert all(any(each in line for line in tables) for each in whole)


def test_plans_are_had_as_json_with_the_time_from_when_they_are_executed(scene, run):
    (written,) = scene.put(1)
    plan = scene.plan()
    (listed,) = json.loads(run("list", "--json").output)
    assert listed["plan_hash"] == plan.plan_hash
    assert listed["due_at_ms"] == plan.due_at_ms + 60_000, "clocks may differ by a minute"
    run("execute", plan.plan_hash, "--yes")
    shown = json.loads(run("show", plan.plan_hash, "--json").output)
    assert shown["plan"]["first"][0]["name"] == written
    assert shown["audits"][0]["counts"] == {"deleted": 1}
    assert shown["undos"] == []


def test_what_could_not_be_deleted_as_planned_gives_exit_code_1(scene, run):
    (written,) = scene.put(1)
    plan = scene.plan().plan_hash
    scene.store.put(written, b"another")
    done = run("execute", plan, "--yes")
    assert done.exit_code == 1
    assert f"altered: {written}" in done.output


def test_a_plan_that_nobody_approved_or_that_somebody_rejected_is_not_executed(scene, run):
    scene.put(1)
    plan = scene.plan(approve=False).plan_hash
    done = run("execute", plan, "--yes")
    assert done.exit_code == 2
    assert f"nobody has approved it: ticdc-replay deletion approve STORE.yaml {plan[:12]}" in done.output
    assert "is rejected" in run("reject", plan, "--by", "Bob", "--why", "no").output
    assert run("execute", plan, "--yes").exit_code == 2
    assert scene.names() == {name(1)}


def test_a_beginning_that_means_no_plan_is_an_error(scene, run):
    scene.put(1)
    make_plan(scene.context, scene.reconcile({}))
    assert run("show", "zzzz").exit_code == 2


@pytest.mark.parametrize("verb", ["show", "approve", "reject", "execute", "undo"])
def test_less_than_four_characters_name_no_plan_though_it_is_the_only_one(scene, run, verb):
    scene.put(1)
    plan = scene.plan(approve=verb == "execute").plan_hash
    rest = {"show": [], "execute": ["--yes"]}.get(verb, ["--by", "Ada", "--why", "x"])
    for beginning in ("", plan[:3]):
        refused = run(verb, beginning, *rest)
        assert refused.exit_code == 2
        assert "names no plan: give at least the first 4 characters" in " ".join(refused.output.split())
    (known,) = scene.context.state.deletion_plans.all("claims")
    assert known.status == ("approved" if verb == "execute" else "open")
    assert scene.names() == {name(1)}


def test_a_store_that_was_never_reconciled_has_nothing_to_plan(run):
    done = run("plan")
    assert done.exit_code == 2
    assert "was never reconciled" in done.output


@pytest.mark.parametrize("verb", ["approve", "reject", "undo"])
def test_what_a_person_does_has_a_reason(scene, run, verb):
    scene.put(1)
    plan = scene.plan(approve=False).plan_hash
    for why in ("", " "):
        done = run(verb, plan, "--by", "Ada", "--why", why)
        assert done.exit_code == 2
        assert "and for a reason: give the name and the reason" in " ".join(done.output.split())
    assert scene.context.state.deletion_plans.get("claims", plan).status == "open"


def test_no_undo_without_its_connection(scene, run):
    scene.put(1)
    plan = scene.plan().plan_hash
    run("execute", plan, "--yes")
    done = run("undo", plan, "--by", "Ada", "--why", "oops")
    assert done.exit_code == 2
    assert "connections.undo is missing" in done.output


def test_undos_are_shown_in_order_of_time_and_taken_from_what_is_away(scene, run):
    scene.put(1, 2, 3)
    plan = scene.plan().plan_hash
    run("execute", plan, "--yes")
    for at_ms, person in ((3_000, "Cyd"), (1_000, "Ada"), (2_000, "Bob")):
        put_undone(scene.artifacts, undone(plan, person=person, at_ms=at_ms, restored=int(person != "Bob")))
    shown = run("show", plan).output
    assert [line.split()[5] for line in shown.splitlines() if line.startswith("undone ")] == ["Ada:", "Bob:", "Cyd:"]
    assert "2 are back and 1 are still missing" in shown


def test_a_name_that_the_plan_does_not_have_is_told_and_gives_exit_code_1(scene, run, monkeypatch):
    (known,) = scene.put(1)
    plan = scene.plan().plan_hash
    monkeypatch.setattr(deletion.stage, "undo", lambda *_: undone(plan, restored=1, not_undoable=1))
    done = run("undo", plan, "--by", "Ada", "--why", "wrong", "--name", known, "--name", "nonsense.json")
    assert done.exit_code == 1
    assert "nonsense.json is not in the plan" in done.output
    assert f"{known} is not" not in done.output


def undone(plan: str, **changes: Any) -> Undone:
    fields: dict[str, Any] = {"person": "Ada", "at_ms": 0, "restored": 0, "not_undoable": 0, **changes}
    return Undone(
        store="claims",
        uri="",
        plan_hash=plan,
        why="wrong",
        names=None,
        without_marker=0,
        failed=0,
        failures=(),
        **fields,
    )
