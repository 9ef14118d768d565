"""The way back of rows without commitTs: what a registry could not tell of, re-driven into a mirror by place in Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.expected import expected_events
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import assert_same_rows, last_rows
from tests.spark.test_protocols import spec
from tests.support.capture_sets import CaptureSets, Committed
from tests.support.published_captures import Topics
from tests.support.schema_registry import Registry, serve
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture, changefeed_toml
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.quarantine.entries import Selection, list_quarantine
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

TABLES = ("neg_pk", "str_pk", "part_h")
"""Their rows are inserted, updated and deleted; deletes are read without the schema of values, which they have none of."""

PIPELINE = """\
name: places
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
  config: |
    {toml}
connections: {{kafka: kafka, schema_registry: registry}}
artifacts: file://{folder}/artifacts
tables: [{tables}]
schedule: {{start: "2026-01-01T00:00:00Z"}}
policies: {{unproven: allow, quarantine: continue}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
"""


class Replay:
    """A pipeline with windows by offset."""

    def __init__(self, spark: SparkSession, context: ReplayContext) -> None:
        self.spark, self.context = spark, context

    def decode(self, window: Window) -> ChangelogIndex:
        pinned = pin(self.context, window)
        assert pinned.manifest.grade == "offset"
        return self.run(write_decode_job(self.context, pinned).uri)

    def load(self, index: ChangelogIndex) -> None:
        check(self.context, index.run_hash)
        self.run(write_load_job(self.context, index.run_hash, "mirror").uri)
        publish(self.context, index.run_hash, ["mirror"])

    def redrive(self, window: Window) -> ChangelogIndex:
        (entries,) = open_runs(self.context, Selection(window=window))
        index = self.run(write_decode_job(self.context, pin_redrive(self.context, entries)).uri)
        check_redrive(self.context, index.run_hash)
        (load,) = write_redrive_loads(self.context, index.run_hash)
        assert load.window_job is None
        self.run(load.redrive_job)
        assert publish_redrive(self.context, index.run_hash, ["mirror"]).open == {"mirror": {}}
        return index

    def run(self, uri: str) -> Any:
        job = spec(self.context, uri)
        if isinstance(job, jobspec.DecodeJob):
            return run_decode(SparkRunner(self.spark), job, self.context.connections)
        assert isinstance(job, jobspec.LoadJob)
        return run_load(SparkRunner(self.spark), job, self.context.connections)

    def quality(self) -> dict[Window, str]:
        (covered,) = coverage(self.context.pipeline, self.context.state)
        assert {span.held.grade for span in covered.target.spans} == {"offset"}
        return {span.window: span.held.quality for span in covered.target.spans}


def test_what_comes_back_into_a_window_by_offset_loses_against_what_came_later_in_kafka(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: MakeTopic,
    make_database: Callable[[], str],
    captures: CaptureSets,
    tmp_path: Path,
) -> None:
    capture = Capture(captures.of(Committed("avro", "classic", "avro-default")))
    topics = Topics(capture, make_topic)
    topics.publish(kafka.bootstrap)
    ours = [message for message in capture.messages() if message.topic in {f"cap_devdb_{name}" for name in TABLES}]
    middle = sorted(message.timestamp_ms for message in ours if message.topic == "cap_devdb_neg_pk")
    recorded = [message.timestamp_ms for message in ours]
    edges = [tso.from_ms(ms) for ms in (min(recorded), middle[len(middle) // 2], max(recorded) + 1)]
    earlier, later = Window(edges[0], edges[1]), Window(edges[1], edges[2])
    meta = json.loads((capture.folder / "meta.json").read_bytes())
    settings = meta["replica_config"]
    settings["topic-rule"] = topics.name(settings["topic-rule"])
    text = PIPELINE.format(
        sink_uri=f"kafka://broker:9092/{topics.default}?{urlsplit(meta['sink_uri']).query}",
        toml="\n    ".join(changefeed_toml(settings, "meta.json").splitlines()),
        folder=tmp_path,
        tables=", ".join(f"devdb.{table}" for table in TABLES),
    )
    (tmp_path / "places.yaml").write_text(text)
    schemas = {int(schema_id): text for schema_id, text in capture.writer_schemas().items()}
    of_values = {int.from_bytes(message.value[1:5], "big") for message in ours if message.value}
    mirror = Mirror(make_database())
    without = {number: text for number, text in schemas.items() if number not in of_values}
    with serve(Registry(without)) as registry:
        found = {
            "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
            "registry": Connection("registry", "http", host="127.0.0.1", port=registry.port),
            "target": mirror.connections["target"],
        }
        with ReplayContext(load_pipeline(tmp_path / "places.yaml"), Connections(found)) as context:
            replay = Replay(spark, context)
            lacking = replay.decode(earlier)
            aside = lacking.report.quarantine_reasons["schema_unknown"]
            assert lacking.report.quarantine_reasons == {"schema_unknown": aside}
            assert lacking.report.events.written > 0  # deletes, which the re-drive brings older versions of
            registry.schemas = schemas
            replay.load(replay.decode(later))
            replay.load(lacking)
            assert replay.quality() == {earlier: "quarantine", later: "complete"}
            again = replay.redrive(earlier)
            assert again.order == "place"
            assert again.report.quarantine_reasons == {}
            assert again.report.events.written == aside
            assert replay.quality() == {Window(earlier.from_ts, later.to_ts): "complete"}
            (run,) = list_quarantine(context, Selection())
            assert {listed.status for listed in run.entries} == {"redriven"}
    end = last_rows(expected_events(capture.folder))
    for table in TABLES:
        name = TableName("devdb", table)
        assert_same_rows(mirror, name, list(end[name].values()))
