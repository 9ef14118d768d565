"""Submitting a Spark job: what its driver gets, what its failure means, and where secrets do not appear."""

import json
import os
import signal
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ticdc_replay.domain.errors import ConfigError, PermanentError, TopicChangedError, TransientError

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

# The driver of these tests: the real entry with a real session, but it says what it was given instead of working.
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from ticdc_replay.domain import errors
from ticdc_replay.drivers import decode as driver
from ticdc_replay.spark import main
from ticdc_replay.drivers.connections import open_job
from ticdc_replay.state import open_state

connections = open_job(sys.argv[1:]).connections()
file = Path(os.environ["TICDC_REPLAY_CONNECTIONS_FILE"])
Path({answer!r}).write_text(json.dumps({{
    "arguments": sys.argv[1:],
    "mode": file.stat().st_mode, "folder_mode": file.parent.stat().st_mode, "file": str(file),
    "connections": sorted(connections.by_id), "password": connections["shop_kafka"].password,
    "environments": [Path(f"/proc/{{pid}}/environ").read_text() for pid in (os.getpid(), os.getppid())],
    "command_lines": [Path(f"/proc/{{pid}}/cmdline").read_text() for pid in (os.getpid(), os.getppid())],
}}))

def decode(runner, job, connections):
    conf = dict(runner._spark.sparkContext.getConf().getAll())
    state = open_state({state!r})
    leases = [(lease.kind, lease.subject) for lease in state.leases.current("file:///claims")]
    answer = json.loads(Path({answer!r}).read_text())
    answer |= {{"conf": conf, "leases": leases, "pids": [os.getpid(), os.getppid()]}}
    Path({answer!r}).write_text(json.dumps(answer))
    {does}

driver.run_decode = decode
{session}
main.main("decode")
"""
NO_SESSION = "from unittest.mock import MagicMock; main.open_session = main.require_executors = MagicMock()"


@pytest.fixture
def job(tmp_path, pipelines, monkeypatch, java_home):
    """A decode whose driver does what the test says, as a task and as a command; and the answer that the driver left."""
    from ticdc_replay import jobspec
    from ticdc_replay.airflow.operators.replay_steps import Decode
    from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
    from ticdc_replay.airflow.xcom import Pinned, encode
    from ticdc_replay.cli.submit import submit
    from ticdc_replay.config.load import load_pipeline
    from ticdc_replay.domain.connections import Connection, Connections
    from ticdc_replay.domain.window import Window
    from ticdc_replay.snapshot.manifest import Manifest
    from ticdc_replay.snapshot.pin import PinnedManifest
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.stages.window.jobs import decode_job
    from ticdc_replay.submit.submitter import Submission

    monkeypatch.setattr(Submission, "script", str(tmp_path / "decode.py"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", '{"conn_type": "kafka", "host": "b", "password": "hunter2"}')
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "postgres", "host": "b"}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    file = pipelines.add("shop", {"artifacts": tmp_path.as_uri()})
    connections = Connections({"shop_kafka": Connection("shop_kafka", "kafka", "b", password="hunter2")})

    class Job:
        answer = tmp_path / "answer.json"
        artifacts = tmp_path / "shop"
        state = f"sqlite:///{tmp_path}/state.db"
        options = {
            "tables": ["*.*"],
            "targets": ["lake"],
            "dry_run": False,
            "repin": False,
            "reload": False,
            "pin": None,
        }
        operator = None
        session = ""

        def written(self, does, run_hash="def"):
            driver = DRIVER.format(does=does, answer=str(self.answer), state=self.state, session=self.session)
            (tmp_path / "decode.py").write_text(driver)
            manifest = Manifest(
                pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(), pinned_at_ms=1
            )
            pinned = PinnedManifest(manifest, "manifests/abc.json", "file:///abc.json", reused=False)
            with ReplayContext(load_pipeline(file), connections) as context:
                return jobspec.WrittenJob(jobspec.put(context.artifacts, decode_job(context, pinned)), run_hash)

        def run(self, does="sys.exit(0)", run_hash="def", **options):
            pinned = encode(Pinned("window", "file:///abc.json", self.written(does, run_hash)))
            ti = SimpleNamespace(xcom_pull=lambda task_ids: pinned)
            self.operator = SparkJobOperator(task_id="decode", step=Decode(), pipeline_file=str(file))
            self.operator.execute({"params": self.options | options, "ti": ti})

        def command(self, does):
            written = self.written(does)
            with ReplayContext(load_pipeline(file), connections) as context:
                submit(written.uri, context, "local[1]")

        def outcomes(self):
            """What drivers left beside the job spec."""
            return [json.loads(file.read_text()) for file in self.artifacts.glob("jobs/*.*.json")]

    return Job()


@pytest.mark.parametrize("submitted_by", ["run", "command"])
@pytest.mark.parametrize(
    ("does", "kind", "message"),
    [
        ("raise errors.TransientError('the broker is away')", TransientError, "TransientError: the broker is away"),
        (r"raise errors.TopicChangedError('was\nrecreated')", TopicChangedError, "TopicChangedError: was\nrecreated"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            TransientError,
            "the job was killed by SIGKILL, and its driver left no outcome; the log of the job has more",
        ),
        (
            "raise RuntimeError('with hunter2')",
            TransientError,
            "RuntimeError: no error of the library; the log of the job has the traceback",
        ),
    ],
    ids=["transient", "permanent", "killed", "a defect"],
)
def test_how_a_driver_ended_is_the_same_to_airflow_and_to_the_command_line(job, submitted_by, does, kind, message):
    job.session = NO_SESSION
    with pytest.raises(kind) as failed:
        getattr(job, submitted_by)(does)
    assert type(failed.value) is kind
    assert str(failed.value) == f"decode: {message}"
    assert "hunter2" not in json.dumps(job.outcomes())


def test_a_driver_that_can_not_leave_its_outcome_is_judged_by_its_exit_code(job):
    job.session = NO_SESSION
    jobs = str(job.artifacts / "jobs")
    gone = f"import shutil; shutil.rmtree({jobs!r}); Path({jobs!r}).write_text('no folder')"
    with pytest.raises(PermanentError, match=r"^decode: the job ended with exit code 3, and "):
        job.run(f"{gone}; raise errors.ConfigError('known to the log alone')")


def test_a_task_that_is_cancelled_ends_driver_and_jvm(job):
    """As Airflow does it: by a signal, whose handler calls ``on_kill``."""
    before = signal.signal(signal.SIGTERM, lambda *_: job.operator.on_kill())
    try:
        with pytest.raises(TransientError, match=r"^decode: the job was cancelled$"):
            job.run(f"os.kill({os.getpid()}, signal.SIGTERM); import time; time.sleep(600)")
    finally:
        signal.signal(signal.SIGTERM, before)
    answer = json.loads(job.answer.read_text())
    assert [pid for pid in answer["pids"] if Path(f"/proc/{pid}").exists()] == []
    assert not Path(answer["file"]).parent.exists()
    assert job.outcomes() == []


def test_a_driver_that_fails_for_good_says_why_and_secrets_reach_it_by_a_private_file_alone(
    job, monkeypatch, caplog, capfd
):
    for name in (
        "AIRFLOW_CONN_OTHER",
        "AIRFLOW_VAR_X",
        "AIRFLOW__CORE__FERNET_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "A_TOKEN",
    ):
        monkeypatch.setenv(name, "planted")
    message = r"^decode: TopicChangedError: topic shop was\nrecreated$"
    with caplog.at_level("DEBUG"), pytest.raises(PermanentError, match=message):
        job.run(r"raise errors.TopicChangedError('topic shop was\nrecreated')")
    answer = json.loads(job.answer.read_text())
    assert answer["password"] == "hunter2"
    assert answer["connections"] == ["shop_kafka"], "what the decode needs, and no more"
    assert stat.S_IMODE(answer["mode"]) == 0o600
    assert stat.S_IMODE(answer["folder_mode"]) == 0o700
    assert not Path(answer["file"]).parent.exists(), "it is gone afterwards"
    assert "TICDC_REPLAY_CONNECTIONS_FILE" not in os.environ
    for environment in answer["environments"]:
        assert "PATH=" in environment, "of driver and JVM"
        assert "planted" not in environment
        assert "AIRFLOW_" not in environment
    shown = [*answer["command_lines"], *answer["conf"].values(), caplog.text, *capfd.readouterr()]
    ((uri, attempt),) = [answer["arguments"]]
    assert (
        job.artifacts / f"{uri.removeprefix(job.artifacts.as_uri() + '/').removesuffix('.json')}.{attempt}.json"
    ).is_file()
    assert all("hunter2" not in text and answer["file"] not in text for text in shown)


def claims_of(pipelines, tmp_path):
    """Give the pipeline a claim-check store."""
    sink = "kafka://broker:9092/shop?protocol=open-protocol"
    large = "large-message-handle-option = 'claim-check'\nclaim-check-storage-uri = 'file:///claims'\n"
    changefeed = {"sink_uri": sink, "timezone": "UTC", "config": f"[sink.kafka-config.large-message-handle]\n{large}"}
    pipelines.add("shop", {"artifacts": tmp_path.as_uri(), "changefeed": changefeed})


def test_a_decode_holds_its_claim_check_store_as_long_as_its_driver_runs(job, pipelines, tmp_path):
    from ticdc_replay.state import open_state

    claims_of(pipelines, tmp_path)
    state = open_state(job.state)
    state.leases.acquire("file:///claims", "somebody", "deletion", "plan", 600_000)
    with pytest.raises(PermanentError, match="seen enough"):
        job.run("raise errors.PermanentError('seen enough')")
    leases = json.loads(job.answer.read_text())["leases"]
    assert leases == [["deletion", "plan"], ["replay", "shop/manifests/abc.json@def"]], "none waits for a deletion"
    state.close()


def test_a_decode_is_recorded_before_its_lease_ends(job, pipelines, tmp_path, monkeypatch):
    from tests.support.changelogs import Changelog
    from ticdc_replay.domain import canonical
    from ticdc_replay.domain.window import Window
    from ticdc_replay.snapshot.manifest import Manifest
    from ticdc_replay.state.leases import Leases
    from ticdc_replay.state.runs import Runs
    from ticdc_replay.submit.driver_process import DriverProcess
    from ticdc_replay.submit.outcome import JobOutcome

    claims_of(pipelines, tmp_path)
    changelog = Changelog(tmp_path / "shop", 0, 100)
    index = changelog.write()
    manifest = Manifest(
        pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(), pinned_at_ms=1
    )
    (tmp_path / "shop" / "manifests").mkdir()
    (tmp_path / "shop" / "manifests" / f"{index.input_hash}.json").write_bytes(canonical.encode(manifest))
    monkeypatch.setattr(DriverProcess, "start", lambda self: None)
    monkeypatch.setattr(DriverProcess, "wait", lambda self, show: JobOutcome("succeeded"))
    release, recorded = Leases.release, []

    def released(leases, lease):
        recorded.append([run.run_hash for run in Runs(leases._database).all("shop")])
        release(leases, lease)

    monkeypatch.setattr(Leases, "release", released)
    job.run(run_hash=changelog.run_hash)
    assert recorded == [[changelog.run_hash]]


def test_a_dry_run_submits_nothing(job):
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="Dry run"):
        job.run(dry_run=True)
    assert not job.answer.exists()


def test_cluster_mode_is_refused_where_no_cluster_runs_drivers(job, monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "cluster"}}'
    )
    with pytest.raises(
        ConfigError, match=r"'spark_default': deploy-mode cluster is for YARN and Kubernetes, not for local"
    ):
        job.run()


def test_a_connection_that_airflow_does_not_know_is_told_by_name(job, monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_KAFKA")
    with pytest.raises(ConfigError, match="connection 'shop_kafka' is not defined in Airflow"):
        job.run()


def test_a_load_task_that_is_cleared_after_its_window_was_pinned_anew_is_refused(tmp_path, pipelines, monkeypatch):
    from tests.support.changelogs import Changelog
    from ticdc_replay.airflow.operators.replay_steps import LoadTarget
    from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
    from ticdc_replay.airflow.xcom import Checked, encode
    from ticdc_replay.domain.window import Window
    from ticdc_replay.jobspec import WrittenJob
    from ticdc_replay.state import open_state
    from ticdc_replay.state.manifests import WindowManifest

    for name in ("SHOP_KAFKA", "WAREHOUSE", "SPARK_DEFAULT"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", '{"conn_type": "kafka", "host": "b"}')
    file = pipelines.add("shop", {"artifacts": (tmp_path / "artifacts").as_uri()})
    changelog = Changelog(tmp_path / "artifacts" / "shop", 0, 100)
    changelog.write()
    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")
    state.manifests.register(WindowManifest("shop", Window(0, 100), "1" * 64, "manifests/1.json", 1))
    state.close()
    operator = SparkJobOperator(task_id="load_lake", step=LoadTarget("lake"), pipeline_file=str(file))
    load = WrittenJob("file:///job.json", changelog.run_hash)
    checked = encode(Checked(summary="", run_hash=changelog.run_hash, loads={"lake": load}))
    options = {"tables": ["*.*"], "targets": ["lake"], "dry_run": False, "repin": False, "reload": False, "pin": None}
    check = SimpleNamespace(xcom_pull=lambda task_ids: checked)
    with pytest.raises(PermanentError, match="older input of window"):
        operator.execute({"params": options, "ti": check})


@pytest.mark.parametrize("step", ["LoadTarget", "LoadBase"])
def test_a_target_that_is_newer_than_the_check_is_named(step):
    from ticdc_replay.airflow.operators import replay_steps
    from ticdc_replay.airflow.xcom import Checked, encode

    checked = encode(Checked(summary="", run_hash="def", loads={}))
    context = {"ti": SimpleNamespace(xcom_pull=lambda task_ids: checked), "params": {}}
    with pytest.raises(
        ConfigError, match="target lake is newer than the check of this run; clear the run from there on"
    ):
        getattr(replay_steps, step)("lake").find(None, context)
