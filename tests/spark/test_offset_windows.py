"""Rows without commitTs, from Kafka through windows by offset and Spark into a mirror, end as the upstream had them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.expected import expected_events
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import assert_same_rows, last_rows
from tests.spark.test_protocols import spec
from tests.support.capture_sets import CaptureSets, Committed
from tests.support.published_captures import Topics
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish as publish_run
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TABLES = ("acct", "bigu_pk", "bin_pk", "comp_pk", "comp_pk_nc", "neg_pk", "part_h", "replay_t", "str_pk", "uk_only")
"""Tables with all kinds of keys, inserts, updates, deletes and redelivered rows; the windows end before replay_t is dropped."""

PIPELINE = """\
name: places
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
{config}
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
tables: [{tables}]
schedule: {{start: "2026-01-01T00:00:00Z"}}
policies: {{unproven: allow}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
"""


def dropped_ms(capture: Capture) -> int:
    """When the drop of replay_t was recorded."""
    (drop,) = (message for message in capture.messages() if b"DROP TABLE `devdb`.`replay_t`" in message.value)
    return drop.timestamp_ms


class Replay:
    """A capture in a topic, and its replay in windows."""

    def __init__(
        self, spark: SparkSession, kafka: Kafka, dsn: str, capture: Capture, topics: Topics, file: Path
    ) -> None:
        self._spark = spark
        self._file = file
        self.mirror = Mirror(dsn)
        self._connections = Connections(
            {
                "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
                "target": self.mirror.connections["target"],
            }
        )
        topics.publish(kafka.bootstrap)
        self.messages = [message for message in capture.messages() if message.timestamp_ms < dropped_ms(capture)]
        times = sorted(message.timestamp_ms for message in self.messages)
        edges = [tso.from_ms(ms) for ms in (times[0], times[len(times) // 2], times[-1] + 1)]
        self.windows = (Window(edges[0], edges[1]), Window(edges[1], edges[2]))

    def context(self) -> ReplayContext:
        return ReplayContext(load_pipeline(self._file), self._connections)

    def decode(self, context: ReplayContext, window: Window) -> ChangelogIndex:
        pinned = pin(context, window)
        assert pinned.manifest.grade == "offset"
        job = spec(context, write_decode_job(context, pinned).uri)
        assert isinstance(job, jobspec.DecodeJob)
        return run_decode(SparkRunner(self._spark), job, context.connections)

    def load(self, context: ReplayContext, index: ChangelogIndex) -> None:
        check(context, index.run_hash)
        job = spec(context, write_load_job(context, index.run_hash, "mirror").uri)
        assert isinstance(job, jobspec.LoadJob)
        run_load(SparkRunner(self._spark), job, context.connections)
        publish_run(context, index.run_hash, ["mirror"])


@pytest.fixture
def replay_of(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: MakeTopic,
    make_database: Callable[[], str],
    captures: CaptureSets,
    tmp_path: Path,
) -> Callable[..., tuple[Replay, Capture]]:
    """A capture in a topic and the pipeline over it, with *config* of the changefeed."""

    def make(which: Committed, config: str = "") -> tuple[Replay, Capture]:
        capture = Capture(captures.of(which))
        topics = Topics(capture, make_topic)
        query = urlsplit(json.loads((capture.folder / "meta.json").read_bytes())["sink_uri"]).query
        text = PIPELINE.format(
            sink_uri=f"kafka://broker:9092/{topics.default}?{query}",
            config=config,
            folder=tmp_path,
            tables=", ".join(f"devdb.{table}" for table in TABLES),
        )
        (tmp_path / "places.yaml").write_text(text)
        return Replay(spark, kafka, make_database(), capture, topics, tmp_path / "places.yaml"), capture

    return make


@pytest.mark.parametrize("architecture", ["classic", "new"])
def test_windows_by_offset_in_any_order_end_as_the_upstream_had_it(
    replay_of: Callable[..., tuple[Replay, Capture]], architecture: str
) -> None:
    replay, capture = replay_of(Committed("canal-json", architecture, "canal-json"))
    with replay.context() as context:
        indexes = [replay.decode(context, window) for window in replay.windows]
        assert [index.order for index in indexes] == ["place", "place"]
        # Every message is read once, the windows share none.
        consumed = sum(index.report.messages.consumed for index in indexes)
        assert consumed == len(replay.messages)
        assert all(index.report.events.outside_window == index.report.events.duplicates == 0 for index in indexes)
        for index in reversed(indexes):
            replay.load(context, index)
        (covered,) = coverage(context.pipeline, context.state)
        assert [(span.window, span.held.grade) for span in covered.target.spans] == [
            (Window(replay.windows[0].from_ts, replay.windows[1].to_ts), "offset")
        ]
    events = expected_events(capture.folder)
    drop = next(at for at, event in enumerate(events) if (event.get("query") or "").startswith("drop table replay_t"))
    end = last_rows(events[:drop])
    for table in TABLES:
        name = TableName("devdb", table)
        assert_same_rows(replay.mirror, name, list(end[name].values()))


def test_tables_whose_rows_a_dispatcher_scatters_are_refused(
    replay_of: Callable[..., tuple[Replay, Capture]],
) -> None:
    config = '  config: |\n    [sink]\n    dispatchers = [{matcher = ["devdb.acct"], partition = "ts"}]'
    replay, _ = replay_of(Committed("canal-json", "new", "canal-json"), config)
    with replay.context() as context, pytest.raises(PermanentError, match=r"devdb\.acct: .* scatter"):
        replay.decode(context, replay.windows[1])
