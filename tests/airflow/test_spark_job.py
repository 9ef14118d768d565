"""Submitting a Spark job: what its driver gets, what its failure means, and where secrets do not appear."""

import json
import os
import stat
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

# The driver of these tests: the real entry with a real session, but it says what it was given instead of working.
DRIVER = """
import json, os, sys
from pathlib import Path
from ticdc_replay.domain import errors
from ticdc_replay.spark import main
from ticdc_replay.state import open_state

def read(uri, connections):
    file = Path(os.environ["TICDC_REPLAY_CONNECTIONS_FILE"])
    Path({answer!r}).write_text(json.dumps({{
        "arguments": sys.argv[1:],
        "mode": file.stat().st_mode, "folder_mode": file.parent.stat().st_mode, "file": str(file),
        "connections": sorted(connections.by_id), "password": connections["shop_kafka"].password,
        "environments": [Path(f"/proc/{{pid}}/environ").read_text() for pid in (os.getpid(), os.getppid())],
        "command_lines": [Path(f"/proc/{{pid}}/cmdline").read_text() for pid in (os.getpid(), os.getppid())],
    }}))
    return {{}}

def driver(spark, job, connections):
    conf = dict(spark.sparkContext.getConf().getAll())
    state = open_state({state!r})
    leases = [(lease.kind, lease.subject) for lease in state.leases.current("file:///claims")]
    answer = json.loads(Path({answer!r}).read_text())
    Path({answer!r}).write_text(json.dumps(answer | {{"conf": conf, "leases": leases}}))
    raise {raises}

main._read = read
main._run(dict, lambda job: "test", driver)
"""


@pytest.fixture
def job(tmp_path, pipelines, monkeypatch, java_home):
    """A decode task whose driver raises what the test says, and the answer that the driver left."""
    from ticdc_replay.airflow.operators.spark_job import DecodeOperator
    from ticdc_replay.config.load import load_pipeline

    monkeypatch.setenv("TICDC_REPLAY_SPARK_JOBS", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", '{"conn_type": "kafka", "host": "b", "password": "hunter2"}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    file = pipelines.path / "shop.yaml"

    class Job:
        answer = tmp_path / "answer.json"
        state = f"sqlite:///{tmp_path}/state.db"
        options = {
            "tables": ["*.*"],
            "targets": ["lake"],
            "dry_run": False,
            "repin": False,
            "reload": False,
            "pin": None,
        }

        def run(self, raises="SystemExit(0)", run_hash="def", **options):
            driver = DRIVER.format(raises=raises, answer=str(self.answer), state=self.state)
            (tmp_path / "decode.py").write_text(textwrap.dedent(driver))
            operator = DecodeOperator(pipeline_file=str(file), pipeline=load_pipeline(file).pipeline)
            operator.job = "file:///job.json"
            operator.application_args = ["file:///job.json"]
            pinned = {"manifest": "s3://lake/shop/manifests/abc.json", "run_hash": run_hash}
            ti = SimpleNamespace(xcom_pull=lambda task_ids: pinned)
            operator.execute({"params": self.options | options, "ti": ti})

    return Job()


def test_a_driver_that_may_succeed_later_is_a_transient_error(job):
    with pytest.raises(TransientError, match=r"^decode: TransientError: the broker is away$"):
        job.run("errors.TransientError('the broker is away')")


def test_any_other_failure_stays_airflow_s(job):
    from airflow.exceptions import AirflowException

    with pytest.raises(AirflowException, match="Error code is: 1"):
        job.run("RuntimeError('a bug')")


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
        job.run(r"errors.TopicChangedError('topic shop was\nrecreated')")
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
    assert answer["arguments"] == ["file:///job.json"]
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
        job.run("errors.PermanentError('seen enough')")
    leases = json.loads(job.answer.read_text())["leases"]
    assert leases == [["deletion", "plan"], ["replay", "shop/manifests/abc.json@def"]], "none waits for a deletion"
    state.close()


def test_a_decode_is_recorded_before_its_lease_ends(job, pipelines, tmp_path, monkeypatch):
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from tests.changelogs import Changelog
    from ticdc_replay.domain import canonical
    from ticdc_replay.domain.window import Window
    from ticdc_replay.snapshot.manifest import Manifest
    from ticdc_replay.state.leases import Leases
    from ticdc_replay.state.runs import Runs

    claims_of(pipelines, tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", '{"conn_type": "postgres", "host": "b"}')
    changelog = Changelog(tmp_path / "shop", 0, 100)
    index = changelog.write()
    manifest = Manifest(
        pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(), pinned_at_ms=1
    )
    (tmp_path / "shop" / "manifests").mkdir()
    (tmp_path / "shop" / "manifests" / f"{index.input_hash}.json").write_bytes(canonical.encode(manifest))
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda self, context: None)
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


def test_cluster_mode_is_refused(job, monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "cluster"}}'
    )
    with pytest.raises(ConfigError, match="'spark_default': deploy-mode cluster is not supported"):
        job.run()


def test_a_connection_that_airflow_does_not_know_is_told_by_name(job, monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_KAFKA")
    with pytest.raises(ConfigError, match="connection 'shop_kafka' is not defined in Airflow"):
        job.run()


def test_a_load_task_that_is_cleared_after_its_window_was_pinned_anew_is_refused(tmp_path, pipelines, monkeypatch):
    from tests.changelogs import Changelog
    from ticdc_replay.airflow.operators.spark_job import LoadOperator
    from ticdc_replay.config.load import load_pipeline
    from ticdc_replay.domain.window import Window
    from ticdc_replay.state import open_state
    from ticdc_replay.state.manifests import WindowManifest

    for name in ("SHOP_KAFKA", "WAREHOUSE"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", '{"conn_type": "kafka", "host": "b"}')
    file = pipelines.add("shop", {"artifacts": (tmp_path / "artifacts").as_uri()})
    changelog = Changelog(tmp_path / "artifacts" / "shop", 0, 100)
    changelog.write()
    state = open_state(f"sqlite:///{tmp_path}/artifacts/state.db")
    state.manifests.register(WindowManifest("shop", Window(0, 100), "1" * 64, "manifests/1.json", 1))
    state.close()
    operator = LoadOperator(target="lake", pipeline_file=str(file), pipeline=load_pipeline(file).pipeline)
    operator.job = "file:///job.json"
    operator.application_args = ["file:///job.json"]
    options = {"tables": ["*.*"], "targets": ["lake"], "dry_run": False, "repin": False, "reload": False, "pin": None}
    check = SimpleNamespace(xcom_pull=lambda task_ids: {"run_hash": changelog.run_hash})
    with pytest.raises(PermanentError, match="older input of window"):
        operator.execute({"params": options, "ti": check})
