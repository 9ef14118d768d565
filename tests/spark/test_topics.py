"""A changefeed that writes each table to a topic of its own, from pinning to the changelog."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.snapshot.feed import Feed, at
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.stages.window.watermark import require_watermark

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/{topic}?protocol=open-protocol
  timezone: UTC
  config: |
    [sink]
    dispatchers = [{{matcher = ["shop.*"], topic = "{topic}_{{schema}}_{{table}}"}}]
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
tables: {tables}
schedule: {{start: "2025-10-09T00:00:00Z"}}
window: {{pre_roll_seconds: 10, clock_skew_seconds: 5}}
targets:
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""
WINDOW = Window(at(60), at(120))


@pytest.fixture
def default_topic(producer: Producer, make_topic: Callable[..., str]) -> str:
    """The default topic of a changefeed of two tables, with what TiCDC sent in 130 s: a row of each table every second."""
    name = f"feed-{uuid.uuid4().hex[:8]}"
    kept = {"retention.ms": "-1"}
    main = Feed(producer, make_topic(1, kept, name), 1)
    orders = Feed(producer, make_topic(1, kept, f"{name}_shop_orders"), 1)
    items = Feed(producer, make_topic(1, kept, f"{name}_shop_items"), 1, table="items")
    stray = Feed(producer, orders.topic, 1, table="items")
    for feed in (orders, items):
        feed.ddl(0, f"CREATE TABLE `{feed.table}` (`id` INT PRIMARY KEY)")
        feed.resolved(0)
        feed.seconds(1, 64)
    stray.row(0, 64)  # at an offset that is sampled
    stray.flush()
    for feed in (orders, items):
        feed.seconds(65, 130)
    for second in range(130):
        main.resolved(second)
    main.flush()
    return name


@pytest.fixture
def replay(kafka: Kafka, default_topic: str, spark: SparkSession, tmp_path: Path) -> Callable[..., Replayed]:
    def replay(tables: str = '["*.*"]') -> Replayed:
        folder = tmp_path / uuid.uuid4().hex[:8]
        folder.mkdir()
        (folder / "shop.yaml").write_text(PIPELINE.format(topic=default_topic, folder=folder, tables=tables))
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        context = ReplayContext(load_pipeline(folder / "shop.yaml"), Connections({"kafka": broker}))
        with context:
            require_watermark(context, WINDOW)
            pinned = pin(context, WINDOW)
            written = write_decode_job(context, pinned)
            job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
            assert isinstance(job, jobspec.DecodeJob)
            index = run_decode(SparkRunner(spark), job, context.connections)
            summary = check(context, index.run_hash).summary
        root = Path(context.artifacts_uri.removeprefix("file://")) / changelog_root(index.run_hash)
        return Replayed([topic.topic for topic in pinned.manifest.topics], pinned.manifest.grade, index, root, summary)

    return replay


class Replayed:
    """What came of a window."""

    def __init__(self, topics: list[str], grade: str, index: ChangelogIndex, root: Path, summary: str) -> None:
        self.topics, self.grade, self.index, self.summary = topics, grade, index, summary
        self._root = root

    def commits(self, table: str) -> list[int]:
        """The commitTs of the table's rows in the changelog."""
        files = [file for version in self.index.tables if version.schema.name.table == table for file in version.files]
        tables = [pq.read_table(self._root / file.name, columns=["_commit_ts"], partitioning=None) for file in files]
        return sorted(number for table in tables for number in table["_commit_ts"].to_pylist())


def test_rows_of_all_topics_come_together(replay: Callable[..., Replayed], default_topic: str) -> None:
    done = replay()
    assert done.topics == [default_topic, f"{default_topic}_shop_items", f"{default_topic}_shop_orders"]
    assert done.grade == "proven"
    seconds = [at(second) for second in range(60, 120)]
    assert done.commits("orders") == [at(second) for second in range(60, 120) if second != 64]
    assert done.commits("items") == seconds, "the one in the wrong topic included"
    assert done.index.report.undeclared_tables == (), "the DDL of each topic is known"


def test_a_row_in_the_wrong_topic_is_told(replay: Callable[..., Replayed], default_topic: str) -> None:
    done = replay()
    (found,) = done.index.report.elsewhere
    assert (found.table, found.rows) == ("shop.items", 1)
    assert found.example == f"{default_topic}_shop_orders[0]@128, not {default_topic}_shop_items[0]"
    assert f"1 of {done.index.report.events.placed} sampled rows stand in another topic" in done.summary


def test_a_topic_that_is_recreated_while_it_is_read_is_not_taken_for_the_one_that_was_pinned(
    replay: Callable[..., Replayed],
    default_topic: str,
    kafka: Kafka,
    producer: Producer,
    make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders, run = f"{default_topic}_shop_orders", SparkRunner.run
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def run_after(runner: SparkRunner, work: Any, tasks: Any, name: str, *sizes: Any) -> Any:
        if name == "decode":  # topics were looked at by then
            admin.delete_topics([orders])[orders].result(PATIENCE_S)
            wait_for("the topic to go", lambda: orders not in admin.list_topics(timeout=PATIENCE_S).topics)
            make_topic(1, {"retention.ms": "-1"}, orders)
            Feed(producer, orders, 1).seconds(200, 400)  # as many offsets, other rows
        return run(runner, work, tasks, name, *sizes)

    monkeypatch.setattr(SparkRunner, "run", run_after)
    with pytest.raises(TopicChangedError, match=f"topic {orders} was recreated"):
        replay()


def test_topics_of_other_tables_are_not_read(replay: Callable[..., Replayed], default_topic: str) -> None:
    done = replay('["shop.items"]')
    assert done.topics == [default_topic, f"{default_topic}_shop_items"]
    assert len(done.commits("items")) == 59, "without the one in the topic of orders"
