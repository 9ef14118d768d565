"""Cluster mode in an Airflow that runs, on a real YARN: its worker and its triggerer are killed while applications run."""

import json
import os
import signal
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml

from demo.airflow_api import AirflowApi
from demo.embedded_stack.airflow import Airflow
from demo.embedded_stack.process import ManagedProcess
from tests.airflow.stage import Stage, objects_of
from tests.conftest import s3_client_of
from tests.support.waiting import wait_for
from ticdc_replay.domain import tso
from ticdc_replay.state import open_state

# In less time, test_cluster_mode.py runs the operator and the trigger there.
pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]

PROJECT = Path(__file__).parents[2]
DAG = "ticdc_replay_shop"
# A killed worker is noticed within seconds instead of minutes.
IMPATIENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}


class Running:
    """The stage of the sample changefeed, an Airflow that runs its DAG, and a YARN that runs its jobs."""

    def __init__(self, stage, airflow, yarn):
        self.stage = stage
        self.yarn = yarn
        self._airflow = airflow
        self._api = AirflowApi(airflow.url)
        self._triggerer = None
        wait_for("the DAG", lambda: self._api.dag_is_known(DAG))
        self._api.unpause(DAG)

    def close(self):
        if self._triggerer is not None:
            self._triggerer.stop()

    def start(self, window):
        """A run of the DAG for *window* into the lake alone, by its id."""
        conf = {
            "from": tso.to_datetime(window.from_ts).isoformat(),
            "to": tso.to_datetime(window.to_ts).isoformat(),
            "targets": ["lake"],
        }
        return self._api.trigger(DAG, conf)

    def task(self, run, task_id):
        return self._api.tasks(DAG, run)[task_id]

    def await_task(self, run, task_id, state):
        wait_for(f"{task_id} to be {state}", lambda: self.task(run, task_id)["state"] == state, pause_s=0.5)

    def await_run(self, run, state):
        wait_for(f"{run} to be {state}", lambda: self._api.state(DAG, run) == state, pause_s=0.5)

    def mark_failed(self, run, task_id):
        self._api.mark_failed(DAG, run, task_id)

    def applications(self):
        return {each["id"]: each["finalStatus"] for each in self.yarn.applications()}

    @contextmanager
    def held(self, application):
        """Inside, the driver of *application* stands still, once it is there."""

        def drivers():
            running = ((each, _command_line(each)) for each in psutil.process_iter())
            return [each for each, line in running if "deploy.yarn.ApplicationMaster" in line and application in line]

        stopped = wait_for(f"the driver of {application}", drivers)
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()

    def await_trigger(self, application, began_ms):
        """Return when the trigger has taken the lease that the worker took before *began_ms*."""
        stage = self.stage
        with closing(open_state(stage.postgres.dsn_of(stage.databases[1]))) as state:

            def renewed():
                leases = state.leases.current(f"s3://{stage.bucket}/claim-check")
                return [each for each in leases if application in each.holder and each.acquired_at_ms > began_ms]

            wait_for("the trigger's lease", renewed)

    @contextmanager
    def worker_lost(self, run, task_id):
        """At the end the worker of a task is killed, as if its machine were lost. Inside it stands still, as it submits."""
        wait_for("spark-submit", lambda: [each for each in self._processes() if "SparkSubmit" in _command_line(each)])
        instance = self.task(run, task_id)["id"]
        workers = [each for each in self._processes() if instance in _command_line(each)]
        assert workers, f"nothing runs {instance}"
        for process in workers:
            process.suspend()
        yield
        for process in workers:
            process.kill()

    def restart_triggerer(self):
        """Kill the triggerer, and start another."""
        killed = [each for each in self._processes() if "triggerer" in _command_line(each)]
        assert killed
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        folder = self.stage.folder
        self._triggerer = ManagedProcess(
            [self.stage.programs / "airflow", "triggerer"],
            log=folder / "triggerer.log",
            env=self._airflow.environment,
            cwd=folder,
            whole_group=True,
        )

    @staticmethod
    def _processes():
        return psutil.Process().children(recursive=True)


def _command_line(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture(scope="module")
def running(tmp_path_factory, kafka, s3, postgres, yarn, java_home):
    folder = tmp_path_factory.mktemp("stage")
    with closing(Stage(folder, kafka, s3, s3_client_of(s3), postgres)) as stage:
        spark = {"conf": stage.declared["spark"]["conf"] | yarn.properties}
        retries = {"attempts": 3, "delay_seconds": 1}
        window = {"decode_hours": 2}  # the lease of such a decode is handed over, too
        declared = {**stage.declared, "spark": spark, "retries": retries, "window": window}
        stage.pipeline_file.write_text(yaml.safe_dump(declared))
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
        stage.connections["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(
            {"conn_type": "spark", "host": "yarn", "extra": extra}
        )
        database = f"airflow_{os.urandom(4).hex()}"
        airflow = Airflow(
            folder / "airflow",
            dags_folder=PROJECT / "dags",
            plugins_folder=PROJECT / "plugins",
            database_dsn=postgres.create_database(database),
            environment={
                **stage.connections,
                **IMPATIENT,
                "HADOOP_CONF_DIR": str(yarn.configuration),
                "TICDC_REPLAY_PIPELINES": str(stage.pipeline_file.parent),
                "TICDC_REPLAY_STORES": str(folder / "stores"),
            },
        )
        with airflow, closing(Running(stage, airflow, yarn)) as made:
            yield made
        postgres.drop_database(database)


def test_a_lost_worker_and_a_lost_triggerer_cost_no_application(running, s3):
    before = set(running.applications())
    run = running.start(running.stage.windows[0])
    with running.worker_lost(run, "decode"):
        (application,) = wait_for("the application of the decode", lambda: set(running.applications()) - before)
    with running.held(application):
        running.await_task(run, "decode", "deferred")
        running.restart_triggerer()
    running.await_run(run, "success")
    assert running.task(run, "decode")["try_number"] == 2
    statuses = {id_: status for id_, status in running.applications().items() if id_ not in before}
    assert sorted(statuses.values()) == ["SUCCEEDED", "SUCCEEDED"], "one for the decode, one for the load"
    stage = running.stage
    orders = [key for key in objects_of(s3_client_of(s3), stage.bucket, "lake/") if "orders" in key]
    assert [key for key in orders if key.endswith(".parquet")]


def test_a_deferred_task_that_a_person_marks_failed_ends_its_application(running):
    before = set(running.applications())
    run = running.start(running.stage.windows[2])
    (application,) = wait_for("the application of the decode", lambda: set(running.applications()) - before)
    with running.held(application):
        began_ms = time.time() * 1000
        running.await_task(run, "decode", "deferred")
        running.await_trigger(application, began_ms)
        running.mark_failed(run, "decode")
    wait_for("the end of the application", lambda: running.applications()[application] == "KILLED")
    running.await_run(run, "failed")
    assert set(running.applications()) - before == {application}
