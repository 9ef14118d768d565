"""Tasks that are killed, run twice or find the disk full, and inputs that are not what was pinned: the right rows, or a clear
failure with nothing half-visible."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
import xxhash
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import faults
from tests.support.open_protocol import columns, message, row
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.decode.plan.splits import plan_splits
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactCorruptError, ExpiredRangeError, TransientError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka

    MakeTopic = Callable[..., str]

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PARTITIONS = 3
KEYS = 200


class Feed:
    """A topic in which versions of rows are scattered over partitions, and stretches were sent again."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.connections = Connections(
            {"kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})}
        )
        events = [
            row(100 + at, new=columns(at % KEYS, f"v{at}"), old=columns(at % KEYS, "v")) for at in range(3 * KEYS)
        ]
        events += events[150:450]
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20})
        self.ends = [0] * PARTITIONS
        for at, event in enumerate(events):
            sent = message([event], at)
            producer.produce(topic, sent.value, sent.key, partition=at % 7 % PARTITIONS)
            self.ends[at % 7 % PARTITIONS] += 1
        assert producer.flush(PATIENCE_S) == 0

    def job(self, folder: Path, split_bytes: int = 30_000) -> DecodeJob:
        """The job that decodes all of the topic into *folder*."""
        with Offsets(KafkaSettings.from_connection(self.connections["kafka"])) as offsets:
            topic_id = offsets.topics([self.topic])[self.topic].topic_id
        pins = tuple(
            PartitionPin(OffsetRange(self.topic, number, 0, end), live=True, resolved_ts=None, start_margin_ms=None)
            for number, end in enumerate(self.ends)
        )
        manifest = Manifest(
            pipeline="p",
            changefeed_hash="",
            window=Window(1, 1 << 62),
            grade="proven",
            topics=(TopicPin(self.topic, topic_id, pins),),
            pinned_at_ms=0,
        )
        name = f"manifests/{manifest.input_hash}.json"
        open_store(f"file://{folder}").put_once(name, canonical.encode(manifest))
        return DecodeJob(
            library_version="test",
            pipeline="p",
            artifacts=f"file://{folder}",
            artifacts_connection=None,
            kafka_connection="kafka",
            claim_check_connection=None,
            manifest=name,
            input_hash=manifest.input_hash,
            changefeed=Changefeed(protocol="open-protocol", topic=self.topic, timezone="UTC"),
            tables=("*.*",),
            limits=msgspec.structs.replace(Limits(**LimitsSection().model_dump()), split_bytes=split_bytes),
        )


@pytest.fixture(scope="module")
def feed(kafka: Kafka) -> Feed:
    return Feed(kafka, new_topic(kafka))


def new_topic(kafka: Kafka) -> str:
    name = f"faults-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    create_topic(admin, name, PARTITIONS, {"retention.ms": "-1"})
    return name


def content_hash(job: DecodeJob, index: ChangelogIndex) -> int:
    """The same for the same rows, whatever the files they are in and their order there."""
    root = Path(job.artifacts.removeprefix("file://")) / job.changelog_root
    found = 0
    for table in index.tables:
        for file in table.files:
            for each in pq.read_table(root / file.name, partitioning=None).to_pylist():
                found += xxhash.xxh3_128_intdigest(f"{table.schema.name} {table.version} {each!r}".encode())
    return found % (1 << 128)


def left(job: DecodeJob) -> set[str]:
    return {entry.name.removeprefix(f"{job.changelog_root}/") for entry in files(job)}


def files(job: DecodeJob) -> list[Any]:
    return list(open_store(job.artifacts).list(f"{job.changelog_root}/"))


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, feed: Feed, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, ChangelogIndex]:
    job = feed.job(tmp_path_factory.mktemp("undisturbed"))
    index = run_decode(SparkRunner(spark), job, feed.connections)
    assert (index.report.events.written, index.report.events.duplicates) == (3 * KEYS, 300)
    return content_hash(job, index), index


@pytest.mark.parametrize("fault", [faults.killed_while_reading, faults.killed_after_writing, faults.run_twice])
def test_a_task_that_is_killed_or_runs_twice_has_no_effect(
    spark: SparkSession,
    feed: Feed,
    undisturbed: tuple[int, ChangelogIndex],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Any,
) -> None:
    monkeypatch.setattr("ticdc_replay.drivers.decode.decode_split", fault)
    job = feed.job(tmp_path)
    index = run_decode(SparkRunner(spark), job, feed.connections)
    assert content_hash(job, index) == undisturbed[0]
    assert index.report == undisturbed[1].report
    assert left(job) == {*index.files(), "index.json"}


@pytest.mark.parametrize(("split_bytes", "parallelism"), [(20_000, 1), (50_000, 5), (1 << 30, 2)])
def test_rows_are_the_same_in_every_layout(
    spark: SparkSession,
    feed: Feed,
    undisturbed: tuple[int, ChangelogIndex],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split_bytes: int,
    parallelism: int,
) -> None:
    layouts = []

    def planned(sizes: Any, size: int, least: int, partitions: Any = None) -> Any:
        splits = plan_splits(sizes, size, parallelism, partitions)
        random.Random(split_bytes).shuffle(splits)
        layouts.append(len(splits))
        return splits

    monkeypatch.setattr("ticdc_replay.drivers.decode.plan_splits", planned)
    job = feed.job(tmp_path, split_bytes)
    index = run_decode(SparkRunner(spark), job, feed.connections)
    assert content_hash(job, index) == undisturbed[0]
    assert (index.report.messages, index.report.events) == (
        undisturbed[1].report.messages,
        undisturbed[1].report.events,
    )
    assert layouts[-1] >= parallelism


def test_a_full_disk_is_a_clear_failure_and_the_next_attempt_leaves_nothing_of_it(
    spark: SparkSession,
    feed: Feed,
    undisturbed: tuple[int, ChangelogIndex],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = feed.job(tmp_path, 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr("ticdc_replay.drivers.decode.decode_split", faults.disk_full)
        with pytest.raises(TransientError, match=r"decode: .*(large|space).*; is a disk full"):
            run_decode(SparkRunner(spark), job, feed.connections)
    assert "index.json" not in left(job)
    assert left(job), "the attempt that failed left something"
    index = run_decode(SparkRunner(spark), job, feed.connections)
    assert content_hash(job, index) == undisturbed[0]
    assert left(job) == {*index.files(), "index.json"}


def test_an_edited_manifest_is_refused(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    job = feed.job(tmp_path)
    path = tmp_path / job.manifest
    path.write_bytes(path.read_bytes().replace(b'"end":', b'"end":1', 1))
    with pytest.raises(ArtifactCorruptError, match="was changed after pinning"):
        run_decode(SparkRunner(spark), job, feed.connections)
    assert left(job) == set()


def test_a_range_that_expires_after_it_was_pinned_fails_with_nothing_visible(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    feed = Feed(kafka, new_topic(kafka))
    job = feed.job(tmp_path)
    gone = TopicPartition(feed.topic, 1, 10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([gone])[gone].result(PATIENCE_S)
    with pytest.raises(ExpiredRangeError, match=r"\[1\] offsets 0 to 9"):
        run_decode(SparkRunner(spark), job, feed.connections)
    assert "index.json" not in left(job)
