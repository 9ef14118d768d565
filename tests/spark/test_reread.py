"""Rows of which only the handle key was sent, from Kafka through Spark into PostgreSQL, read again from the upstream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pyarrow.parquet as pq
import pytest

from tests import mariadb
from tests.capture_sets import CaptureSets, Committed
from tests.expected import expected_events
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import assert_same_rows, last_rows
from tests.published_captures import Topics
from tests.typed_cells import same_value
from tests.upstream_history import Definition, Upstream, shown
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture, changefeed_toml
from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.changelog.layout import changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.load import run_load
from ticdc_replay.stages.check import check
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.pin import pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

CAPTURES = (
    Committed("canal-json", "classic", "canal-json-handle-key-only"),
    Committed("open", "new", "open-handle-key-only"),
    Committed("simple-avro", "new", "simple-avro-handle-key-only"),
)

PIPELINE = """\
name: reread
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
  config: |
    {toml}
connections: {{kafka: kafka, source: source}}
artifacts: file://{folder}/artifacts
schedule: {{start: "2026-01-01T00:00:00Z"}}
policies: {{unproven: allow, handle_key_only: reread}}
targets:
  - {{name: first, type: postgres, connection: first}}
  - {{name: second, type: postgres, connection: second}}
"""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs) -> Iterator[Connection]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as connection:
        yield connection


def definitions(events: list[Json]) -> list[Definition]:
    """The definitions that DDL of ``large`` made: tables with single words as names, and one ADD COLUMN."""
    found: dict[str, Definition] = {}
    history = []
    for event in events:
        words = event["query"].split() if event["type"] == "ddl" else []
        if words[:2] == ["create", "table"]:
            made = Definition(event["schema"], event["table"], event["commit_ts"], event["query"])
        elif words[:2] == ["alter", "table"]:
            added = event["query"].partition(" add column ")[2]
            before = found[event["table"]]
            made = before._replace(commit_ts=event["commit_ts"], create=f"{before.create[:-1]}, {added})")
        else:
            continue
        found[event["table"]] = made
        history.append(made)
    return history


def rows_of(context: ReplayContext, index: ChangelogIndex) -> dict[tuple[int, str, str, str], Json]:
    """The rows of a changelog, by commitTs, table, operation and key."""
    root = Path(context.artifacts_uri.removeprefix("file://")) / changelog_root(index.run_hash)
    found = {}
    for version in index.tables:
        for file in version.files:
            for row in pq.read_table(root / file.name, partitioning=None).to_pylist():
                key = {name: (row["after"] or row["before"])[name] for name in version.schema.handle_key}
                found[row["_commit_ts"], version.schema.name.table, row["_op"], str(sorted(key.items()))] = row
    return found


def assert_as_it_happened(rows: dict[tuple[int, str, str, str], Json], events: list[Json]) -> None:
    """Each event is a row, with both images as the upstream had them."""
    left = dict(rows)
    for event in events:
        if event["type"] == "ddl":
            continue
        at = (event["commit_ts"], event["table"], event["type"])
        alike = [
            name
            for name, row in left.items()
            if name[:3] == at
            and all(
                same_value((row["after"] or row["before"])[key], (event.get("columns") or event["pre"])[key])
                for key in event["handle_key"]
            )
        ]
        (name,) = alike
        row = left.pop(name)
        for side, wanted in (("after", event.get("columns")), ("before", event.get("pre"))):
            assert (row[side] is None) == (wanted is None), name
            for column, cell in (wanted or {}).items():
                assert same_value(row[side][column], cell), (name, side, column)
    assert left == {}


@pytest.mark.parametrize("which", CAPTURES, ids=str)
def test_rows_are_whole_and_a_replay_gives_them_again_without_the_source(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: MakeTopic,
    make_database: Callable[[], str],
    captures: CaptureSets,
    server: Connection,
    tmp_path: Path,
    which: Committed,
) -> None:
    capture = Capture(captures.of(which))
    events = expected_events(capture.folder)
    meta = json.loads((capture.folder / "meta.json").read_bytes())
    topics = Topics(capture, make_topic)
    topics.publish(kafka.bootstrap)
    toml = changefeed_toml(meta["replica_config"], "meta.json").replace("\n", "\n    ")
    sink_uri = f"kafka://broker:9092/{topics.default}?{urlsplit(meta['sink_uri']).query}"
    (tmp_path / "reread.yaml").write_text(PIPELINE.format(sink_uri=sink_uri, toml=toml, folder=tmp_path))
    mirrors = {name: Mirror(make_database()) for name in ("first", "second")}
    times = [event["commit_ts"] for event in events]
    upstream = Upstream(definitions(events), events)
    upstream.happen(server)
    with shown(upstream, server) as source:
        found = {
            "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
            "source": source,
            **{name: mirror.connections["target"] for name, mirror in mirrors.items()},
        }
        with ReplayContext(load_pipeline(tmp_path / "reread.yaml"), Connections(found)) as context:
            pinned = pin(context, Window(min(times) - 1, max(times) + 1))
            job = spec(context, write_decode_job(context, pinned).uri)
            assert isinstance(job, jobspec.DecodeJob)
            first = run_decode(spark, job, context.connections)
            mariadb.execute(server, "DROP DATABASE devlarge", "DROP TABLE mysql.tidb")
            later = run_decode(spark, msgspec.structs.replace(job, library_version="later"), context.connections)
            assert first.report.events.reread == later.report.events.reread > 0
            assert first.report.quarantine_reasons == later.report.quarantine_reasons == {}
            assert first.run_hash != later.run_hash
            rows = rows_of(context, first)
            assert rows_of(context, later) == rows
            assert_as_it_happened(rows, events)
            for index, (name, mirror) in zip((first, later), mirrors.items(), strict=True):
                check(context, index.run_hash)
                load = spec(context, write_load_job(context, index.run_hash, name).uri)
                assert isinstance(load, jobspec.LoadJob)
                run_load(spark, load, context.connections)
                for table, wanted in last_rows(events).items():
                    assert_same_rows(mirror, table, list(wanted.values()))


def spec(context: ReplayContext, uri: str) -> object:
    return jobspec.decode(context.artifacts.get(uri.removeprefix(context.artifacts_uri + "/")))
