"""Replays and a deletion on one claim-check store at the same time, on real servers: nothing that is needed is deleted.

Kafka expires what a replay has read: from then on only its lease says that the objects are needed.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import s3_client_of
from tests.integration.snapshot.feed import START_MS, at
from tests.support import s3_proxy
from tests.support.open_protocol import columns, message, resolved, row
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.scan import run_scan
from ticdc_replay.jobspec import DecodeJob, ReconcileJob, ScanJob, WrittenJob
from ticdc_replay.reconcile.delete.audit import Audit
from ticdc_replay.reconcile.judge.classified import ClassifiedIndex
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import replaying
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.quarantine.entries import Selection
from ticdc_replay.stages.quarantine.redrive import check_redrive, open_runs, pin_redrive
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.store_stages import deletion
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.deletion import decide, execute, make_plan
from ticdc_replay.store_stages.evidence import read_evidence
from ticdc_replay.store_stages.reconcile import (
    record_scan,
    survey,
    take_inventory,
    write_recheck_job,
    write_reconcile_job,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.s3 import S3Server, VersityGateway
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

WINDOW = Window(at(10), at(20))
PREFIX = "claims/"
DAYS_MS = 86_400_000
CAP = 2_000
"""Of a claim-check object, in bytes."""
ROWS = range(1, 31)
LARGE = 7
"""The row whose object is larger than the cap."""
LEFT_OVER = range(1_000, 1_060)
YOUNG = f"{UUID(int=2_000)}.json"


def name_of(number: int) -> str:
    return f"{UUID(int=number)}.json"


def names(numbers: Sequence[int]) -> set[str]:
    return {name_of(number) for number in numbers}


def object_of(number: int, value: str) -> bytes:
    whole = message([row(at(12), new=columns(number, value))], 0)
    parts = {"key": whole.key, "value": whole.value}
    return json.dumps({name: base64.b64encode(part or b"").decode() for name, part in parts.items()}).encode()


class Gate:
    """Lets requests of one kind wait in a proxy until it is opened."""

    def __init__(self, proxy: s3_proxy.Proxy, method: str) -> None:
        self.proxy, self.method = proxy, method
        self.reached, self.opened = threading.Event(), threading.Event()

    def close(self) -> None:
        self.proxy.refuse = self._wait

    def _wait(self, method: str, path: str) -> None:
        if method == self.method and path.endswith(".json"):
            self.reached.set()
            wait_for(f"the gate of {self.method} to open", self.opened.is_set)


class Shop:
    """A changefeed, its claim-check store, and what reconciles that. Replays and deletions each have a gate to the store."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        kafka: Kafka,
        topic: str,
        server: VersityGateway,
        bucket: str,
        replays: s3_proxy.Proxy,
        deletions: s3_proxy.Proxy,
    ) -> None:
        self.folder, self.spark, self.kafka, self.topic = folder, spark, kafka, topic
        self.server, self.bucket = server, bucket
        self.fetching, self.deleting = Gate(replays, "GET"), Gate(deletions, "DELETE")
        self.s3 = s3_client_of(server)
        brokers = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        ways = {"replays": replays.endpoint, "store": server.endpoint, "deletions": deletions.endpoint}
        self.connections = Connections(
            {"kafka": brokers, **{name: _aws(name, server, endpoint) for name, endpoint in ways.items()}}
        )
        self.write()
        self._publish()

    def write(self, **limits: int) -> None:
        """Write the files of the pipeline and the store."""
        for kind in ("pipelines", "stores"):
            (self.folder / kind).mkdir(exist_ok=True)
        uri = f"s3://{self.bucket}/{PREFIX.rstrip('/')}"
        pipeline = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{self.topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\n"
                f"large-message-handle-option = 'claim-check'\nclaim-check-storage-uri = '{uri}'\n",
            },
            "connections": {"kafka": "kafka", "claim_check": "replays"},
            "artifacts": (self.folder / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "policies": {"quarantine": "continue", "claim_check_missing": "quarantine", "unproven": "allow"},
            "limits": {"claim_check_max_bytes": CAP} | limits,
            "targets": [{"name": "lake", "type": "parquet", "uri": (self.folder / "lake").as_uri()}],
        }
        store = {
            "name": "claims",
            "uri": uri,
            "pipelines": ["shop"],
            "owners_complete": True,
            "connections": {"store": "store", "deletion": "deletions"},
            "artifacts": (self.folder / "reconciliation").as_uri(),
            "schedule": {"start": "2026-01-01T00:00:00Z"},
            "deletion": {"policy": "approval", "grace_hours": 24},
        }
        (self.folder / "pipelines" / "shop.yaml").write_text(yaml.safe_dump(pipeline))
        (self.folder / "stores" / "claims.yaml").write_text(yaml.safe_dump(store))
        listed = {
            name: {
                "conn_type": found.conn_type, "login": found.login, "password": found.password, "extra": found.extra,
            }
            for name, found in self.connections.by_id.items()
        }  # fmt: skip
        file = self.folder / "connections.yaml"
        file.touch(0o600)
        file.write_text(yaml.safe_dump(listed))

    def _publish(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})

        def send(second: int, events: list[tuple[bytes, bytes]]) -> None:
            made = message(events, 0)
            producer.produce(self.topic, made.value, made.key, partition=0, timestamp=START_MS + second * 1000 + 300)

        for second in range(8):
            send(second, [resolved(at(second))])
        for number in ROWS:
            location = f"s3://{self.bucket}/{PREFIX}{name_of(number)}"
            send(12, [row(at(12), new={"id": columns(number)["id"]}, ccl=location)])
            self.put(name_of(number), object_of(number, "x" * CAP if number == LARGE else f"value {number}"))
        send(21, [resolved(at(21))])
        assert producer.flush(PATIENCE_S) == 0
        for number in LEFT_OVER:
            self.put(name_of(number), b"left over from a retry")
        self.put(YOUNG, b"its message is still to come", time.time())

    def put(self, name: str, content: bytes, modified_s: float = START_MS / 1000 + 11) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=PREFIX + name, Body=content)
        self.server.set_last_modified(self.bucket, PREFIX + name, modified_s)

    def objects(self) -> set[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=PREFIX)
        return {entry["Key"].removeprefix(PREFIX) for page in pages for entry in page.get("Contents", [])}

    def expire_all(self) -> None:
        """Let Kafka expire every message."""
        end = TopicPartition(self.topic, 0, -1)
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})  # its futures need it
        admin.delete_records([end])[end].result(PATIENCE_S)

    @contextmanager
    def replay(self) -> Iterator[ReplayContext]:
        """The pipeline as its file says now."""
        with ReplayContext(load_pipeline(self.folder / "pipelines" / "shop.yaml"), self.connections) as context:
            yield context

    @contextmanager
    def store(self) -> Iterator[StoreContext]:
        """The store as its file says now."""
        loaded = load_store(self.folder / "stores" / "claims.yaml", self.folder / "pipelines")
        with StoreContext(loaded, self.connections) as context:
            yield context

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """The command line, which works in processes and a Spark of its own."""
        program = Path(sys.executable).with_name("ticdc-replay")
        file = ["--connections", str(self.folder / "connections.yaml"), "--master", "local[1]"]
        return subprocess.Popen(
            [program, *arguments, *file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def surveyed(self, context: StoreContext) -> str:
        """Survey the store, and scan what nobody has searched."""
        found = survey(context)
        if found.scan_job is not None:
            run_scan(SparkRunner(self.spark), self._job(context, found.scan_job.uri, ScanJob), self.connections)
            record_scan(context, found.scan_job.uri)
        return found.name

    def reconcile(self, context: StoreContext) -> ClassifiedIndex:
        name = self.surveyed(context)
        return self._join(context, write_reconcile_job(context, name, take_inventory(context, name)))

    def classes(self, found: ClassifiedIndex) -> dict[str, str]:
        folder = self.folder / "reconciliation" / "claims"
        tables = [pq.read_table(folder / file.name, columns=["name", "class"]) for file in found.objects]
        return {row["name"]: row["class"] for table in tables for row in table.to_pylist()}

    def plan(self, context: StoreContext, found: ClassifiedIndex, patch: pytest.MonkeyPatch) -> DeletionPlanRecord:
        """The approved plan of *found*, made as long ago as its grace period is."""
        with patch.context() as earlier:
            earlier.setattr(deletion, "now_ms", lambda: time.time_ns() // 1_000_000 - 2 * DAYS_MS)
            record = make_plan(context, found.id)
        assert record is not None
        return decide(context, record.plan_hash, True, "Ada", "looked at them")

    def delete(self, context: StoreContext, plan: DeletionPlanRecord) -> Audit:
        recheck = self._join(context, write_recheck_job(context, self.surveyed(context), plan.plan_hash))
        return execute(context, plan.plan_hash, recheck.id)

    def decode(self, context: ReplayContext, written: WrittenJob) -> None:
        name = written.uri.removeprefix(f"{context.artifacts_uri}/")
        job = jobspec.decode(context.artifacts.get(name))
        assert isinstance(job, DecodeJob)
        run_decode(SparkRunner(self.spark), job, self.connections)

    def lake(self) -> dict[int, str]:
        """The values that the lake's files have, by key."""
        found = {}
        for entry in (self.folder / "lake/shop/current/schema=s/table=t").glob("*.json"):
            for file in json.loads(entry.read_text())["fold"]:
                for each in pq.read_table(self.folder / "lake" / file["name"], partitioning=None).to_pylist():
                    found[each["after"]["id"]] = each["after"]["v"]
        return found

    def _join(self, context: StoreContext, written: WrittenJob) -> ClassifiedIndex:
        return run_reconcile(self.spark, self._job(context, written.uri, ReconcileJob), self.connections, parallelism=2)

    def _job(self, context: StoreContext, uri: str, kind: type[Any]) -> Any:
        job = jobspec.decode(context.artifacts.get(uri.removeprefix(f"{context.artifacts.root}/")))
        assert isinstance(job, kind)
        return job


def _aws(name: str, server: S3Server, endpoint: str) -> Connection:
    extra = {"endpoint_url": endpoint, "region_name": server.region}
    return Connection(name, "aws", login=server.access_key, password=server.secret_key, extra=extra)


@pytest.fixture
def shop(
    tmp_path: Path, spark: SparkSession, kafka: Kafka, make_topic: MakeTopic, versitygw: VersityGateway
) -> Iterator[Shop]:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    s3_client_of(versitygw).create_bucket(Bucket=bucket)
    topic = make_topic(1, {"retention.ms": "-1"})
    with ExitStack() as stack:
        replays, deletions = (stack.enter_context(s3_proxy.before(versitygw)) for _ in range(2))
        yield Shop(tmp_path, spark, kafka, topic, versitygw, bucket, replays, deletions)


def test_a_deletion_leaves_what_a_running_replay_needs_though_kafka_has_expired_its_messages(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(claim_check_max_bytes=10 * CAP)
    shop.fetching.close()
    shop.deleting.close()
    with shop.store() as context:
        shop.surveyed(context)  # as of last night
        window = ("--from", str(WINDOW.from_ts), "--to", str(WINDOW.to_ts))
        replay = shop.command("run", str(shop.folder / "pipelines" / "shop.yaml"), *window)
        try:
            wait_for(
                "the decode to ask for an object", lambda: shop.fetching.reached.is_set() or replay.poll() is not None
            )
            assert replay.poll() is None, replay.communicate()[0]
            shop.expire_all()
            found = shop.reconcile(context)
            assert {name for name, kind in shop.classes(found).items() if kind == "referenced"} == names(ROWS)
            plan = shop.plan(context, found, monkeypatch)

            def open_both() -> None:
                wait_for("the deletion to ask the store", shop.deleting.reached.is_set)
                shop.fetching.opened.set()
                shop.deleting.opened.set()

            opener = threading.Thread(target=open_both)
            opener.start()
            audit = shop.delete(context, plan)
            opener.join()
            told, _ = replay.communicate(timeout=PATIENCE_S)
        finally:
            shop.fetching.opened.set()
            shop.deleting.opened.set()
            replay.kill()
    assert replay.returncode == 0, told
    assert audit.counts == {"deleted": len(LEFT_OVER)}
    assert shop.objects() == names(ROWS) | {YOUNG}
    assert shop.lake() == {number: "x" * CAP if number == LARGE else f"value {number}" for number in ROWS}


def test_a_deletion_leaves_what_a_re_drive_needs_though_kafka_has_expired_its_message(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.replay() as replay:
        pinned = pin(replay, WINDOW)
        written = write_decode_job(replay, pinned)
        with replaying(replay, pinned.name, written.run_hash):
            shop.decode(replay, written)
            check(replay, written.run_hash)
    shop.expire_all()
    with shop.store() as context:
        found = shop.reconcile(context)
        kinds = shop.classes(found)
        assert {name for name, kind in kinds.items() if kind == "referenced"} == {name_of(LARGE)}
        assert {name for name, kind in kinds.items() if kind == "too_young"} == {YOUNG}
        audit = shop.delete(context, shop.plan(context, found, monkeypatch))
    assert audit.counts == {"deleted": len(ROWS) - 1 + len(LEFT_OVER)}
    assert shop.objects() == {name_of(LARGE), YOUNG}

    shop.write(claim_check_max_bytes=10 * CAP)
    with shop.replay() as replay:
        (run,) = open_runs(replay, Selection())
        pinned = pin_redrive(replay, run)
        written = write_decode_job(replay, pinned)
        with replaying(replay, pinned.name, written.run_hash):
            shop.decode(replay, written)
            redriven = check_redrive(replay, written.run_hash)
    assert (redriven.written, redriven.left) == (1, {})


def test_nothing_may_be_deleted_while_a_decode_reads_what_nobody_else_has_searched(shop: Shop) -> None:
    def obstacles() -> str:
        with shop.store() as context:
            name = shop.surveyed(context)
            written = write_reconcile_job(context, name, take_inventory(context, name))
            job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts.root}/")))
            assert isinstance(job, ReconcileJob)
            return "; ".join(read_evidence(context.artifacts, job.evidence).obstacles())

    with shop.replay() as replay:
        pinned = pin(replay, WINDOW)
        shop.expire_all()
        with replaying(replay, pinned.name, "def"):
            assert "offsets" in obstacles()
        assert obstacles() == ""
