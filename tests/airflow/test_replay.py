"""A window of the sample changefeed from Kafka to its targets through the DAG of a stock Airflow; and where its secrets stay."""

import json
import re
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from datetime import datetime
from typing import NamedTuple

import psutil
import pytest

from demo.embedded_stack.spark import SparkConnect
from tests.airflow.stage import objects_of, submitted
from tests.airflow.stock_stage import StockStage
from tests.conftest import s3_client_of
from ticdc_replay.domain import tso

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.spark]


class CommandLines(threading.Thread):
    """Collects the command lines of this process's descendants while it runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = set()
        self._asked_to_stop = threading.Event()

    def run(self):
        while not self._asked_to_stop.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    self.seen.add(" ".join(process.cmdline()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._asked_to_stop.set()
        self.join()


class Replayed(NamedTuple):
    """What was printed, the command lines seen meanwhile, and how many orders the warehouse had then."""

    log: str
    command_lines: str
    orders: int


@pytest.fixture(scope="module")
def stage(tmp_path_factory, kafka, s3, postgres, java_home):
    with closing(StockStage(tmp_path_factory.mktemp("stage"), kafka, s3, s3_client_of(s3), postgres)) as made:
        yield made


@pytest.fixture(scope="module")
def replayed(stage):
    """The first window, replayed into both targets, before any other one."""
    import psycopg

    with CommandLines() as command_lines:
        log = stage.run(stage.windows[0])
    with psycopg.connect(stage.warehouse) as connection:
        (orders,) = connection.execute("SELECT count(*) FROM shop.orders").fetchone()
    return Replayed(log, "\n".join(command_lines.seen), orders)


@pytest.fixture
def query(stage):
    """Rows of a query on Airflow's database."""

    def query(statement, *values):
        with closing(sqlite3.connect(stage.home / "airflow.db")) as connection:
            return connection.execute(statement, values).fetchall()

    return query


@pytest.mark.matrix
def test_the_window_arrives_in_both_targets(stage, replayed, s3):
    orders = stage.windows[0].tables["shop.orders"]
    assert replayed.orders == orders["insert"] - orders["delete"]
    files = objects_of(s3_client_of(s3), stage.bucket, "lake/")
    assert [key for key in files if "orders" in key and key.endswith(".parquet")]


def test_no_secret_is_in_anything_that_a_run_leaves_or_shows(stage, replayed, s3):
    log, command_lines, _ = replayed
    with closing(sqlite3.connect(stage.home / "airflow.db")) as connection:
        database = "\n".join(connection.iterdump())
    outputs = {
        "the log": log,
        "a command line": command_lines,
        "Airflow's database: XComs, rendered templates, serialized DAGs": database,
        "Spark's event log": _files(stage.event_log),
        "lineage": stage.lineage.read_text(),
        "an artefact: job specs, manifest, changelog, reports": "\n".join(
            objects_of(s3_client_of(s3), stage.bucket, "replay/").values()
        ),
    }
    assert "org.apache.spark.deploy.SparkSubmit" in command_lines, "spark-submit itself is there for a moment only"
    assert [place for place, text in outputs.items() if not text] == []
    for secret in stage.secrets:
        assert [place for place, text in outputs.items() if secret in text] == []


def test_the_coverage_page_shows_the_window(stage, replayed):
    status, page = stage.page("/ticdc-replay/coverage/ticdc_replay_shop")
    assert status == 200
    assert page.count('class="complete proven"') >= 2, "a bar for each target, whatever other windows are loaded"


def test_a_page_of_another_package_shows_the_run(stage, replayed):
    status, page = stage.page("/acme/runs/ticdc_replay_shop")
    assert status == 200
    assert re.search(
        r"<td>2026-03-02 00:00:00\+00:00</td><td>2026-03-02 01:00:00\+00:00</td>\s*<td>\w+</td><td>done", page
    )


def test_xcoms_are_small_and_say_what_happened(stage, replayed, query):
    found = query("SELECT task_id, value FROM xcom WHERE dag_id = 'ticdc_replay_shop' AND key = 'return_value'")
    xcoms = {task: json.loads(value) for task, value in found}
    assert set(xcoms) == {"await_watermark", "snapshot", "decode", "check", "load_warehouse", "load_lake", "publish"}
    assert all(len(value) < 2_000 for _, value in found)


@pytest.mark.matrix
def test_lineage_joins_the_topic_with_the_tables(stage, replayed):
    window = stage.windows[0]
    events = [json.loads(line) for line in stage.lineage.read_text().splitlines()]
    done = {
        event["job"]["name"].removeprefix("ticdc_replay_shop."): event
        for event in events
        if event["run"]["facets"].get("ticdcReplay_run", {}).get("fromTs") == window.from_ts
    }
    publish = done["publish"]
    assert publish["eventType"] == "COMPLETE"
    assert publish["run"]["facets"]["ticdcReplay_run"]["toTs"] == window.to_ts
    topic = next(dataset for dataset in publish["inputs"] if dataset["namespace"].startswith("kafka://"))
    assert topic["name"] == stage.topic
    ranges = topic["inputFacets"]["ticdcReplay_topicRanges"]["partitions"]
    assert [part["partition"] for part in ranges] == [0, 1, 2]
    store = next(dataset for dataset in publish["inputs"] if dataset["namespace"] == f"s3://{stage.bucket}")
    assert store["name"] == "claim-check"
    assert store["inputFacets"]["ticdcReplay_claimChecks"]["resolved"] == window.claim_checked
    tables = {dataset["name"]: dataset for dataset in publish["outputs"]}
    orders = tables[f"{stage.databases[0]}.shop.orders"]
    counts = window.tables["shop.orders"]
    assert orders["outputFacets"]["outputStatistics"]["rowCount"] == counts["insert"] - counts["delete"]
    assert {"name": "o_id", "type": "bigint"}.items() <= orders["facets"]["schema"]["fields"][0].items()
    assert [dataset["name"] for dataset in done["decode"]["outputs"]] == ["replay/shop/runs"]
    assert [dataset["name"] for dataset in done["load_warehouse"]["inputs"]] == ["replay/shop/runs"]


def test_the_event_of_an_asset_has_the_window_and_what_came_to_each_table(stage, replayed, query):
    ((checked,),) = query(
        "SELECT value FROM xcom WHERE dag_id = 'ticdc_replay_shop' AND task_id = 'check' AND key = 'return_value' "
        "ORDER BY timestamp LIMIT 1"
    )
    ((found,),) = query(
        "SELECT event.extra FROM asset_event event JOIN asset ON asset.id = event.asset_id "
        "WHERE asset.name = 'ticdc_replay/shop/warehouse' ORDER BY event.id LIMIT 1"
    )
    extra = json.loads(found)
    window = stage.windows[0]
    assert (extra["from_ts"], extra["to_ts"]) == (window.from_ts, window.to_ts)
    assert datetime.fromisoformat(extra["from"]) == tso.to_datetime(window.from_ts)
    assert extra["run_hash"] == json.loads(checked)["run_hash"]
    counts = window.tables["shop.orders"]
    orders = extra["tables"]["shop.orders"]
    assert (orders["outcome"], orders["commit"]) == ("loaded", None)
    assert orders["upserted"] == counts["insert"] - counts["delete"]


@pytest.mark.matrix
@pytest.mark.nightly  # tests of targets show it of loads
def test_a_window_that_is_done_starts_no_driver(stage, replayed):
    log = stage.run(stage.windows[0])
    assert submitted(log) == []
    assert log.count("done before, and nothing is left for a driver to do") == 3


@pytest.mark.nightly  # the demo runs so
def test_a_run_for_one_target_at_a_spark_connect_server(stage, replayed, java_home, tmp_path):
    window = stage.windows[1]
    with SparkConnect(tmp_path / "server", environment={"PYSPARK_PYTHON": sys.executable}) as server:
        fields = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        stage.connections["AIRFLOW_CONN_STAGE_CONNECT"] = json.dumps(fields)
        with stage.jobs_by(connections={**stage.declared["connections"], "spark": "stage_connect"}):
            log = stage.run(window, targets=["lake"])
    assert "Target warehouse is not among the targets of this run" in log
    assert submitted(log) == ["decode", "load"]
    assert "org.apache.spark" not in log, "there is no Spark here"
    shown = [server.log.read_text(), log, stage.lineage.read_text()]
    for secret in stage.secrets:
        assert [text for text in shown if secret in text] == []


@pytest.mark.nightly  # test_await_watermark.py and test_spark_job.py show it of the tasks
def test_a_dry_run_tells_what_a_run_would_come_to_and_stops(stage, replayed):
    log = stage.run(stage.windows[0], dry_run=True)
    assert "is pinned already, and is read from Kafka as its manifest says; grade proven" in log
    assert "rates of the last" in log
    assert "Dry run: nothing is pinned, decoded or loaded" in log
    assert submitted(log) == []


@pytest.mark.nightly  # the redrive below is a run of the same DAG
def test_a_look_at_the_quarantine_ends_well_and_loads_nothing(stage, replayed):
    log = stage.run_dag("ticdc_replay_shop_quarantine", action="list")
    assert "The action of this run is list: nothing is decoded or loaded" in log
    assert submitted(log) == []


@pytest.fixture
def without_objects(stage, replayed, s3):
    """All claim-check objects are gone; what is returned brings them back, the end of the test does it in any case."""
    client = s3_client_of(s3)
    kept = {
        entry["Key"]: client.get_object(Bucket=stage.bucket, Key=entry["Key"])["Body"].read()
        for entry in client.list_objects_v2(Bucket=stage.bucket, Prefix="claim-check/")["Contents"]
    }

    def bring_back():
        for key, content in kept.items():
            client.put_object(Bucket=stage.bucket, Key=key, Body=content)

    for key in kept:
        client.delete_object(Bucket=stage.bucket, Key=key)
    yield bring_back
    bring_back()


def test_what_a_lost_object_stopped_goes_on_from_quarantine_once_it_is_back(stage, without_objects):
    window = stage.windows[3]
    with stage.jobs_by(runner="local"):
        stopped = stage.run(window, fails=True)
    assert f"{window.claim_checked} × claim_check_missing" in stopped
    without_objects()
    with stage.jobs_by(runner="local"):
        log = stage.run(window, dag="ticdc_replay_shop_quarantine", action="redrive", targets=["warehouse"])
    assert f"{window.claim_checked} messages, {window.claim_checked} rows" in log
    assert submitted(log) == ["decode", "load", "load"], "the window, and what came out of its quarantine"
    assert "open: {'warehouse': {}}" in log


def _files(folder):
    return "\n".join(file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())
