"""CONTRIBUTING.md's recipe for a new protocol, followed with a package outside of the library: all stages and pages have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.packages import PLAIN_JSON, install
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.protocols import find_protocol
from ticdc_replay.domain import tso

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.integration]

PROJECT = Path(__file__).parents[2]
START_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
ORDERS = {"schema": "shop", "table": "orders"}
TYPES = {"types": {"id": "bigint", "state": "varchar"}, "key": ["id"]}


def at(second: int) -> int:
    """The TSO of *second*."""
    return tso.from_ms(START_MS + 1000 * second)


CREATE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(20))"
DOCUMENTS: list[dict[str, Any]] = [
    *({"op": "watermark", "ts": at(second)} for second in range(1, 60)),
    {"op": "ddl", "ts": at(61), "ddl": CREATE, **ORDERS},
    {"op": "insert", "ts": at(62), "after": {"id": 1, "state": "new"}, **ORDERS, **TYPES},
    {"op": "insert", "ts": at(63), "after": {"id": 2, "state": "new"}, **ORDERS, **TYPES},
    {"op": "update", "ts": at(64), "before": {"id": 1, "state": "new"}, "after": {"id": 1, "state": "paid"}, **ORDERS, **TYPES},
    {"op": "delete", "ts": at(65), "before": {"id": 2, "state": "new"}, **ORDERS, **TYPES},
    *({"op": "watermark", "ts": at(second)} for second in range(66, 130)),
]  # fmt: skip


@pytest.fixture
def topic(make_topic, producer: Producer) -> str:
    """A topic with the documents."""
    name: str = make_topic(1, {"retention.ms": "-1"})
    for document in DOCUMENTS:
        value, recorded_ms = json.dumps(document).encode(), (document["ts"] >> 18) + 300
        producer.produce(name, value, partition=0, timestamp=recorded_ms)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def run(kafka, java_home, topic, pipelines, tmp_path, monkeypatch):
    """Runs the command for the window; the pipeline and the package are there for this process, too."""
    site = install(PLAIN_JSON, tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    find_protocol.cache_clear()
    file = pipelines.add(
        "journal",
        {
            "changefeed": {"sink_uri": f"kafka://b/{topic}?protocol=plain-json", "timezone": "UTC"},
            "connections": {"kafka": "kafka"},
            "artifacts": (tmp_path / "artifacts").as_uri(),
            "targets": [{"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()}],
        },
    )
    connections = tmp_path / "connections.yaml"
    connections.touch(mode=0o600)
    extra = {"bootstrap.servers": kafka.bootstrap}
    connections.write_text(yaml.safe_dump({"kafka": {"conn_type": "kafka", "extra": extra}}))
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    command = Path(sys.executable).with_name("ticdc-replay")

    def run(verb: str, *options: str) -> str:
        moments = ("--from", str(at(60)), "--to", str(at(120)), "--connections", str(connections))
        done = subprocess.run(
            [command, verb, file, *moments, *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    find_protocol.cache_clear()


def test_a_protocol_of_another_package_is_planned_decoded_checked_loaded_and_shown(run, parse, signed_in, tmp_path):
    assert "rates of benchmarks for plain-json on 2 cores" in run("plan", "--cores", "2")

    run("run", "--master", "local[1]")

    (changelog,) = (tmp_path / "lake" / "journal" / "changelog").rglob("*.parquet")
    rows = pq.read_table(changelog, partitioning=None).to_pylist()
    assert [(row["_op"], row["_commit_ts"], row["before"], row["after"]) for row in rows] == [
        (document["op"], document["ts"], document.get("before"), document.get("after"))
        for document in DOCUMENTS
        if "types" in document
    ]
    (report,) = (tmp_path / "artifacts" / "journal" / "reports").iterdir()
    published = json.loads(report.read_text())
    assert (published["grade"], published["reasons"]) == ("proven", [])
    assert {name: published["events"][name] for name in ("rows", "ddl", "placed")} == {"rows": 4, "ddl": 1, "placed": 4}

    assert "| protocol | `plain-json` |" in parse().dags["ticdc_replay_journal"].doc_md
    page = signed_in.get("/ticdc-replay/coverage/ticdc_replay_journal")
    assert page.status_code == 200
    assert "No gap." in page.text
    assert "shop.orders" in page.text


def test_the_recipe_shows_the_entry_point_of_this_package():
    recipe = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Recipe: a new protocol")[2]
    shown = dedent(recipe.partition("```toml")[2].partition("```")[0]).strip()
    assert shown in (PLAIN_JSON / "pyproject.toml").read_text(encoding="utf-8")
    assert shown.startswith("[project.entry-points.")
