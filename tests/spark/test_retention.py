"""Objects of messages that a real broker expires, segment by segment: what it retains keeps its object."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.open_protocol import columns, message, row
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay import jobspec
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.drivers.scan import run_scan
from ticdc_replay.jobspec import ReconcileJob, ScanJob
from ticdc_replay.kafka.offsets import Offsets, Partition
from ticdc_replay.reconcile.judge.report import ReconciliationReport
from ticdc_replay.reconcile.judge.rules import Reason
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.reconcile import record_scan, survey, take_inventory, write_reconcile_job
from ticdc_replay.store_stages.reconcile_report import publish_reconciliation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

HOUR_MS = 3_600_000
NEVER_SEEN, SEEN, RETAINED, EARLY_RETRY, RETRY, YOUNG = (f"{UUID(int=number)}.json" for number in range(1, 7))
HOURS_OLD = {NEVER_SEEN: 6.0, SEEN: 4.0, RETAINED: 2.0, EARLY_RETRY: 5.0, RETRY: 3.0, YOUNG: 0.01}
"""The times of objects, and of the messages of those that have one."""


class Feed:
    """A changefeed on a topic whose segments hold a message each, once another one came, and its store."""

    def __init__(self, spark: SparkSession, kafka: Kafka, topic: str, folder: Path) -> None:
        self.spark, self.kafka, self.topic = spark, kafka, topic
        self.began_ms = time.time_ns() // 1_000_000
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        claims = folder / "claims"
        claims.mkdir()
        for name, hours in HOURS_OLD.items():
            (claims / name).write_bytes(b"content")
            os.utime(claims / name, ns=(self.ms(hours) * 1_000_000,) * 2)
        pipeline = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{claims.as_uri()}'\n",
            },
            "connections": {"kafka": "kafka"},
            "artifacts": (folder / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        }
        store = {
            "name": "claims",
            "uri": claims.as_uri(),
            "pipelines": ["shop"],
            "owners_complete": True,
            "artifacts": (folder / "stores").as_uri(),
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "rules": {"young_hours": 0.5, "clock_skew_seconds": 60},
        }
        (folder / "pipelines").mkdir()
        (folder / "pipelines" / "shop.yaml").write_text(yaml.safe_dump(pipeline))
        (folder / "claims.yaml").write_text(yaml.safe_dump(store))
        brokers = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        loaded = load_store(folder / "claims.yaml", folder / "pipelines")
        self.context = StoreContext(loaded, Connections({"kafka": brokers}))

    def ms(self, hours_ago: float) -> int:
        return self.began_ms - int(hours_ago * HOUR_MS)

    def send(self, *names: str) -> None:
        """The messages that refer to *names*, with the times of their objects."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 0})
        for number, name in enumerate(names):
            at_ms = self.ms(HOURS_OLD[name])
            small = row(tso.from_ms(at_ms), new={"id": columns(number)["id"]}, ccl=f"s3://bucket/{name}")
            made = message([small], 0)
            producer.produce(self.topic, made.value, made.key, partition=0, timestamp=at_ms)
            assert producer.flush(PATIENCE_S) == 0  # a batch is never cut over two segments

    def expire(self, retention_hours: float, low: int) -> None:
        """Wait until Kafka has removed the segments below the offset *low*, and only those."""
        entry = ConfigEntry(
            "retention.ms", str(int(retention_hours * HOUR_MS)), incremental_operation=AlterConfigOpType.SET
        )
        topic = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([topic])[topic].result(PATIENCE_S)
        partition = Partition(self.topic, 0)
        with Offsets(self.context.pipelines[0].kafka) as offsets:

            def lowest() -> int:
                return offsets.bounds([partition])[partition].low

            wait_for(f"Kafka to expire what is before offset {low}", lambda: lowest() >= low)
            assert lowest() == low

    def survey(self) -> str:
        """What Kafka holds, searched; the survey's name."""
        surveyed = survey(self.context)
        if surveyed.scan_job is not None:
            self.scan(surveyed.scan_job.uri)
        return surveyed.name

    def scan(self, uri: str) -> None:
        job = self._job(uri)
        assert isinstance(job, ScanJob)
        run_scan(SparkRunner(self.spark), job, self.context.connections)
        record_scan(self.context, uri)

    def reconcile(self, surveyed: str) -> ReconciliationReport:
        written = write_reconcile_job(self.context, surveyed, take_inventory(self.context, surveyed))
        job = self._job(written.uri)
        assert isinstance(job, ReconcileJob)
        run_reconcile(self.spark, job, self.context.connections, parallelism=2)
        report = publish_reconciliation(self.context, written.run_hash)
        assert report.complete
        assert report.alerts == ()
        return report

    def classes(self, report: ReconciliationReport) -> dict[str, tuple[str, str]]:
        root = self.context.artifacts_uri.removeprefix("file://")
        rows = [row for name in report.object_files for row in pq.read_table(f"{root}/{name}").to_pylist()]
        return {row["name"]: (row["class"], row["reason"]) for row in rows}

    def _job(self, uri: str) -> object:
        return jobspec.decode(self.context.artifacts.get(uri.removeprefix(f"{self.context.artifacts_uri}/")))


@pytest.fixture
def feed(spark: SparkSession, kafka: Kafka, make_topic: MakeTopic, tmp_path: Path) -> Iterator[Feed]:
    config = {"retention.ms": "-1", "segment.ms": str(HOUR_MS // 2), "file.delete.delay.ms": "0"}
    made = Feed(spark, kafka, make_topic(1, config), tmp_path)
    yield made
    made.context.__exit__()


def test_an_object_expires_with_its_message_and_one_of_a_retained_message_stays(feed: Feed) -> None:
    feed.send(NEVER_SEEN, SEEN, RETAINED)
    feed.expire(5, low=1)  # before anybody has read the first message
    first = feed.classes(feed.reconcile(feed.survey()))
    assert first == {
        NEVER_SEEN: ("expired", Reason.OLDER_THAN_KAFKA),
        EARLY_RETRY: ("expired", Reason.OLDER_THAN_KAFKA),
        SEEN: ("referenced", Reason.REFERENCED),
        RETAINED: ("referenced", Reason.REFERENCED),
        RETRY: ("orphaned", Reason.ORPHANED),
        YOUNG: ("too_young", Reason.TOO_YOUNG),
    }
    feed.expire(3, low=2)
    assert feed.classes(feed.reconcile(feed.survey())) == first | {
        SEEN: ("expired", Reason.REFERENCES_EXPIRED),
        RETRY: ("expired", Reason.OLDER_THAN_KAFKA),
    }


def test_what_expires_after_the_survey_before_anybody_read_it_is_not_called_a_left_over(feed: Feed) -> None:
    feed.send(SEEN, RETAINED)
    surveyed = survey(feed.context)
    assert surveyed.scan_job is not None
    feed.expire(3, low=1)
    feed.scan(surveyed.scan_job.uri)
    found = feed.classes(feed.reconcile(surveyed.name))
    assert found[SEEN] == ("expired", Reason.OLDER_THAN_KAFKA)
    assert found[RETAINED] == ("referenced", Reason.REFERENCED)
