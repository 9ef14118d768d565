"""The DAG that fills mirrors from a dump, its tasks run one after the other against real servers."""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.integration.snapshot.feed import at
from tests.support.dumpling_files import Table, write_dump

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

CREATE = "CREATE TABLE `t` (\n  `id` bigint NOT NULL,\n  `v` varchar(10) DEFAULT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB"


@pytest.fixture
def rig(kafka, producer, make_topic, make_database, tmp_path, monkeypatch):
    from tests.support.mirror_rig import Rig

    made = Rig(producer, kafka, make_topic(1, {"retention.ms": "-1"}), tmp_path, make_database())
    made.resolved(*range(9))
    made._declared["runner"] = "local"
    files = {"name": "files", "type": "parquet", "uri": (tmp_path / "files").as_uri()}
    made._declared["targets"] = [*made._declared["targets"], files]
    made.context = made._context()
    for name in ("kafka", "warehouse"):
        connection = made.connections[name]
        fields = {
            "conn_type": connection.conn_type,
            "host": connection.host,
            "port": connection.port,
            "login": connection.login,
            "password": connection.password,
            "schema": connection.schema,
            "extra": dict(connection.extra),
        }
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with made.context:
        yield made


@pytest.fixture
def lake_at_a_server(rig, java_home, tmp_path, monkeypatch):
    """Jobs run at a Spark Connect server, and a third target is a mirror in Iceberg tables."""
    from tests.support import connect
    from tests.support.lake_spark import LAKE, UNCOMPILED
    from ticdc_replay.config.target_kinds import read_section

    settings = {"type": "hadoop", "warehouse": (tmp_path / "tables").as_uri()}
    lake = {"name": "lake", "type": "iceberg", "catalog": "lakehouse", "ledger": (tmp_path / "ledger").as_uri()}
    del rig._declared["runner"]
    rig._declared["targets"] += [lake | {"settings": settings}]
    rig._context().__exit__()
    with connect.server(tmp_path / "server", {**read_section(lake).spark_properties, **LAKE, **UNCOMPILED}) as server:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark_connect", "host": server.url}))
        yield lake


@pytest.fixture
def run(rig):
    """Runs the DAG with answers of its form; the XComs of its tasks."""
    from airflow.sdk.exceptions import AirflowSkipException

    from ticdc_replay.airflow.dags.seed import build_seed_dag

    def run(**answers):
        dag = build_seed_dag(rig.folder / "shop.yaml")
        params = {**{name: dag.params.get_param(name).value for name in dag.params}, **answers}
        left = {}
        events = defaultdict(lambda: SimpleNamespace(extra={}))
        ti = SimpleNamespace(xcom_pull=lambda task_ids: left[task_ids])
        for task in dag.topological_sort():
            try:
                left[task.task_id] = task.execute({"params": params, "ti": ti, "outlet_events": events})
            except AirflowSkipException:
                left[task.task_id] = "skipped"
        return left

    return run


def test_the_dag_fills_the_mirrors_that_its_form_names(rig, run, tmp_path):
    table = Table("s", "t", CREATE, ["id", "v"], ["number", "string"], [(b"1", b"one"), (b"2", b"two")])
    dump = write_dump(tmp_path / "dump", [table], at(5))
    left = run(dump=dump.as_uri(), consistency="snapshot")
    assert left["snapshot"]["files"] == 1
    assert left["decode"] == {"rows": 2, "tables": ["s.t"]}
    assert left["load_warehouse"]["s.t"]["upserted"] == 2
    assert left["load_files"] == "skipped"
    assert left["publish"]["applied"] == {"warehouse": 2}
    with psycopg.connect(rig.dsn) as connection:
        assert connection.execute("SELECT id, v, _commit_ts FROM s.t ORDER BY id").fetchall() == [
            (1, "one", at(5)),
            (2, "two", at(5)),
        ]
    again = run(dump=dump.as_uri(), consistency="snapshot", targets=["warehouse", "files"])
    assert again["load_warehouse"]["s.t"]["outcome"] == "done_before"
    assert again["load_files"]["s.t"]["upserted"] == 2


@pytest.mark.nightly  # tests/spark/test_mirror_jobs.py shows the jobs, from the command line
def test_the_dag_fills_mirrors_at_a_spark_connect_server(lake_at_a_server, rig, run, tmp_path):
    table = Table("s", "t", CREATE, ["id", "v"], ["number", "string"], [(b"1", b"one"), (b"2", b"two")])
    dump = write_dump(tmp_path / "dump", [table], at(5))
    left = run(dump=dump.as_uri(), consistency="snapshot")
    assert left["decode"] == {"rows": 2, "tables": ["s.t"]}
    assert left["load_lake"]["s.t"]["upserted"] == 2
    assert left["publish"]["applied"] == {"warehouse": 2, "lake": 2}
    assert list((tmp_path / "tables" / "s" / "t" / "data").glob("*.parquet"))
