"""The task that compares mirrors with the upstream."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.airflow.test_cluster_mode import event_of, restarted
from tests.support import connect, mariadb, tidb
from tests.support.changelogs import put
from tests.support.lake_spark import LAKE, UNCOMPILED
from tests.support.spark_versions import lake_jars
from tests.support.target_rigs import LakeRig, PostgresRig
from tests.support.verified import SAFE_POINT, Verified, show_the_present, upstream
from ticdc_replay.airflow.dags.verify import build_verify_dag
from ticdc_replay.airflow.operators.verify import VerifyOperator
from ticdc_replay.airflow.operators.verify_step import VerifyTarget
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.lake.section import HIDDEN

pytestmark = pytest.mark.integration

FIELDS = ("conn_type", "host", "port", "login", "password", "schema")


@pytest.fixture
def verified(tmp_path, tmp_path_factory, mariadb_programs, make_database, monkeypatch):
    show_the_present(monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps({"conn_type": "kafka"}))
    with (
        upstream(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as source,
        Verified(source, PostgresRig(make_database()), tmp_path) as made,
    ):
        for name in ("source", "target"):
            fields = {field: getattr(made.connections[name], field) for field in FIELDS}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
        yield made


def test_the_task_fails_with_what_differs(verified):
    schema = verified.create("id int PRIMARY KEY, v int")
    verified.both(schema, [{"id": number, "v": 1} for number in range(5)])
    task = VerifyOperator(task_id="verify_mirror", target="mirror", pipeline_file=str(verified.file))

    def run(**answers):
        return task.execute({"params": {"tables": ["*.*"], "at": "", "share": 1, **answers}})

    assert run() == {str(schema.name): 5}
    verified.mirror("UPDATE {t}.t SET v = 2 WHERE id = 3")
    with pytest.raises(PolicyStopError, match="0 missing, 0 extra, 1 changed rows"):
        run(at="99")
    with pytest.raises(ConfigError, match="As of: 'noon' is neither a TSO nor"):
        run(at="noon")


def test_the_job_of_a_lake_is_found_again_and_its_report_fails_the_task(
    tmp_path, tmp_path_factory, mariadb_programs, lake_spark, monkeypatch
):
    show_the_present(monkeypatch)
    with (
        upstream(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as source,
        Verified(source, LakeRig("iceberg", lake_spark, tmp_path), tmp_path) as made,
    ):
        schema = made.create("id int PRIMARY KEY, v int")
        made.both(schema, [{"id": number, "v": 1} for number in range(5)])
        step = VerifyTarget("mirror")

        def run(hour):
            started = SimpleNamespace(start_date=datetime(2026, 3, 1, hour, tzinfo=UTC))
            asked = {"params": {"tables": ["*.*"], "at": "", "share": 1}, "dag_run": started}
            job = step.find(made.context, asked)
            assert step.find(made.context, asked) == job, "of another attempt"
            made.run_job(job.uri)
            return step.finish(made.context, job).summary

        assert run(1) == {str(schema.name): 5}
        made.mirror("UPDATE {t}.t SET v = 2 WHERE id = 3")
        with pytest.raises(PolicyStopError, match="0 missing, 0 extra, 1 changed rows"):
            run(2)


@pytest.fixture(params=["Spark Connect", "cluster mode"])
def spark_elsewhere(request, java_home, tmp_path, monkeypatch):
    """The Spark connection names a server or a YARN; what the pipeline's ``spark.conf`` needs for it."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if request.param == "Spark Connect":
        properties = {**LAKE, **UNCOMPILED, "spark.redaction.regex": HIDDEN}
        with connect.server(tmp_path / "server", properties) as server:
            at_server = {"conn_type": "spark_connect", "host": server.url}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(at_server))
            yield {}
        return
    yarn = request.getfixturevalue("yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    in_cluster = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(in_cluster))
    yield {**yarn.properties, "spark.jars": ",".join(map(str, lake_jars()))}


@pytest.mark.nightly  # only a TiDB has snapshots that a job in a process of its own reads
def test_the_dag_compares_a_lake_where_its_connection_says(
    tmp_path, tidb_server, lake_spark, spark_elsewhere, monkeypatch
):
    from airflow.sdk.exceptions import TaskDeferred

    mariadb.execute(tidb_server, SAFE_POINT)
    with Verified(tidb_server, LakeRig("iceberg", lake_spark, tmp_path), tmp_path) as made:
        schema = made.create("id int PRIMARY KEY, v int")
        made.upstream("INSERT INTO t VALUES (1, 1), (2, 1)")
        at = tidb.tso(tidb_server)
        made.load_rows(schema, [put(at, id=1, v=1), put(at, id=2, v=1)], Window(1, at + 1))
        fields = {field: getattr(made.connections["source"], field) for field in FIELDS}
        monkeypatch.setenv("AIRFLOW_CONN_SOURCE", json.dumps(fields))
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps({"conn_type": "kafka"}))
        declared = yaml.safe_load(made.file.read_text())
        made.file.write_text(yaml.safe_dump(declared | {"spark": {"conf": spark_elsewhere}}))
        (task,) = build_verify_dag(made.file).tasks

        def run(hour):
            started = SimpleNamespace(start_date=datetime(2026, 3, 1, hour, tzinfo=UTC))
            asked = {"params": {"tables": ["*.*"], "at": "", "share": 1}, "dag_run": started}
            try:
                return task.execute(asked)
            except TaskDeferred as deferred:  # in a cluster
                event = event_of(restarted(deferred.trigger))
                return getattr(task, deferred.method_name)(asked, event, **deferred.kwargs)

        assert run(1) == {str(schema.name): 2}
        made.mirror("UPDATE {t}.t SET v = 2 WHERE id = 2")
        with pytest.raises(PolicyStopError, match="0 missing, 0 extra, 1 changed rows"):
            run(2)
