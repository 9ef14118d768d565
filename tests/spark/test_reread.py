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

from tests.expected import expected_events
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import assert_same_rows, last_rows
from tests.support import mariadb
from tests.support.capture_sets import CaptureSets, Committed
from tests.support.published_captures import Topics
from tests.support.typed_cells import same_value
from tests.support.upstream_history import Definition, Upstream, shown
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture, changefeed_toml
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.quarantine.entries import Selection
from ticdc_replay.stages.quarantine.redrive import (
    check_redrive,
    open_runs,
    pin_redrive,
    publish_redrive,
    write_redrive_loads,
)
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin

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
connections: {{kafka: kafka{source}}}
artifacts: file://{folder}/artifacts
schedule: {{start: "2026-01-01T00:00:00Z"}}
policies: {{unproven: allow, handle_key_only: {policy}}}
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


class Feed:
    """A capture in a topic of its own, and pipelines over it."""

    def __init__(self, kafka: Kafka, make_topic: MakeTopic, capture: Capture, folder: Path) -> None:
        self.capture, self.folder = capture, folder
        self.events = expected_events(capture.folder)
        self.kafka = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        self._topics = Topics(capture, make_topic)
        self._topics.publish(kafka.bootstrap)

    @property
    def window(self) -> Window:
        times = [event["commit_ts"] for event in self.events]
        return Window(min(times) - 1, max(times) + 1)

    def context(self, connections: dict[str, Connection]) -> ReplayContext:
        """The pipeline; with a source among *connections*, rows of which only the key was sent are read there."""
        meta = json.loads((self.capture.folder / "meta.json").read_bytes())
        text = PIPELINE.format(
            sink_uri=f"kafka://broker:9092/{self._topics.default}?{urlsplit(meta['sink_uri']).query}",
            toml=changefeed_toml(meta["replica_config"], "meta.json").replace("\n", "\n    "),
            folder=self.folder,
            source=", source: source" if "source" in connections else "",
            policy="reread" if "source" in connections else "quarantine",
        )
        file = self.folder / "reread.yaml"
        file.write_text(text)
        return ReplayContext(load_pipeline(file), Connections({"kafka": self.kafka, **connections}))


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
    feed = Feed(kafka, make_topic, Capture(captures.of(which)), tmp_path)
    events = feed.events
    mirrors = {name: Mirror(make_database()) for name in ("first", "second")}
    upstream = Upstream(definitions(events), events)
    upstream.happen(server)
    with shown(upstream, server) as source:
        found = {"source": source, **{name: mirror.connections["target"] for name, mirror in mirrors.items()}}
        with feed.context(found) as context:
            pinned = pin(context, feed.window)
            job = spec(context, write_decode_job(context, pinned).uri)
            assert isinstance(job, jobspec.DecodeJob)
            first = run_decode(SparkRunner(spark), job, context.connections)
            mariadb.execute(server, "DROP DATABASE devlarge", "DROP TABLE mysql.tidb")
            later = run_decode(
                SparkRunner(spark), msgspec.structs.replace(job, library_version="later"), context.connections
            )
            assert first.report.events.reread == later.report.events.reread > 0
            assert first.report.quarantine_reasons == later.report.quarantine_reasons == {}
            assert first.run_hash != later.run_hash
            rows = rows_of(context, first)
            assert rows_of(context, later) == rows
            assert_as_it_happened(rows, events)
            for index, (name, mirror) in zip((first, later), mirrors.items(), strict=True):
                check(context, index.run_hash)
                loaded(spark, context, write_load_job(context, index.run_hash, name).uri)
                for table, wanted in last_rows(events).items():
                    assert_same_rows(mirror, table, list(wanted.values()))


def test_rows_in_quarantine_come_back_once_the_source_may_be_asked(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: MakeTopic,
    make_database: Callable[[], str],
    captures: CaptureSets,
    server: Connection,
    tmp_path: Path,
) -> None:
    feed = Feed(kafka, make_topic, Capture(captures.of(CAPTURES[1])), tmp_path)
    mirror = Mirror(make_database())
    targets = dict.fromkeys(("first", "second"), mirror.connections["target"])
    with feed.context(targets) as context:
        index = decoded(spark, context, pin(context, feed.window))
        aside = index.report.quarantine_reasons
        assert set(aside) == {"handle_key_only"}
        check(context, index.run_hash)
        loaded(spark, context, write_load_job(context, index.run_hash, "first").uri)
        publish(context, index.run_hash, ["first"])
        assert coverage(context.pipeline, context.state)[0].target.spans[0].held.quality == "quarantine"

    upstream = Upstream(definitions(feed.events), feed.events)
    upstream.happen(server)
    with shown(upstream, server) as source, feed.context({"source": source, **targets}) as context:
        (entries,) = open_runs(context, Selection())
        again = decoded(spark, context, pin_redrive(context, entries))
        assert again.report.quarantine_reasons == {}
        assert again.report.events.reread == again.report.events.written == aside["handle_key_only"]
        check_redrive(context, again.run_hash)
        (load,) = write_redrive_loads(context, again.run_hash)
        loaded(spark, context, load.redrive_job)
        publish_redrive(context, again.run_hash, ["first"])
        assert coverage(context.pipeline, context.state)[0].target.spans[0].held.quality == "complete"
    mariadb.execute(server, "DROP DATABASE devlarge", "DROP TABLE mysql.tidb")
    for table, wanted in last_rows(feed.events).items():
        assert_same_rows(mirror, table, list(wanted.values()))


def decoded(spark: SparkSession, context: ReplayContext, pinned: PinnedManifest) -> ChangelogIndex:
    job = spec(context, write_decode_job(context, pinned).uri)
    assert isinstance(job, jobspec.DecodeJob)
    return run_decode(SparkRunner(spark), job, context.connections)


def loaded(spark: SparkSession, context: ReplayContext, uri: str) -> None:
    job = spec(context, uri)
    assert isinstance(job, jobspec.LoadJob)
    run_load(SparkRunner(spark), job, context.connections)


def spec(context: ReplayContext, uri: str) -> object:
    return jobspec.decode(context.artifacts.get(uri.removeprefix(context.artifacts_uri + "/")))
