"""What no decode has covered is scanned on Spark, once; a decode's offsets never."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.capture_sets import CaptureSets, Committed
from tests.support.published_captures import Topics
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture, changefeed_toml
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.scan import run_scan
from ticdc_replay.jobspec import DecodeJob, ScanJob
from ticdc_replay.reconcile.judge.records import REFERENCES
from ticdc_replay.reconcile.look.scan_report import ScanReport, record_scan
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.store_stages.scan import (
    KnownReferences,
    SearchedFeed,
    known_references,
    scan_feed,
    searched_feed,
    write_scan_job,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PIPELINE = """\
name: shop
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
  config: |
    {toml}
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
tables: ["*.*"]
schedule: {{start: "2026-01-01T00:00:00Z"}}
window: {{list_claim_check_store: false, pre_roll_seconds: 0, clock_skew_seconds: 0}}
limits: {{split_bytes: 1048576}}
policies: {{unproven: allow, target_value: quarantine, damaged: accept}}
targets:
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""


class Reconciled:
    """A changefeed and the store that its claim checks are in."""

    def __init__(self, context: ReplayContext, state: StateStore, store: ObjectStore, spark: SparkSession) -> None:
        self.context, self.state, self.store = context, state, store
        self._spark = spark

    def searched(self) -> SearchedFeed:
        return searched_feed(self.context, self.state, self.store, ())

    def known(self) -> KnownReferences:
        return known_references(self.context, self.state, self.store)

    def planned(self) -> ScanJob:
        feed = scan_feed(self.context, self.searched(), self.store)
        uri = write_scan_job("claims", self.store, None, [feed]).uri
        job = jobspec.decode(self.store.get(uri.removeprefix(f"{self.store.root}/")))
        assert isinstance(job, ScanJob)
        return job

    def scan(self, job: ScanJob | None = None) -> ScanReport:
        report = run_scan(SparkRunner(self._spark), job or self.planned(), self.context.connections)
        record_scan(self.state, report)
        return report

    def references(self, report: ScanReport) -> list[dict[str, Any]]:
        filesystem, root = self.store.arrow_filesystem()
        tables = [pq.read_table(f"{root}/{name}", filesystem=filesystem) for name in report.files()]
        assert all(table.schema == REFERENCES for table in tables)
        return [row for table in tables for row in table.to_pylist()]

    def decode(self, window: Window) -> None:
        written = write_decode_job(self.context, pin(self.context, window))
        job = jobspec.decode(self.context.artifacts.get(written.uri.removeprefix(self.context.artifacts_uri + "/")))
        assert isinstance(job, DecodeJob)
        check(self.context, run_decode(SparkRunner(self._spark), job, self.context.connections).run_hash)


@pytest.fixture
def reconciled(
    captures: CaptureSets, kafka: Kafka, make_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[[Committed], Reconciled]]:
    """Publishes a capture, and gives its changefeed."""
    opened: list[Reconciled] = []

    def publish(committed: Committed) -> Reconciled:
        capture = Capture(captures.of(committed))
        topics = Topics(capture, make_topic)
        topics.publish(kafka.bootstrap)
        meta = json.loads((capture.folder / "meta.json").read_bytes())
        settings = meta["replica_config"]
        settings["large-message-handle"]["claim-check-storage-uri"] = capture.objects
        settings["topic-rule"] = topics.name(settings["topic-rule"]) if settings["topic-rule"] else ""
        text = PIPELINE.format(
            sink_uri=f"kafka://broker:9092/{topics.default}?{urlsplit(meta['sink_uri']).query}",
            toml="\n    ".join(changefeed_toml(settings, "meta.json").splitlines()),
            folder=tmp_path,
        )
        (tmp_path / "shop.yaml").write_text(text)
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        context = ReplayContext(load_pipeline(tmp_path / "shop.yaml"), Connections({"kafka": broker}))
        state = open_state(f"sqlite:///{tmp_path}/claims.db")
        opened.append(Reconciled(context, state, open_store((tmp_path / "claims").as_uri()), spark))
        return opened[-1]

    yield publish
    for each in opened:
        each.state.close()
        each.context.__exit__()


@pytest.mark.parametrize(
    "committed",
    [
        Committed("open", "classic", "open-claim-check-lz4"),
        Committed("simple-json", "new", "simple-json-claim-check-raw-lz4"),
    ],
    ids=str,
)
def test_all_references_of_a_topic_that_was_never_decoded_are_found_once(
    reconciled: Callable[[Committed], Reconciled], captures: CaptureSets, committed: Committed
) -> None:
    changefeed = reconciled(committed)
    before = changefeed.searched()
    assert before.unsearched == before.retained.ranges
    job = changefeed.planned()
    report = changefeed.scan(job)
    references = changefeed.references(report)
    objects = Capture(captures.of(committed)).folder / "objects"
    assert {row["object_name"] for row in references} == {path.name for path in objects.iterdir()}
    assert all(row["key_hash"] for row in references), "of Simple, too: the definitions were looked for"
    (feed,) = report.feeds
    assert feed.counts.references == len(references)
    assert feed.counts.messages == sum(part.length for part in before.retained.ranges)
    after = changefeed.searched()
    assert after.unsearched == ()
    assert changefeed.known().scanned == report.files()
    assert changefeed.scan(job) == report, "a repeat finds the report"
    for name in report.files():
        changefeed.store.delete(name)
    assert {part.topic for part in changefeed.searched().unsearched} == {row["topic"] for row in references}


def test_what_a_decode_covered_is_not_scanned(
    reconciled: Callable[[Committed], Reconciled], captures: CaptureSets
) -> None:
    committed = Committed("canal-json", "new", "canal-json-claim-check-raw-snappy")
    changefeed = reconciled(committed)
    all_of_it = changefeed.searched().retained.ranges
    capture = Capture(captures.of(committed))
    codec = codec_for(capture.changefeed(), 1 << 26)
    times = sorted(
        event.commit_ts
        for message in capture.messages()
        for event in codec.decode(message)
        if isinstance(event, RowEvent) and event.commit_ts is not None
    )
    window = Window(times[0], tso.from_ms(tso.physical_ms(times[len(times) // 2])))
    changefeed.decode(window)
    searched = changefeed.searched()
    assert 0 < sum(part.length for part in searched.unsearched) < sum(part.length for part in all_of_it)
    report = changefeed.scan()
    assert report.feeds[0].counts.messages == sum(part.length for part in searched.unsearched)
    filesystem, root = changefeed.context.artifacts.arrow_filesystem()
    by_decode = {
        name
        for files in changefeed.known().decoded
        for file in files.names
        for name in pq.read_table(f"{root}/{file}", filesystem=filesystem)["object_name"].to_pylist()
    }
    by_scan = {row["object_name"] for row in changefeed.references(report)}
    objects = {path.name for path in (capture.folder / "objects").iterdir()}
    assert by_decode
    assert by_decode | by_scan == objects
    assert changefeed.searched().unsearched == ()


def test_a_topic_that_was_recreated_after_planning_is_not_scanned(
    reconciled: Callable[[Committed], Reconciled],
) -> None:
    changefeed = reconciled(Committed("open", "new", "open-claim-check"))
    job = changefeed.planned()
    (feed,) = job.feeds
    other = msgspec.structs.replace(feed, topic_ids=dict.fromkeys(feed.topic_ids, "AAAAAAAAAAAAAAAAAAAAAA"))
    with pytest.raises(TopicChangedError, match="was recreated"):
        changefeed.scan(msgspec.structs.replace(job, feeds=(other,)))
