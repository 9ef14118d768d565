"""A task in cluster mode: it defers while its application runs in YARN, and takes one that runs for its own."""

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.waiting import wait_for
from ticdc_replay.domain.errors import TransientError

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

OPTIONS = {"tables": ["*.*"], "targets": ["lake"], "dry_run": False, "repin": False, "reload": False, "pin": None}


@pytest.fixture
def task(yarn, java_home, tmp_path, pipelines, monkeypatch):
    """A load into Parquet files: ``deferred`` runs its task until it defers."""
    import msgspec
    from airflow.sdk.exceptions import TaskDeferred

    from tests.support.changelogs import Changelog, put, table
    from ticdc_replay import jobspec
    from ticdc_replay.airflow.operators.replay_steps import LoadTarget
    from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
    from ticdc_replay.airflow.xcom import Checked, encode
    from ticdc_replay.domain import canonical
    from ticdc_replay.domain.column_types import ColumnType
    from ticdc_replay.domain.window import Window
    from ticdc_replay.snapshot.manifest import Manifest
    from ticdc_replay.state import open_state
    from ticdc_replay.state.manifests import WindowManifest
    from ticdc_replay.storage import open_store

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    spark = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", '{"conn_type": "kafka", "host": "b"}')
    target = {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}
    artifacts = tmp_path / "artifacts"
    changes = {"artifacts": artifacts.as_uri(), "targets": [target], "spark": {"conf": yarn.properties}}
    file = pipelines.add("shop", changes)
    changelog = Changelog(artifacts / "shop", 0, 100)
    changelog.rows(table("shop.orders", {"id": ColumnType("bigint", declared=True)}), [put(10, id=1)])
    job = msgspec.structs.replace(changelog.job(target), pipeline="shop")
    index = changelog.write()
    manifest = Manifest(
        pipeline="shop", changefeed_hash="c", window=Window(0, 100), grade="proven", topics=(), pinned_at_ms=1
    )
    (artifacts / "shop" / "manifests").mkdir()
    (artifacts / "shop" / "manifests" / f"{index.input_hash}.json").write_bytes(canonical.encode(manifest))
    state = open_state(f"sqlite:///{artifacts}/state.db")
    state.manifests.register(WindowManifest("shop", Window(0, 100), index.input_hash, "manifests/1.json", 1))
    state.close()
    written = jobspec.WrittenJob(jobspec.put(open_store(job.artifacts, None), job), job.run_hash)
    checked = encode(Checked(summary="", run_hash=job.run_hash, loads={"lake": written}))

    class Task:
        context = {"params": OPTIONS, "ti": SimpleNamespace(xcom_pull=lambda task_ids: checked)}

        def operator(self):
            return SparkJobOperator(task_id="load_lake", step=LoadTarget("lake"), pipeline_file=str(file))

        def deferred(self):
            with pytest.raises(TaskDeferred) as found:
                self.operator().execute(self.context)
            return found.value

        def resumed(self, deferred, event):
            return getattr(self.operator(), deferred.method_name)(self.context, event, **deferred.kwargs)

    return Task()


def restarted(trigger):
    """*trigger* as another triggerer has it, after a restart of the first."""
    from airflow.sdk._shared.module_loading import import_string

    path, arguments = trigger.serialize()
    return import_string(path)(**json.loads(json.dumps(arguments)) | {"poll_seconds": 1})


def event_of(trigger):
    async def first():
        return await anext(trigger.run())

    return asyncio.run(first()).payload


@pytest.mark.nightly  # each time, test_application_trigger.py shows trigger and hand-over, and unit tests the submitters
def test_it_defers_takes_the_application_that_runs_and_goes_on_with_its_outcome(task, yarn):
    before = len(yarn.applications())
    lost = task.deferred()  # its worker and its triggerer are gone
    deferred = task.deferred()
    assert deferred.trigger.application["id"] == lost.trigger.application["id"]
    event = event_of(restarted(deferred.trigger))
    assert event["status"] == "SUCCEEDED"
    summary = task.resumed(deferred, event)
    assert summary["shop.orders"]["upserted"] == 1
    repeated = task.operator().execute(task.context)
    assert repeated["shop.orders"]["outcome"] == "done_before"
    assert len(yarn.applications()) == before + 1


@pytest.mark.nightly  # with a triggerer: test_deferral.py
def test_a_task_that_a_person_clears_ends_its_application(task, yarn, monkeypatch):
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: {"run": {"load_lake": None}})
    deferred = task.deferred()
    trigger = restarted(deferred.trigger)
    trigger._task_instance = SimpleNamespace(dag_id="shop", task_id="load_lake", run_id="run", map_index=-1)
    asyncio.run(trigger.on_kill())
    application = deferred.trigger.application["id"]

    def state():
        return next(each["state"] for each in yarn.applications() if each["id"] == application)

    wait_for("the end of the application", lambda: state() == "KILLED")
    event = event_of(restarted(deferred.trigger))
    with pytest.raises(TransientError, match=r"load_lake: application .* ended as KILLED"):
        task.resumed(deferred, event)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_task_has_a_command_for_kubernetes_without_airflow_s_provider_for_it(monkeypatch, mode):
    from ticdc_replay.airflow.operators.replay_steps import LoadTarget
    from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
    from ticdc_replay.domain.connections import Connection

    extra = {"deploy-mode": mode, "namespace": "replay"}
    spark = Connection("spark_default", "spark", "k8s://https://api", 6443, extra=extra)
    operator = SparkJobOperator(task_id="load_lake", step=LoadTarget("lake"), pipeline_file="shop.yaml")
    submission = SimpleNamespace(properties={"spark.app": "x"}, script="load.py", arguments=["uri", "attempt"])
    command = operator._spark_submit(submission, SimpleNamespace(name="shop"), spark)
    assert Path(command[0]).name == "spark-submit"
    assert command[1:] == [
        *("--master", "k8s://https://api:6443", "--deploy-mode", mode, "--conf=spark.kubernetes.namespace=replay"),
        *("--name", "shop load_lake", "--conf=spark.app=x", "load.py", "uri", "attempt"),
    ]
