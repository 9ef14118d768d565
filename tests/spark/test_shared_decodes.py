"""Windows that are taken from changelogs: of a wider window that is decoded once, and of what Kafka has expired."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.open_protocol import columns, message, resolved, row
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index, read_rows
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    ExpiredRangeError,
    NotCoveredError,
    PermanentError,
    WatermarkNotReachedError,
)
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import RunReport, publish
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin, require_input
from ticdc_replay.stages.window.shared import decoding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

HOUR_MS = 3_600_000
HOURS, LAG_HOURS, PARTITIONS = 6, 3, 2
STEP_MS = 10 * 60_000
BEGIN_MS = (time.time_ns() // 1_000_000 // (6 * HOUR_MS) - 8) * 6 * HOUR_MS
"""A multiple of six hours, long enough ago for all that lags behind it."""

PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/{topic}?protocol=open-protocol&partition-num={partitions}
  timezone: UTC
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
tables: [{tables}]
schedule: {{start: "2020-01-01T00:00:00Z"}}
window: {{{window}}}
targets:
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""


def hours(first: int, last: int) -> Window:
    """From the beginning of the hour *first* to the beginning of *last*."""
    return Window(tso.from_ms(BEGIN_MS + first * HOUR_MS), tso.from_ms(BEGIN_MS + last * HOUR_MS))


class Feed:
    """A changefeed that lags by hours: each row is recorded that much later than it was committed."""

    def __init__(self, spark: SparkSession, kafka: Kafka, topic: str, folder: Path) -> None:
        self.spark, self.kafka, self.topic, self.folder = spark, kafka, topic, folder
        self.contexts: list[ReplayContext] = []

    def send(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 5})
        for number, at_ms in enumerate(range(BEGIN_MS - HOUR_MS, BEGIN_MS + (HOURS + 1) * HOUR_MS, STEP_MS)):
            commit_ts = tso.from_ms(at_ms)
            for partition in range(PARTITIONS):
                change = row(commit_ts + 1, new=columns(number % 5, f"{number} in {partition}"), table=f"t{partition}")
                other = row(commit_ts + 2, new=columns(number, "x"), table="other")
                for events in ([change], [other], [change], [resolved(commit_ts)]):
                    made = message(events, 0)
                    recorded_ms = at_ms + LAG_HOURS * HOUR_MS
                    producer.produce(self.topic, made.value, made.key, partition=partition, timestamp=recorded_ms)
        assert producer.flush(PATIENCE_S) == 0

    def expire(self, keep: int = 0) -> None:
        """Kafka holds the last *keep* messages of each partition, and nothing else, any more."""
        partitions = [Partition(self.topic, number) for number in range(PARTITIONS)]
        with Offsets(self.contexts[0].kafka) as offsets:
            bounds = offsets.bounds(partitions)
        places = [TopicPartition(each.topic, each.number, bounds[each].high - keep) for each in partitions]
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for future in admin.delete_records(places).values():
            future.result(PATIENCE_S)

    def pipeline(self, name: str = "a", *, window: str = "", tables: str = '"*.*"') -> ReplayContext:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        text = PIPELINE.format(topic=self.topic, partitions=PARTITIONS, folder=folder, window=window, tables=tables)
        (folder / "shop.yaml").write_text(text)
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": self.kafka.bootstrap})
        context = ReplayContext(load_pipeline(folder / "shop.yaml"), Connections({"kafka": broker}))
        self.contexts.append(context)
        return context

    def decode(self, context: ReplayContext, window: Window, **asked: bool) -> ChangelogIndex:
        """Pin and decode *window* as the DAG does."""
        require_input(context, window)
        return self.run(context, pin(context, window, **asked))

    def run(self, context: ReplayContext, pinned: PinnedManifest) -> ChangelogIndex:
        """Decode what is pinned."""
        written = write_decode_job(context, pinned)
        job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.DecodeJob)
        with decoding(context, pinned.name, written.run_hash, written.shared, poll_s=0.1):
            index = run_decode(SparkRunner(self.spark), job, context.connections)
            check(context, index.run_hash)
        return index

    def load(self, context: ReplayContext, index: ChangelogIndex) -> RunReport:
        written = write_load_job(context, index.run_hash, "lake")
        job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        run_load(SparkRunner(self.spark), job, context.connections)
        return publish(context, index.run_hash, ["lake"])


@pytest.fixture(scope="module")
def sent(spark: SparkSession, kafka: Kafka) -> str:
    """A topic that nobody changes."""
    topic = f"lagging-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    create_topic(admin, topic, PARTITIONS)
    Feed(spark, kafka, topic, Path()).send()
    return topic


@pytest.fixture
def make_feed(spark: SparkSession, kafka: Kafka, sent: str, tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    made: list[Feed] = []

    def make(topic: str = sent) -> Feed:
        made.append(Feed(spark, kafka, topic, tmp_path))
        return made[-1]

    yield make
    for feed in made:
        for context in feed.contexts:
            context.__exit__()


def content(context: ReplayContext, index: ChangelogIndex) -> list[str]:
    """The rows of a changelog as sorted text, without the place of the copy that was kept."""
    found = []
    for version, rows in read_rows(context.artifacts, index):
        for each in rows.to_pylist():
            kept = {name: value for name, value in each.items() if name != "_offset"}
            found.append(f"{version.schema.name} {version.version} {kept!r}")
    return sorted(found)


def test_windows_that_lie_in_one_span_read_kafka_once_and_have_the_rows_of_their_own_decode(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed()
    shared = feed.pipeline("shared", window=f"decode_hours: {HOURS}")
    alone = feed.pipeline("alone")
    consumed, rows = 0, 0
    for hour in (4, 0):
        index = feed.decode(shared, hours(hour, hour + 1))
        own = feed.decode(alone, hours(hour, hour + 1))
        assert content(shared, index) == content(alone, own) != []
        assert index.report.messages.consumed == 0
        assert [source.window for source in index.derived] == [index.window]
        rows += index.report.events.written
        consumed += own.report.messages.bytes
    (source,) = {source.run_hash for source in index.derived}
    wide = read_index(shared.artifacts, source)
    assert wide.window == hours(0, HOURS)
    assert wide.report.events.written == HOURS / 2 * rows
    assert wide.report.messages.bytes < consumed * HOURS / 2, "alone they read more than all of them together"
    recorded = {run.run_hash: run.counts["messages_consumed"] for run in shared.state.runs.all("shop")}
    assert [number for number in recorded.values() if number] == [wide.report.messages.consumed]
    report = feed.load(shared, index)
    assert report.derived == index.derived
    assert report.targets[0].tables[0].events > 0


def test_of_windows_that_come_at_once_one_decodes_what_they_share(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed()
    context = feed.pipeline(window=f"decode_hours: {HOURS}")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda hour: feed.decode(context, hours(hour, hour + 1)), range(3)))
    assert len({source for index in found for source in index.derived if source.run_hash}) == 3
    (source,) = {source.run_hash for index in found for source in index.derived}
    attempts = {
        name.name.rpartition("/")[2].partition("-")[0] for name in context.artifacts.list(f"runs/{source}/data/")
    }
    assert len(attempts) == 1
    assert context.state.leases.current(context.artifacts.uri(f"runs/{source}")) == []


def test_a_window_whose_span_is_not_over_is_decoded_by_itself(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed()
    context = feed.pipeline(window="decode_hours: 12")  # what was sent ends in the middle of one, or begins there
    index = feed.decode(context, hours(5, 6))
    assert index.derived == ()
    assert index.report.messages.consumed > 0


def test_a_window_that_kafka_has_expired_is_taken_from_changelogs_that_hold_it(
    make_feed: Callable[..., Feed], make_topic: MakeTopic
) -> None:
    feed = make_feed(make_topic(PARTITIONS))
    feed.send()
    context = feed.pipeline()
    first, second = feed.decode(context, hours(0, 2)), feed.decode(context, hours(2, 4))
    feed.expire(keep=1)
    never = feed.pipeline(window="from_changelog: never")
    with pytest.raises(ExpiredRangeError, match="starts before what Kafka still holds"):
        pin(never, hours(1, 4))
    with pytest.raises(
        ExpiredRangeError, match=r"Changelogs do not hold it either: .* no changelog that can be used holds \["
    ):
        pin(context, hours(3, 5))
    same = feed.decode(context, hours(0, 2), repin=True)
    assert same.report.messages.consumed == 0
    assert same.input_hash != first.input_hash
    assert content(context, same) == content(context, first)
    feed.expire()
    across = feed.decode(context, hours(1, 3))
    assert [(source.run_hash, source.window) for source in across.derived] == [
        (first.run_hash, hours(1, 2)),
        (second.run_hash, hours(2, 3)),
    ]
    expected = {*content(context, first), *content(context, second)}
    middle = [line for line in expected if any(f"'_commit_ts': {at}," in line for at in _times(hours(1, 3)))]
    assert content(context, across) == sorted(middle) != []
    assert feed.load(context, across).derived == across.derived
    (lake,) = coverage(context.pipeline, context.state)
    assert lake.derived == (hours(1, 3),)
    with pytest.raises(NotCoveredError, match=r"no changelog that can be used holds \["):
        pin(context, hours(3, 5), from_changelog=True)
    with pytest.raises(WatermarkNotReachedError, match="is not complete in Kafka"):
        pin(never, hours(1, 4))
    assert pin(feed.pipeline(), hours(1, 4)).manifest.derived != ()
    context.artifacts.delete(f"runs/{second.run_hash}/{second.tables[0].files[0].name}")
    with pytest.raises(ArtifactNotFoundError, match=r"is taken from it\. Restore the files"):
        feed.run(context, pin(context, hours(1, 3)))
    assert read_index(context.artifacts, across.run_hash) == across, "it counts again once they are restored"


def test_a_row_that_is_named_later_reaches_no_window_that_is_taken_from_changelogs(
    make_feed: Callable[..., Feed],
) -> None:
    """Each row was sent twice, two messages apart: both copies are named."""
    feed = make_feed()
    context = feed.pipeline(window=f"decode_hours: {HOURS}")
    hour, part = hours(4, 5), Window(hours(4, 5).from_ts, hours(4, 5).from_ts + tso.from_ms(HOUR_MS // 2))
    shared = feed.decode(context, hour)
    derived = feed.decode(context, part, from_changelog=True, repin=True)
    first = min(
        (row for version, rows in read_rows(context.artifacts, derived, tables=["s.t0"]) for row in rows.to_pylist()),
        key=lambda row: row["_offset"],
    )
    offsets = first["_offset"], first["_offset"] + 2
    places = tuple(f"{feed.topic}[{first['_partition']}]@{offset}" for offset in offsets)
    declared = context.pipeline
    policies = declared.policies.model_copy(update={"quarantine": "continue"})
    loaded = context.loaded._replace(pipeline=declared.model_copy(update={"set_aside": places, "policies": policies}))
    feed.contexts.append(named := ReplayContext(loaded, context.connections))

    for index in (shared, derived):
        with pytest.raises(PermanentError, match="which set_aside of the pipeline file names"):
            check(named, index.run_hash)
    with pytest.raises(NotCoveredError, match="which set_aside names since"):
        pin(named, part, repin=True, from_changelog=True)
    again = [feed.decode(named, hour), feed.decode(named, part, repin=True, from_changelog=True)]
    for before, after in zip((shared, derived), again, strict=True):
        assert after.report.quarantine_reasons == {"set_aside": 1}
        assert after.report.idle_places == ()
        assert len(content(named, after)) == len(content(named, before)) - 1
        assert feed.load(named, after).targets[0].quality == "quarantine"
    other = feed.decode(named, hours(0, 1))
    assert (other.report.quarantine_reasons, other.report.idle_places) == ({}, ()), "they act in another hour of it"


def test_changelogs_of_fewer_tables_are_no_window_of_more(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed()
    narrow = feed.decode(feed.pipeline(tables="s.t0"), hours(0, 2))
    wider = feed.pipeline(tables="s.t0, s.other")
    with pytest.raises(NotCoveredError, match=r"decoded for tables s\.t0; the pipeline asks for s\.other"):
        pin(wider, hours(0, 1), from_changelog=True)
    derived = feed.decode(feed.pipeline(tables="s.t0", window="from_changelog: prefer"), hours(0, 1))
    assert [source.run_hash for source in derived.derived] == [narrow.run_hash]


def _times(window: Window) -> Iterator[Any]:
    for at_ms in range(tso.physical_ms(window.from_ts), tso.physical_ms(window.to_ts), STEP_MS):
        yield from (tso.from_ms(at_ms) + each for each in (1, 2))
