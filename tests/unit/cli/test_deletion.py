"""``ticdc-replay deletion``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.deletions import LOW, Scene, name, with_clock
from ticdc_replay.cli import deletion
from ticdc_replay.cli.main import app
from ticdc_replay.stages.deletion import make_plan
from ticdc_replay.stages.jobs import WrittenJob


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield from with_clock(Scene(tmp_path, (tmp_path / "objects").as_uri()), monkeypatch)


@pytest.fixture
def run(scene, monkeypatch):
    """Runs a verb; Kafka and Spark, which a recheck needs, are what the test says."""

    def run(verb: str, *arguments: str, typed: str = "", references: dict[str, int] | None = None) -> Result:
        def recheck(_context, _survey, plan_hash):
            return WrittenJob("file:///job.json", scene.recheck(plan_hash, references or {}))

        monkeypatch.setenv("AIRFLOW_CONN_KAFKA", '{"conn_type": "kafka"}')
        monkeypatch.setattr(deletion, "survey_and_scan", lambda _context, _master: "survey")
        monkeypatch.setattr(deletion, "write_recheck_job", recheck)
        monkeypatch.setattr(deletion, "submit", lambda *_: None)
        command = ["deletion", verb, str(scene.file), *arguments, "--pipelines", str(scene.pipelines)]
        return CliRunner().invoke(app, command, input=typed)

    return run


def test_a_plan_goes_from_the_reconciliation_to_its_execution(scene, run):
    orphan, needed = scene.put(1, 2)
    references = {needed: LOW}
    scene.reconcile(references)
    assert "1 objects" in run("plan").output
    (plan,) = scene.context.state.deletion_plans("claims")
    assert plan.plan_hash[:12] in run("list").output
    assert orphan in run("show", plan.plan_hash[:8]).output
    assert "is approved" in run("approve", plan.plan_hash, "--by", "Ada", "--why", "seen").output
    assert "no plan is due" in run("execute").output
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
    assert "nobody has approved it" in done.output
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
    (known,) = scene.context.state.deletion_plans("claims")
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
    assert scene.context.state.deletion_plan("claims", plan).status == "open"


def test_no_undo_without_its_connection(scene, run):
    scene.put(1)
    plan = scene.plan().plan_hash
    run("execute", plan, "--yes")
    done = run("undo", plan, "--by", "Ada", "--why", "oops")
    assert done.exit_code == 2
    assert "connections.undo is missing" in done.output
